"""A world in which the files of one broker are damaged while it is down.

Each case has a topic of its own with one partition: several segments, idempotent and transactional
producers, several leader epochs. The broker starts with all of them damaged at once. Afterwards all
replicas must hold what was acknowledged, and answer alike. The topic of every world is healthy: its
producers and its reader go on all the time.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from headrace.client.errors import ClientError
from headrace.client.fetching import FetchPlan, fetch_request, parse_fetch, whole_batches
from headrace.cluster.controller import Defaults, NewTopic
from headrace.replication.partition import Partition
from headrace.types import TopicPartition
from headrace.wire import codec
from headrace.wire.batch import TRANSACTIONAL, read_header
from headrace.wire.markers import encode_marker
from headrace.wire.records import Record, encode_batch
from tests.simulation.broker import FOLDER, Machine, SimulatedBroker
from tests.simulation.judge import states_in
from tests.simulation.members import CoordinatorClient
from tests.simulation.world import BROKERS, LIVE_AGAIN_S, World

NOW = 1_700_000_000_000
STRUCK = 2
"""The broker whose files are damaged."""
_BATCHES = 12
_CONFIGS = (
    ("segment.index.bytes", "24"), ("index.interval.bytes", "100"), ("min.insync.replicas", "2"),
)  # fmt: skip
_FETCH, _FETCH_VERSION = 1, 12


class Files(NamedTuple):
    """The files of a replica, to be damaged."""

    machine: Machine
    folder: str

    def names(self, suffix: str) -> list[str]:
        """Files with that end, the oldest segment's first."""
        found = self.machine.disk.list_folder(self.folder)
        return sorted(one for one in found if one.endswith(suffix))

    def read(self, name: str) -> bytearray:
        return bytearray(self.machine.disk.content(f"{self.folder}/{name}"))

    def write(self, name: str, content: bytes | bytearray) -> None:
        self.machine.disk.corrupt(f"{self.folder}/{name}", bytes(content))

    def delete(self, name: str) -> None:
        self.machine.disk.remove(f"{self.folder}/{name}")


class Case(NamedTuple):
    """One kind of damage, done to the replica of one topic."""

    name: str
    damage: Callable[[Files], None]
    comparable: Callable[[bytes], bytes] = bytes
    """Leaves out of a log's bytes what nothing protects."""


