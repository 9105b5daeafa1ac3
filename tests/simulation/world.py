"""Three brokers, a few clients, and their faults, in the order of a seed."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Self

from headrace.cluster.controller import Defaults, NewTopic
from headrace.cluster.store import StoreError
from headrace.errors import KafkaError
from tests.simulation.broker import FOLDER, Machine, SimulatedBroker
from tests.simulation.clients import SimulatedProducer, SimulatedReader
from tests.simulation.judge import Broken, Judge
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.store import Ensemble

TOPIC = "t"
BROKERS = 3
SESSION_S = 2.0
LIVE_AGAIN_S = 60.0
_TOLD = 120
_SETTINGS = {
    "replica.lag.time.max.ms": "1500",
    "replica.socket.timeout.ms": "2000",
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "leader.imbalance.check.interval.seconds": "5",
    "log.cleaner.enable": "false",
}


class Failure(AssertionError):
    """A seed under which a promise was broken, and what happened before."""

    def __init__(self, seed: int, reason: str, trace: list[str]) -> None:
        story = "\n".join(trace[-_TOLD:])
        super().__init__(
            f"seed {seed}: {reason}\n{story}\n"
            f"Again with: HEADRACE_TEST_SEED={seed} pytest tests/simulation"
        )
        self.seed = seed
        self.reason = reason


class World:
    """One run."""

    def __init__(self, seed: int, *, unclean: bool = False) -> None:
        self.seed = seed
        self.unclean = unclean
        """Whether the topic rather loses records than waits: then the end is judged."""
        self.random = Random(seed)
        self.loop = SimulatedLoop()
        self.trace: list[tuple[float, str, str, tuple[Any, ...]]] = []
        self.network = Network(self.loop, Random(self.random.random()))
        self.ensemble = Ensemble(
            Random(self.random.random()), self.loop.later, session_timeout_s=SESSION_S
        )
        self.machines = [
            Machine(node, self.loop, self.random.randrange(1 << 30))
            for node in range(1, BROKERS + 1)
        ]
        self.judge = Judge(TOPIC, self.machines, self.ensemble, lenient=unclean)
        self.judge.tell = self.tell
        self.flushes = self.random.random() < 0.4
        """Whether acknowledgements wait for the disk, so that power cuts lose nothing."""
        self.min_isr = self.random.choice((1, 2, 2))
        self.settings: dict[str, str] = {}
        """Of all brokers, beside the usual ones."""
        self._lost: set[int] = set()
        """Who has lost records in a power cut, and has not started since."""
        self._down: set[int] = set()
        """Who was killed, or lost power, and has not started since."""
        self._clients = Process(self.loop, "clients")
        self.loop.after_step = self._after_step
        self.loop.after_callback = self.judge.look
        self.faults = 0

    # --------------------------------------------------------------------------------- life

    def run(self, script: "Callable[[Self], Awaitable[None]] | None" = None) -> None:
        """From the start to the judgement; Failure if a promise was broken.

        The script is what happens to the brokers while clients use them; without one, that is as
        the seed has it.
        """
        with self._listening():
            try:
                self.loop.run_until_complete(self._live(script or type(self).random_life))
            except (Broken, AssertionError) as error:
                raise Failure(self.seed, str(error), self.story()) from error
            finally:
                for task in self.loop.tasks:
                    task.get_coro().close()
                self.loop.close()

    async def _live(self, script: "Callable[[Self], Awaitable[None]]") -> None:
        for machine in self.machines:
            self._start(machine)
        self._create_topic()
        await asyncio.sleep(1)
        self._start_clients()
        await script(self)
        self.tell("world", "everything is healed")
        self.heal_all()
        await self.calm()
        await self._check_end()

    async def _check_end(self) -> None:
        """Judge what is left after everything was healed and all clients have finished."""
        self.judge.check_equal()
        (end,) = {one.replica.log.end_offset for _, one in self.judge.opened()}
        await self.until(lambda: self.reader.offset >= end, "the reader read to the end")

    async def random_life(self) -> None:
        for _ in range(self.random.randint(3, 10)):
            await asyncio.sleep(self.random.expovariate(0.8))
            self.fault()
        await asyncio.sleep(self.random.uniform(0, 3))

    async def calm(self) -> None:
        """Let producers finish, and replicas catch up; Broken if that takes too long."""
        await asyncio.sleep(2)
        for producer in self.producers:
            producer.stopping = True
        await self.until(lambda: all(one.done for one in self.producers), "producers were answered")
        await self.until(lambda: self.judge.is_calm(BROKERS), "all replicas were in sync")

    def _create_topic(self) -> None:
        configs = {
            "min.insync.replicas": str(self.min_isr),
            **({"flush.messages": "1"} if self.flushes else {}),
            **({"unclean.leader.election.enable": "true"} if self.unclean else {}),
        }
        new = NewTopic(TOPIC, 1, BROKERS, configs=tuple(configs.items()))
        broker = self.machines[-1].broker
        assert broker is not None
        made = broker.process.context.run(broker.metadata.create_topic, new, Defaults(1, BROKERS))
        self._topic_id = made.id.bytes
        self.tell("world", f"flushes={self.flushes} min.insync.replicas={self.min_isr}")

    def _start_clients(self) -> None:
        process, clock = self._clients, self.machines[0].clock
        now_ms = lambda: clock.now_ms() - clock.skew_ms  # noqa: E731
        self.producers = [
            SimulatedProducer(
                process, self.network, Random(self.random.random()), BROKERS, TOPIC, number,
                self.judge, now_ms, gives_up=self.unclean,
            )
            for number in range(self.random.randint(1, 3))
        ]  # fmt: skip
        self.reader = SimulatedReader(
            process, self.network, Random(self.random.random()), BROKERS, self._topic_id, self.judge
        )
        for client in (*self.producers, self.reader):
            process.start(client.run())

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = self.loop.time() + LIVE_AGAIN_S
        while not holds():
            if self.loop.time() > deadline:
                raise Broken(
                    f"not within {LIVE_AGAIN_S:g} s of healing: {what}; {self.judge.describe()}"
                )
            await asyncio.sleep(0.1)

    def _after_step(self) -> bool:
        if self.judge.broken is not None:
            raise self.judge.broken
        for failure in self.loop.failures:
            raise Broken(f"{failure.get('message')}: {failure.get('exception')!r}")
        woken = False
        for machine in self.machines:
            broker = machine.broker
            if broker is not None and broker.joined and not broker.process.paused:
                wake = broker.parts.services.waiting_fetches.wake
                woken |= broker.process.context.run(wake)
        return woken

    # ------------------------------------------------------------------------ brokers

    @property
    def leader(self) -> SimulatedBroker:
        """Who leads, as the store has it."""
        assert self.judge.state is not None
        broker = self.machines[self.judge.state.leader - 1].broker
        assert broker is not None
        return broker

    @property
    def follower(self) -> SimulatedBroker:
        """One of those who follow."""
        (broker, *_) = (
            one.broker for one in self.machines if one.broker not in (None, self.leader)
        )
        assert broker is not None
        return broker

    def _start(self, machine: Machine) -> None:
        if machine.broker is not None:
            return
        machine.incarnation += 1
        broker = machine.broker = SimulatedBroker(
            machine,
            self.loop,
            self.network,
            self.ensemble,
            Random(self.random.random()),
            {**_SETTINGS, **self.settings},
        )
        self.tell(machine.name, "starts")
        try:
            broker.process.context.run(broker.start)
        except (KafkaError, StoreError) as error:
            self.tell(machine.name, f"cannot start: {error}")
            self._kill(machine)
            self.loop.later(0.5, lambda: self._start(machine))
            return
        self._lost.discard(machine.node)
        self._down.discard(machine.node)

    def _kill(self, machine: Machine) -> None:
        broker = machine.broker
        if broker is None:
            return
        broker.process.kill()
        self.ensemble.kill(broker.raw_store)
        machine.broker = None
        self._hang_up(broker.process)
        machine.disk.kill()

    def _hang_up(self, process: Process) -> None:
        for link in list(self.network.links):
            if process in (link.client, link.server.process):
                self.network.reset(link)

    def _restart_later(self, machine: Machine) -> None:
        self.loop.later(self.random.expovariate(0.7), lambda: self._start(machine))

    # --------------------------------------------------------------------------- faults

    def fault(self) -> None:
        self.faults += 1
        faults: list[tuple[Callable[[Machine], None], int]] = [
            (self.kill_one, 4), (self._power_cut, 4), (self.stop, 3), (self.pause, 3),
            (self._cut_links, 4), (self._isolate, 2), (self._cut_store, 3), (self._expire, 2),
            (self._lose_commit, 3), (self._jump, 1), (self._reset, 2), (self._kill_all, 1),
        ]  # fmt: skip
        (fault,) = self.random.choices([each for each, _ in faults], [w for _, w in faults])
        fault(self.random.choice(self.machines))

    def kill_one(self, machine: Machine) -> None:
        """Nobody can tell a kill from a power cut afterwards, so that one of the two must be left.

        Without flushes: as long as there is somebody who has lost records and does not know it.
        """
        others = self._others_than(machine)
        if not self._may_leave(machine):
            return
        self.tell(machine.name, "is killed")
        self._kill(machine)
        self._down.add(machine.node)
        if others and self.random.random() < 0.2:
            self._cut_tail(machine)
        self._restart_later(machine)

    def restart(self, machine: Machine) -> None:
        """Kill it and start it at once."""
        self.tell(machine.name, "is killed")
        self._kill(machine)
        self._start(machine)

    def _kill_all(self, _machine: Machine) -> None:
        for machine in self.machines:
            self.kill_one(machine)

    def _power_cut(self, machine: Machine) -> None:
        """Without flushes only where somebody else is left who has everything."""
        enough = self.flushes and not self._lost
        if machine.broker is None or not (enough or self._others_than(machine)):
            return
        self.tell(machine.name, "loses power")
        self._kill(machine)
        machine.disk.crash()
        self._down.add(machine.node)
        if not self.flushes:
            self._lost.add(machine.node)
        self._restart_later(machine)

    def _others_than(self, machine: Machine) -> set[int]:
        """Who has everything that is committed, and will not be taken for somebody who has not."""
        state = self.judge.state
        assert state is not None
        if self.unclean:
            return {0}  # nobody minds
        out_of_touch = {
            one.node for one in self.machines if one.broker and not one.broker.raw_store.linked
        }
        return {*state.isr, *state.eligible} - {machine.node} - self._down - out_of_touch

    def _may_leave(self, machine: Machine) -> bool:
        """Whether the cluster can do without it: one that lost records may still be in sync."""
        return machine.broker is not None and (not self._lost or bool(self._others_than(machine)))

    def _cut_tail(self, machine: Machine) -> None:
        """The end of the log is lost, while nobody looks."""
        folder = f"{FOLDER}/{TOPIC}-0"
        if not machine.disk.is_folder(folder):
            return  # its replica was moved away
        *_, last = (one for one in sorted(machine.disk.list_folder(folder)) if one.endswith(".log"))
        path = f"{folder}/{last}"
        content = machine.disk.content(path)
        cut = self.random.randint(0, min(len(content), 400))
        self.tell(machine.name, f"lacks the last {cut} bytes of its log")
        machine.disk.corrupt(path, content[: len(content) - cut])
        self._lost.add(machine.node)

    def stop(self, machine: Machine) -> None:
        broker = machine.broker
        if broker is None or broker.process.paused or not self._may_leave(machine):
            return
        self.tell(machine.name, "is stopped cleanly")

        def stopped(_task: asyncio.Task[None]) -> None:
            if machine.broker is broker:
                self.loop.later(0, lambda: self._kill(machine))
                self._restart_later(machine)

        broker.process.start(broker.stop()).add_done_callback(stopped)

    def pause(self, machine: Machine) -> None:
        broker = machine.broker
        if broker is None or broker.process.paused or not self._may_leave(machine):
            return
        self.tell(machine.name, "stands still")
        broker.process.pause()
        self.ensemble.pause(broker.raw_store)
        self.loop.later(self.random.expovariate(0.5), lambda: self._resume(broker))

    def _resume(self, broker: SimulatedBroker) -> None:
        if broker.process.alive and broker.process.paused:
            self.tell(broker.process.name, "goes on")
            broker.process.resume()
            self.ensemble.heal(broker.raw_store)

    def _cut_links(self, machine: Machine) -> None:
        other = self.random.choice([one for one in self.machines if one is not machine])
        ways = [(machine.name, other.name), (other.name, machine.name)]
        self._cut(self.random.choice((ways, ways[:1])))

    def _isolate(self, machine: Machine) -> None:
        names = ["clients", *(one.name for one in self.machines if one is not machine)]
        self._cut([way for one in names for way in ((one, machine.name), (machine.name, one))])

    def _cut(self, ways: list[tuple[str, str]]) -> None:
        self.tell("network", "cut: " + ", ".join("->".join(way) for way in ways))
        self.network.cut(ways)

        def heal() -> None:
            self.tell("network", "healed: " + ", ".join("->".join(way) for way in ways))
            self.network.heal(ways)

        self.loop.later(self.random.expovariate(0.4), heal)

    def _cut_store(self, machine: Machine) -> None:
        broker = machine.broker
        if broker is not None and self._may_leave(machine):
            self.tell(machine.name, "is cut off from the store")
            self.ensemble.cut(broker.raw_store)
            self.loop.later(
                self.random.expovariate(0.5), lambda: self.ensemble.heal(broker.raw_store)
            )

    def _expire(self, machine: Machine) -> None:
        if machine.broker is not None and self._may_leave(machine):
            self.tell(machine.name, "has its session ended")
            self.ensemble.expire(machine.broker.raw_store)

    def _lose_commit(self, machine: Machine) -> None:
        if machine.broker is not None:
            happens = self.random.random() < 0.5
            self.tell(machine.name, f"will lose the store in a commit that happens: {happens}")
            machine.broker.raw_store.lose_next_commit(happens=happens)

    def _jump(self, machine: Machine) -> None:
        machine.clock.skew_ms = self.random.randint(-3_000_000, 3_000_000)
        self.tell(machine.name, f"has a wall clock that is {machine.clock.skew_ms} ms off")

    def _reset(self, _machine: Machine) -> None:
        self.tell("network", "resets connections")
        for link in list(self.network.links):
            if self.random.random() < 0.5:
                self.network.reset(link)

    def heal_all(self) -> None:
        self.network.cuts.clear()
        for machine in self.machines:
            broker = machine.broker
            if broker is None:
                continue
            self._resume(broker)
            self.ensemble.heal(broker.raw_store)

    # ---------------------------------------------------------------------------- trace

    def tell(self, who: str, what: str, *arguments: object) -> None:
        self.trace.append((self.loop.time(), who, what, arguments))

    def story(self) -> list[str]:
        return [
            f"{time:9.4f} {who:9} {what % arguments if arguments else what}"
            for time, who, what, arguments in self.trace
        ]

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """What the brokers log is part of the story; an exception in there is a failure.

        Ids that are random come from the seed.
        """
        logger = logging.getLogger("headrace")
        handler = _Logged(self)
        new_uuid, random = uuid.uuid4, Random(self.seed)
        uuid.uuid4 = lambda: uuid.UUID(int=random.getrandbits(128), version=4)
        before = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            uuid.uuid4 = new_uuid
            logger.removeHandler(handler)
            logger.level, logger.propagate = before


class _Logged(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        from tests.simulation.loop import current_process

        process = current_process()
        name = process.name if process is not None else "world"
        self._world.tell(name, f"  {record.getMessage()}")
        if record.exc_info:
            import traceback

            self._world.tell(name, "".join(traceback.format_exception(*record.exc_info)))
            self._world.loop.failures.append(
                {"message": record.getMessage(), "exception": record.exc_info[1]}
            )
