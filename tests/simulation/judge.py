"""Invariants that must hold after every step of a simulation.

The judge sees everything: the logs of all brokers, the coordination store, and what clients were
told. It keeps its own list of what is committed: what any leader's high watermark has passed.
"""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.cluster.image import NO_LEADER
from headrace.cluster.store import Change, Create, Put
from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from headrace.replication.partition import Partition
from tests.simulation.broker import Machine, SimulatedBroker
from tests.simulation.clients import records_in
from tests.simulation.loop import Process
from tests.simulation.store import Ensemble


class Broken(AssertionError):
    """A promise was not kept."""


class Entry(NamedTuple):
    """One record, and the epoch of the leader that wrote it."""

    epoch: int
    value: bytes


class State(NamedTuple):
    """A partition's state as the store has it."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    eligible: tuple[int, ...]


def states_in(value: bytes) -> list[State]:
    """The states of a topic's partitions, as the store has them."""
    content = json.loads(value)
    found = []
    for index in content["partitions"]:
        state = content["states"][index]
        eligible = state[5] if len(state) > 5 else ()
        found.append(State(state[0], state[1], tuple(state[3]), tuple(eligible)))
    return found


class _Mirror:
    """A log's records, read again only where something changed."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.generation = log.generation
        self.entries: list[Entry] = []
        self.read()

    def read(self) -> None:
        log = self.log
        if log.generation != self.generation or log.end_offset < len(self.entries):
            self.generation = log.generation
            self.entries.clear()
        while len(self.entries) < log.end_offset:
            piece = log.read(len(self.entries), 1 << 20, log.end_offset, True)
            assert piece is not None
            for offset, epoch, value in records_in(piece.read()):
                if offset == len(self.entries):
                    self.entries.append(Entry(epoch, value))


class Judge:
    """Looks at everything after every step."""

    def __init__(
        self, topic: str, machines: Sequence[Machine], ensemble: Ensemble, *, lenient: bool
    ) -> None:
        self._lenient = lenient
        """Whether the topic may lose records; then only leaders and the end are judged."""
        self._path = f"/topics/{topic}"
        self._topic = topic
        self._machines = machines
        self._ensemble = ensemble
        self.committed: list[Entry] = []
        self.commit_epochs: list[int] = []
        """Of the leader under which each offset was committed first."""
        self._values: set[bytes] = set()
        self.acknowledgements = 0
        self.reads = 0
        self.elections = 0
        self.tell: Callable[[str, str], None] = lambda who, what: None
        self._controller = NO_LEADER
        self._leaders: dict[int, int] = {}
        self._leading: dict[SimulatedBroker, int] = {}
        self._led: set[tuple[int, int]] = set()
        self._mirrors: dict[SimulatedBroker, _Mirror] = {}
        self._seen: dict[SimulatedBroker, tuple[object, ...]] = {}
        self._running: dict[Process, SimulatedBroker] = {}
        self.state: State | None = None
        self.broken: Broken | None = None
        apply = ensemble.apply
        ensemble.apply = lambda changes, session: self._commit(apply, changes, session)  # type: ignore[method-assign]

    def breaks(self, reason: str) -> Broken:
        """Remembered, because whoever is judged may catch it."""
        self.broken = self.broken or Broken(reason)
        return self.broken

    # --------------------------------------------------------------------------- the store

    def _commit(
        self,
        apply: Callable[[Sequence[Change], int], None],
        changes: Sequence[Change],
        session: int,
    ) -> None:
        """A change in the store: who may elect, and that an epoch has one leader."""
        before = self._state()
        apply(changes, session)
        after = self._state()
        node = self._node_of(session)
        if any(
            change.path == "/controller" and isinstance(change, Create | Put) for change in changes
        ):
            self._controller = node
        if after == before or after is None:
            return
        self.tell(f"broker-{node}", f"writes {after}")
        if before is not None and after.leader != before.leader:
            self.elections += 1
            if node not in (self._controller, before.leader):
                raise self.breaks(f"broker {node} elects {after.leader} and is not the controller")
        if after.leader != NO_LEADER:
            known = self._leaders.setdefault(after.epoch, after.leader)
            if known != after.leader:
                raise self.breaks(
                    f"epoch {after.epoch} has two leaders: {known} and {after.leader}"
                )

    def _node_of(self, session: int) -> int:
        store = next(one for one in self._ensemble.stores if one.session == session)
        brokers = (machine.broker for machine in self._machines)
        return next(one.node for one in brokers if one is not None and one.raw_store is store)

    def _state(self) -> State | None:
        node = self._ensemble.nodes.get(self._path)
        if node is None:
            return None
        (self.state,) = states_in(node.value)
        return self.state

    # -------------------------------------------------------------------------- the brokers

    def look(self, process: Process) -> None:
        """Judge whatever the process has just changed."""
        broker = self._running.get(process)
        if broker is None:
            machine = next((one for one in self._machines if one.name == process.name), None)
            if machine is None or machine.broker is None or not machine.broker.joined:
                return
            broker = self._running[process] = machine.broker
        partition = self._replica_of(broker)
        if partition is None:
            return
        log = partition.replica.log
        now = (
            log, log.generation, log.end_offset, partition.replica.high_watermark, partition.leads,
            partition.leader_epoch, self.state,
        )  # fmt: skip
        if self._seen.get(broker) != now:
            self._seen[broker] = now
            self._look_at(broker, partition)
            if self.state is not None:
                self._check_in_sync(self.state)

    def _replica_of(self, broker: SimulatedBroker) -> Partition | None:
        """A broker's replica, if it is open and well: a damaged one has to be fetched again."""
        for partition in broker.replicas.topic(self._topic):
            if (
                partition.hosted
                and partition.replica.opened
                and partition.replica.log.availability.offline is None
                and not partition.replica.log.holes
            ):
                return partition
        return None

    def opened(self) -> list[tuple[SimulatedBroker, Partition]]:
        """The replicas of brokers that run."""
        found = []
        for machine in self._machines:
            broker = machine.broker
            if broker is not None and broker.joined:
                partition = self._replica_of(broker)
                if partition is not None:
                    found.append((broker, partition))
        return found

    def _look_at(self, broker: SimulatedBroker, partition: Partition) -> None:
        node, mirror = broker.node, self._mirrors.get(broker)
        try:
            if mirror is None or mirror.log is not partition.replica.log:
                mirror = self._mirrors[broker] = _Mirror(partition.replica.log)
            mirror.read()
        except KafkaError as error:
            raise self.breaks(f"broker {node} cannot read its log: {error}") from error
        entries, bound = mirror.entries, partition.replica.high_watermark
        if bound > len(entries):
            raise self.breaks(f"broker {node} has its high watermark {bound} behind its end")
        epoch = partition.leader_epoch
        led = self._leading.pop(broker, None)
        if partition.leads:
            led = self._leading[broker] = epoch
            if self._leaders.get(epoch) != node:
                raise self.breaks(
                    f"broker {node} leads in epoch {epoch} of {self._leaders.get(epoch)}"
                )
            if (node, epoch) not in self._led:
                self._led.add((node, epoch))
                self.tell(broker.process.name, f"leads in epoch {epoch} from {len(entries)} on")
                self._check_complete(node, epoch, entries)
        if self._lenient:
            return
        if led is not None:  # perhaps it commits and gives up at once
            for offset in range(len(self.committed), bound):
                if entries[offset].value in self._values:
                    raise self.breaks(f"{entries[offset]} is there twice, at {offset} again")
                self._values.add(entries[offset].value)
                self.committed.append(entries[offset])
                self.commit_epochs.append(led)
        self._check_same(f"broker {node} below its high watermark", entries, bound)

    def _check_complete(self, node: int, epoch: int, entries: list[Entry]) -> None:
        """A leader has everything that was committed before its epoch."""
        if self._lenient:
            return
        count = sum(1 for each in self.commit_epochs if each < epoch)
        self._check_same(f"broker {node}, which leads in epoch {epoch},", entries, count)

    def _check_in_sync(self, state: State) -> None:
        """Whoever counts as in sync, or as eligible, has everything that is committed."""
        if self._lenient:
            return
        for broker, _ in self.opened():
            mirror = self._mirrors.get(broker)
            if mirror is not None and broker.node in state.isr + state.eligible:
                what = "in sync" if broker.node in state.isr else "eligible"
                self._check_same(
                    f"broker {broker.node}, {what},", mirror.entries, len(self.committed)
                )

    def _check_same(self, who: str, entries: list[Entry], count: int) -> None:
        if count > len(self.committed):
            raise self.breaks(f"{who} takes {count} for committed; {len(self.committed)} are")
        if entries[:count] == self.committed[:count]:
            return
        for offset in range(count):
            held = entries[offset] if offset < len(entries) else None
            if held != self.committed[offset]:
                raise self.breaks(
                    f"{who} has {held} at {offset}; committed is {self.committed[offset]}"
                )

    # -------------------------------------------------------------------------- the clients

    def acknowledged(self, offset: int, value: bytes) -> None:
        self.acknowledgements += 1
        self._check_committed("acknowledged", offset, value)

    def read(self, offset: int, value: bytes) -> None:
        self.reads += 1
        self._check_committed("read", offset, value)

    def refused(self, node: int, code: ErrorCode, under_way: int) -> None:
        """A client got an error that no retry mends.

        One who still takes itself for the leader knows neither the latest records nor the latest
        sequences, and may say so. With several batches under way there are two more reasons, both
        Kafka's: after a restart only a producer's last batch is known, and the first batch of one
        that is not known may have any sequence, though those before it were refused.
        """
        leads = self.state is not None and self.state.leader == node
        if leads and under_way == 1 and not self._lenient:
            raise self.breaks(f"broker {node} answered a client with {code!r}")

    def _check_committed(self, what: str, offset: int, value: bytes) -> None:
        if self._lenient:
            return
        held = self.committed[offset].value if offset < len(self.committed) else None
        if held != value:
            raise self.breaks(f"{value!r} at {offset} was {what}; committed is {held!r}")

    # ------------------------------------------------------------------------------ the end

    def is_calm(self, brokers: int) -> bool:
        """Whether all replicas are in sync, and know it."""
        state, replicas = self.state, self.opened()
        if state is None or len(state.isr) < brokers or len(replicas) < brokers:
            return False
        ends = {(one.replica.log.end_offset, one.replica.high_watermark) for _, one in replicas}
        return len(ends) == 1 and len({*ends.pop()}) == 1 and sum(p.leads for _, p in replicas) == 1

    def check_equal(self) -> None:
        """All replicas hold the same."""
        (first, *others) = [
            (one, _Mirror(replica.replica.log).entries) for one, replica in self.opened()
        ]
        for broker, entries in others:
            if entries != first[1]:
                raise self.breaks(f"brokers {first[0].node} and {broker.node} hold other records")

    def describe(self) -> str:
        """Where everybody is."""
        replicas = ", ".join(
            f"{broker.node} {'leads' if one.leads else 'follows'} in {one.leader_epoch} to "
            f"{one.replica.log.end_offset}, high watermark {one.replica.high_watermark}"
            for broker, one in self.opened()
        )
        return f"{self.state}; {replicas}"
