"""What worlds have in common whose clients use the coordinators.

They have a topic with several partitions. Their faults are those of every world, judged for all
partitions, and sometimes two of three brokers are down for so long that nothing can be written.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from headrace.cluster.controller import Defaults, NewTopic
from headrace.coordination.coordinator_topic import java_hash
from tests.simulation.broker import Machine
from tests.simulation.judge import State, states_in
from tests.simulation.members import Leader
from tests.simulation.world import BROKERS, World

ORDERS = "orders"
PARTITIONS = 4
_STARVED_S = 6.0
"""How long two brokers are down: their sessions end after two seconds."""


class CoordinatorWorld(World):
    """One run."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.settings = {
            "min.insync.replicas": str(self.min_isr),
            "log.flush.interval.messages": "1" if self.flushes else str(2**63 - 1),
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.min.isr": str(self.min_isr),
        }

    def _create_topic(self) -> None:
        super()._create_topic()
        broker = self.machines[-1].broker
        assert broker is not None
        new = NewTopic(ORDERS, PARTITIONS, BROKERS)
        self.orders = broker.process.context.run(
            broker.metadata.create_topic, new, Defaults(1, BROKERS)
        )

    def _run_client(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[Any]:
        """Start a client; a mistake of its own ends the run."""
        task = self._clients.start(work)

        def ended(done: asyncio.Task[Any]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                self.loop.failures.append({"message": "a client failed", "exception": error})

        task.add_done_callback(ended)
        return task

    def coordinator_of(self, topic: str, name: str) -> Leader:
        """The broker that leads the partition of a group or id, as the store has it."""
        node = self.ensemble.nodes.get(f"/topics/{topic}")
        if node is None:
            return Leader(-1, -1)
        states = states_in(node.value)
        state = states[java_hash(name) % len(states)]
        return Leader(state.leader, state.epoch)

    def starve(self, spared: int) -> bool:
        """Kill all brokers but one for a while; False if records could be lost by that."""
        down = [one for one in self.machines if one.node != spared]
        if not all(self._others_than(one) - {each.node for each in down} for one in down):
            return False
        for machine in down:
            self.tell(machine.name, f"is killed for {_STARVED_S:g} s")
            self._kill(machine)
            self._down.add(machine.node)
            self.loop.later(_STARVED_S, lambda machine=machine: self._start(machine))  # type: ignore[misc]
        return True

    def _others_than(self, machine: Machine) -> set[int]:
        """Brokers that have everything that is committed in every partition."""
        found = super()._others_than(machine)
        for state in self._states():
            found &= {*state.isr, *state.eligible}
        return found

    def _states(self) -> list[State]:
        """Of the partitions of all topics."""
        return [
            state
            for path, node in self.ensemble.nodes.items()
            if path.startswith("/topics/")
            for state in states_in(node.value)
        ]