class DamageWorld(World):
    """One run: fill, stop or kill, damage, start, judge."""

    def __init__(
        self,
        seed: int,
        cases: Sequence[Case],
        *,
        clean: bool,
        damage_all: Callable[[Files], None] | None = None,
    ) -> None:
        super().__init__(seed)
        self.settings = {
            # Followers answer consumers, which is how old damage is found.
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        }
        self._clean = clean
        self._damage_all = damage_all
        """What is done to the files that tell of all partitions."""
        self._topics = {f"case-{number}": case for number, case in enumerate(cases)}
        self._written: dict[str, bytes] = {}

    def _create_topic(self) -> None:
        super()._create_topic()
        broker = self.machines[-1].broker
        assert broker is not None
        for topic in self._topics:
            broker.process.context.run(
                broker.metadata.create_topic,
                NewTopic(topic, 1, BROKERS, configs=_CONFIGS),
                Defaults(1, BROKERS),
            )

    async def random_life(self) -> None:
        """Fill the topics, strike, and wait until all replicas are whole again."""
        await self._fill(range(_BATCHES))
        for machine in self.machines:  # so that there are several leader epochs
            await self._take_down(machine, clean=True)
            self._start(machine)
            await self._until_none(self._out_of_sync, "not in sync before the damage")
        await self._fill(range(_BATCHES, 2 * _BATCHES))
        await self._until_none(self._unequal, "not replicated before the damage")
        self._written = {topic: self._bytes_of(self.machines[0], topic) for topic in self._topics}
        machine = self.machines[STRUCK - 1]
        await self._take_down(machine, clean=self._clean)
        for topic, case in self._topics.items():
            self.tell("world", f"damages {topic}: {case.name}")
            case.damage(Files(machine, f"{FOLDER}/{topic}-0"))
        if self._damage_all is not None:
            self._damage_all(Files(machine, FOLDER))
        self._start(machine)
        for topic in self._topics:
            await self._read_all(topic)
        await self._until_none(self._out_of_sync, "not in sync again")
        await self._until_none(self._differing, "other bytes than were written")
        self._compare_answers()

    # --------------------------------------------------------------------------------- steps

    async def _fill(self, numbers: range) -> None:
        """Append to the leaders."""
        for number in numbers:
            for topic in self._topics:
                broker, partition = await self._leader_of(topic)
                for data in _batches(number):
                    broker.process.context.run(partition.append_own, data, NOW + number)
            await asyncio.sleep(0.05)

    async def _leader_of(self, topic: str) -> tuple[SimulatedBroker, Partition]:
        while True:
            for machine in self.machines:
                broker = machine.broker
                for partition in [] if broker is None else broker.replicas.topic(topic):
                    if broker is not None and partition.leads and partition.isr == BROKERS:
                        return broker, partition
            await asyncio.sleep(0.05)

    async def _take_down(self, machine: Machine, *, clean: bool) -> None:
        broker = machine.broker
        assert broker is not None
        self.tell(machine.name, "is stopped cleanly" if clean else "is killed")
        if clean:
            stopped = broker.process.start(broker.stop())
            await self.until(stopped.done, "it has stopped")
        self._kill(machine)

    async def _read_all(self, topic: str) -> None:
        """As a consumer that reads from the broker that was struck, in sync or not."""
        reader = _Reader(self._clients, self.network, Random(self.random.random()), BROKERS)
        written, found = self._written[topic], b""
        deadline = self.loop.time() + LIVE_AGAIN_S
        while len(found) < len(written):
            if self.loop.time() > deadline:
                raise self.judge.breaks(
                    f"{self._named(topic)} cannot be read beyond offset {reader.offset}"
                )
            found += await reader.read(topic)
        if not self._is_the_same(topic, found):
            raise self.judge.breaks(f"other bytes of {self._named(topic)} were served")

    # ------------------------------------------------------------------------------- verdict

    def _named(self, topic: str) -> str:
        return f"{topic} ({self._topics[topic].name})"

    async def _until_none(self, problems: Callable[[], list[str]], what: str) -> None:
        deadline = self.loop.time() + LIVE_AGAIN_S
        while found := problems():
            if self.loop.time() > deadline:
                raise self.judge.breaks(f"{what}: {', '.join(found)}")
            await asyncio.sleep(0.1)

    def _out_of_sync(self) -> list[str]:
        return [
            self._named(topic)
            for topic in self._topics
            for state in states_in(self.ensemble.nodes[f"/topics/{topic}"].value)
            if len(state.isr) < BROKERS
        ]

    def _unequal(self) -> list[str]:
        return [
            self._named(topic)
            for topic in self._topics
            if len({self._bytes_of(machine, topic) for machine in self.machines}) > 1
        ]

    def _differing(self) -> list[str]:
        return [
            f"{self._named(topic)} on {machine.name}"
            for topic in self._topics
            for machine in self.machines
            if not self._is_the_same(topic, self._bytes_of(machine, topic))
        ]

    def _is_the_same(self, topic: str, found: bytes) -> bool:
        comparable = self._topics[topic].comparable
        return comparable(found) == comparable(self._written[topic])

    def _bytes_of(self, machine: Machine, topic: str) -> bytes:
        files = Files(machine, f"{FOLDER}/{topic}-0")
        return b"".join(bytes(files.read(name)) for name in files.names(".log"))

    def _compare_answers(self) -> None:
        """What side files tell is the same on all brokers."""
        for topic in self._topics:
            expected, *others = [
                _answers(machine.broker.replicas.topic(topic)[0])
                for machine in self.machines
                if machine.broker is not None
            ]
            for answers in others:
                for what, answer in answers.items():
                    if answer != expected[what]:
                        raise self.judge.breaks(
                            f"{self._named(topic)}: {what} is {answer} on one broker and "
                            f"{expected[what]} on another"
                        )


class _Reader(CoordinatorClient):
    """Reads one partition from the broker that was struck, and from no other."""

    offset = 0

    async def read(self, topic: str) -> bytes:
        """The next batches; nothing if there are none, or if they are refused."""
        self._node = STRUCK
        plan = FetchPlan(TopicPartition(topic, 0), max_wait_ms=10)
        request = fetch_request(plan, self.offset, _FETCH_VERSION)
        body = codec.encode_request(_FETCH_VERSION, request)
        try:
            answer = await (await self.connected()).ask_encoded(_FETCH, _FETCH_VERSION, body)
        except ClientError:
            await self.elsewhere()
            return b""
        partition = parse_fetch(answer)
        positions, end = whole_batches(answer.data, partition.records_at, partition.records_end)
        if partition.error or not positions:
            await asyncio.sleep(0.1)
            return b""
        self.offset = read_header(answer.data, positions[-1]).next_offset
        return bytes(answer.data[positions[0] : end])


def _batches(number: int) -> Iterator[bytearray]:
    """What is appended in one step: batches of a producer, sometimes a transaction."""
    records = [Record(0, NOW + number, b"key", b"value")] * (1 + number % 2)
    yield encode_batch(records, producer_id=9, producer_epoch=0, base_sequence=number + number // 2)
    if number % 4 == 0:
        yield encode_batch(
            records[:1], producer_id=4, producer_epoch=0, base_sequence=number // 4,
            attributes=TRANSACTIONAL,
        )  # fmt: skip
        yield encode_marker(4, 0, number % 8 == 0, 1, NOW + number)


def _answers(partition: Partition) -> dict[str, object]:
    log = partition.replica.log
    end = log.end_offset
    times = [log.find_timestamp(NOW + number) for number in range(2 * _BATCHES + 1)]
    return {
        "the log end offset": end,
        "the log start offset": log.start_offset,
        "the last stable offset": log.last_stable_offset(end),
        "ListOffsets by time": [one and (one.timestamp, one.offset) for one in times],
        "aborted transactions": log.transactions.between(0, end),
        "ends of epochs": [log.epochs.end_offset(epoch, end) for epoch in range(12)],
        "producers": sorted(
            (producer_id, one.epoch, one.expected)
            for producer_id, one in log.producers.producers.items()
        ),
    }
