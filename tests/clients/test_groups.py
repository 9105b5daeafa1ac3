"""Groups with typical programs: the lecture's consumers, restarts, mixed clients."""

import asyncio
import json
import os
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor

from tests.support.headrace_broker import HeadraceBroker

PROTOCOLS = ["classic", "consumer"]
SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker whose groups hurry, or of a foreign one to compare with."""
    if foreign := os.environ.get("HEADRACE_TEST_BOOTSTRAP"):
        yield foreign
        return
    with HeadraceBroker(tmp_path_factory.mktemp("groups"), settings=SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def new_topic(servers: str, partitions: int = 4) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name


def produce(servers: str, topic: str, values: range, partitions: int = 4) -> None:
    """Each number as JSON, one partition after the other."""
    producer = Producer({"bootstrap.servers": servers})
    for number in values:
        producer.produce(topic, json.dumps({"n": number}), partition=number % partitions)
    assert producer.flush(60) == 0


def until(question: Callable[[], bool], timeout_s: float = 60) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + timeout_s
    while not question():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


# --- kafka-python: the lecture's consumers --------------------------------------------------------


def test_the_simple_consumer_reads_all_and_the_next_one_only_what_is_new(
    servers: str, group: str
) -> None:
    topic = new_topic(servers)

    def run(count: int) -> list[str]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=[servers],
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
            group_id=group,
        )
        lines = [
            f"{m.topic}:{m.partition:d}:{m.offset:d}: key={m.key!r} value={m.value!r}"
            for _, m in zip(range(count), consumer, strict=False)
        ]
        consumer.close()
        return sorted(lines)

    def wanted(numbers: range) -> list[str]:
        return sorted(
            f"{topic}:{n % 4}:{n // 4}: key=None value={json.dumps({'n': n}).encode()!r}"
            for n in numbers
        )

    produce(servers, topic, range(20))
    assert run(20) == wanted(range(20))
    produce(servers, topic, range(20, 24))
    assert run(4) == wanted(range(20, 24))


def test_the_json_consumer_gets_dictionaries_and_commits_by_itself(
    servers: str, group: str
) -> None:
    topic = new_topic(servers)
    produce(servers, topic, range(12))
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=[servers],
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=100,
        group_id=group,
        value_deserializer=lambda x: json.loads(x.decode("utf-8")),
    )
    records = []
    for msg in consumer:
        records.append(msg.value)
        if len(records) == 12:
            break
    assert sorted(record["n"] for record in records) == list(range(12))
    other = Consumer({"bootstrap.servers": servers, "group.id": group})
    parts = [TopicPartition(topic, part) for part in range(4)]

    def committed_by_itself() -> bool:
        consumer.poll(timeout_ms=50)
        return [part.offset for part in other.committed(parts, 60)] == [3, 3, 3, 3]

    until(committed_by_itself)
    other.close()
    consumer.close()


class Polling(threading.Thread):
    """A kafka-python consumer that polls until it is left, in a thread of its own.

    It polls for seconds at a time: a poll that ends while the group is being joined may lose the
    assignment for good (see compat/kafka-python/FINDINGS.md).
    """

    def __init__(self, servers: str, topic: str, group: str, **options: Any) -> None:
        super().__init__(daemon=True)
        self.values: list[int] = []
        self._over = threading.Event()
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=[servers],
            auto_offset_reset="earliest",
            group_id=group,
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
            # It may join before it has heard of the topic, and then looks again only after this.
            metadata_max_age_ms=1000,
            **options,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        self.join(60)
        assert not self.is_alive()

    @property
    def owned(self) -> set[int]:
        return {part.partition for part in self._consumer.assignment()}

    def leave(self) -> None:
        """Go when the poll that runs is over, without being waited for."""
        self._over.set()

    def run(self) -> None:
        while not self._over.is_set():
            for records in self._consumer.poll(timeout_ms=4000).values():
                self.values += [json.loads(record.value)["n"] for record in records]
        self._consumer.close()


def test_consumers_of_a_group_share_four_partitions_and_a_fifth_is_idle(
    servers: str, group: str
) -> None:
    topic = new_topic(servers)
    with ExitStack() as running:
        members: list[Polling] = []
        for shares in ([4], [2, 2], [1, 1, 1, 1], [0, 1, 1, 1, 1]):
            while len(members) < len(shares):
                members.append(running.enter_context(Polling(servers, topic, group)))

            def settled(wanted: list[int] = shares) -> bool:
                parts = sorted(part for one in members for part in one.owned)
                return parts == [0, 1, 2, 3] and sorted(len(m.owned) for m in members) == wanted

            until(settled)
        produce(servers, topic, range(40))
        until(lambda: sum(len(one.values) for one in members) == 40)
        assert sorted(n for one in members for n in one.values) == list(range(40))
        assert sorted(len(one.values) for one in members) == [0, 10, 10, 10, 10]
        for one in members:
            one.leave()


def test_each_group_gets_every_message_for_itself(servers: str, group: str) -> None:
    topic = new_topic(servers)
    with Polling(servers, topic, group) as one, Polling(servers, topic, f"{group}-2") as two:
        produce(servers, topic, range(20))
        until(lambda: len(one.values) == len(two.values) == 20)
        assert sorted(one.values) == sorted(two.values) == list(range(20))


# --- Clients of different make in one group -------------------------------------------------------


class Librdkafka(threading.Thread):
    """The same with confluent-kafka, committing each record that it has taken."""

    def __init__(self, servers: str, topic: str, group: str, **options: Any) -> None:
        super().__init__(daemon=True)
        self.values: list[int] = []
        self.owned: set[int] = set()
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                **options,
            }
        )
        self._consumer.subscribe([topic])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(60)
        assert not self.is_alive()

    def run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(json.loads(message.value())["n"])
            self.owned = {part.partition for part in self._consumer.assignment()}
        self._consumer.close()


def test_three_kinds_of_client_share_one_group(servers: str, group: str) -> None:
    topic = new_topic(servers, 6)

    async def third(members: list[Polling | Librdkafka]) -> list[int]:
        mine = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
            partition_assignment_strategy=[AioRange],
        )
        await mine.start()
        values: list[int] = []
        produced = False
        try:
            while len(values) + sum(len(one.values) for one in members) < 60:
                for records in (await mine.getmany(timeout_ms=100)).values():
                    values += [json.loads(record.value)["n"] for record in records]
                shares = [len(one.owned) for one in members] + [len(mine.assignment())]
                if shares == [2, 2, 2] and not produced:
                    await asyncio.to_thread(produce, servers, topic, range(60), 6)
                    produced = True
        finally:
            await mine.stop()
        return values

    with (
        Polling(
            servers, topic, group, partition_assignment_strategy=[RangePartitionAssignor]
        ) as one,
        Librdkafka(
            servers,
            topic,
            group,
            **{"partition.assignment.strategy": "range", "heartbeat.interval.ms": 200},
        ) as two,
    ):
        values = asyncio.run(asyncio.wait_for(third([one, two]), 60))
        assert sorted(one.values + two.values + values) == list(range(60))
        assert len(values) == 20


# --- Commit, seek, go on --------------------------------------------------------------------------


def take(consumer: Any, count: int, timeout_s: float = 60) -> list[int]:
    """The next records' numbers, exactly so many."""
    values: list[int] = []
    end = time.monotonic() + timeout_s
    while len(values) < count:
        assert time.monotonic() < end, f"only {len(values)} of {count}"
        for message in consumer.consume(count - len(values), 0.2):
            assert message.error() is None, message.error()
            values.append(json.loads(message.value())["n"])
    return values


def member(servers: str, group: str, protocol: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_after_the_broker_was_stopped_and_started(
    tmp_path: Path, group: str, protocol: str
) -> None:
    with HeadraceBroker(tmp_path, settings=SETTINGS) as broker:
        servers = broker.bootstrap
        topic = new_topic(servers, 1)
        produce(servers, topic, range(100), 1)
        one = member(servers, group, protocol)
        one.subscribe([topic])
        assert take(one, 40) == list(range(40))
        one.seek(TopicPartition(topic, 0, 10))
        assert take(one, 20) == list(range(10, 30))
        noted = TopicPartition(topic, 0, 30, metadata="half of it")
        one.commit(offsets=[noted], asynchronous=False)
        assert broker.stop() == 0
        broker.start()
        assert take(one, 10) == list(range(30, 40))
        # It is still a member, in its generation: otherwise this commit would be refused.
        one.commit(offsets=[noted], asynchronous=False)
        one.close()
        two = member(servers, group, protocol)
        (found,) = two.committed([TopicPartition(topic, 0)], 60)
        assert (found.offset, found.metadata) == (30, "half of it")
        two.subscribe([topic])
        assert take(two, 70) == list(range(30, 100))
        two.commit(asynchronous=False)
        two.close()
        three = member(servers, group, protocol)
        assert three.committed([TopicPartition(topic, 0)], 60)[0].offset == 100
        three.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_positions_that_were_stored_are_committed_at_the_close(
    servers: str, group: str, protocol: str
) -> None:
    topic = new_topic(servers, 1)
    produce(servers, topic, range(20), 1)
    options = {"enable.auto.commit": True, "enable.auto.offset.store": False}
    one = member(servers, group, protocol, **options)
    one.subscribe([topic])
    assert take(one, 20) == list(range(20))
    one.store_offsets(offsets=[TopicPartition(topic, 0, 13)])
    one.close()
    two = member(servers, group, protocol, **options)
    two.subscribe([topic])
    assert take(two, 7) == list(range(13, 20))
    two.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_paused_partitions_rest_and_resume_without_a_gap(
    servers: str, group: str, protocol: str
) -> None:
    topic = new_topic(servers, 2)
    produce(servers, topic, range(10), 2)
    one = member(servers, group, protocol)
    one.subscribe([topic])
    assert sorted(take(one, 10)) == list(range(10))
    one.pause([TopicPartition(topic, 0)])
    produce(servers, topic, range(10, 20), 2)
    assert take(one, 5) == [11, 13, 15, 17, 19]
    assert one.consume(1, 0.5) == []
    one.resume([TopicPartition(topic, 0)])
    assert take(one, 5) == [10, 12, 14, 16, 18]
    one.close()


def test_aiokafka_commits_seeks_and_goes_on(servers: str, group: str) -> None:
    topic = new_topic(servers, 1)
    produce(servers, topic, range(30), 1)
    partition = AioPartition(topic, 0)

    def consumer() -> Any:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    async def read(one: Any, count: int) -> list[int]:
        return [json.loads((await one.getone()).value)["n"] for _ in range(count)]

    async def story() -> None:
        async with consumer() as one:
            assert await read(one, 20) == list(range(20))
            one.seek(partition, 5)
            assert await read(one, 3) == [5, 6, 7]
            await one.commit({partition: (8, "note")})
            assert await one.committed(partition) == 8
        async with consumer() as two:
            assert await read(two, 22) == list(range(8, 30))
            await two.commit()
            await two.seek_to_beginning()
            assert await read(two, 1) == [0]
        async with consumer() as three:
            assert await three.committed(partition) == 30

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="install the Debian package kcat")
def test_kcat_goes_on_where_its_group_stopped(servers: str, group: str) -> None:
    topic = new_topic(servers)
    produce(servers, topic, range(40))

    def run(*arguments: str) -> list[int]:
        command = ["kcat", "-b", servers, "-G", group, "-X", "auto.offset.reset=earliest", "-q"]
        done = subprocess.run(
            [*command, *arguments, topic], capture_output=True, timeout=110, check=True
        )
        return [json.loads(line)["n"] for line in done.stdout.splitlines()]

    assert sorted(run("-c", "40")) == list(range(40))
    produce(servers, topic, range(40, 48))
    assert sorted(run("-e")) == list(range(40, 48))
