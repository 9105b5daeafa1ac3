"""The same log, compacted by Apache Kafka and by Headrace: the same records at the same offsets."""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.wire.batch import Header, read_header
from tests.support import java
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "compared"
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "1"))
CHECKPOINT = "cleaner-offset-checkpoint"
PARTITIONS = 6
STEPS = 150
HOUR_MS = 3_600_000
# Markers have the broker's time. What is written after one must be later, or no segment would roll.
BEGIN_MS = int(time.time() * 1000) + 24 * HOUR_MS
NEVER, AT_ONCE = "1.0", "0.0"
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": NEVER,
    "segment.ms": str(HOUR_MS // 2),
    "delete.retention.ms": "0",
    "message.timestamp.after.max.ms": str(2**62),
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTIONAL_IDS = ("t1", "t2", "t3")

Broker = ApacheKafka | HeadraceBroker


@dataclass(frozen=True)
class Step:
    """One thing that happens: a batch by a producer, or the end of its transaction."""

    producer: str
    partition: int = 0
    records: tuple[tuple[bytes, bytes | None, int], ...] = ()
    end: bool | None = None


def history(rnd: random.Random, hour: int, count: int) -> Iterator[Step]:
    """Batches of plain, idempotent and transactional producers; time passes, so segments roll."""
    open_now: set[str] = set()
    for n in range(count):
        name = rnd.choice((*CODECS, "idempotent", *TRANSACTIONAL_IDS))
        if name in open_now and rnd.random() < 0.3:
            open_now.discard(name)
            yield Step(name, end=rnd.random() < 0.6)
            continue
        if name in TRANSACTIONAL_IDS:
            open_now.add(name)
        at_ms = BEGIN_MS + hour * HOUR_MS + n * HOUR_MS // 30
        records = tuple(
            (
                rnd.choice((b"", b"k" * 600, b"key %d" % rnd.randint(0, 30))),
                None if rnd.random() < 0.25 else b"%d/%d" % (n, i),
                at_ms + rnd.randint(0, 1000),
            )
            for i in range(rnd.choice((1, 1, 2, 5, 20)))
        )
        yield Step(name, rnd.randrange(PARTITIONS), records)
    for name in sorted(open_now):
        yield Step(name, end=rnd.random() < 0.6)
    # So that everything above lies in sealed segments.
    late_ms = BEGIN_MS + (hour + count // 30 + 5) * HOUR_MS
    for partition in range(PARTITIONS):
        for turn in range(2):
            yield Step("none", partition, ((b"end", b"%d" % turn, late_ms + turn * HOUR_MS),))


class Writer:
    """Takes the steps of a history on one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, Producer] = {}
        self._open: set[str] = set()

    def take(self, step: Step) -> None:
        producer = self._producers.get(step.producer) or self._make(step.producer)
        if step.producer in TRANSACTIONAL_IDS and step.producer not in self._open:
            producer.begin_transaction()
            self._open.add(step.producer)
        for key, value, timestamp in step.records:
            producer.produce(
                TOPIC, value, key, step.partition, timestamp=timestamp, headers={"h": b"1"}
            )
        assert producer.flush(60) == 0
        if step.end is not None:
            self._open.discard(step.producer)
            if step.end:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)

    def _make(self, name: str) -> Producer:
        config = {"bootstrap.servers": self._bootstrap, "linger.ms": 1000}
        if name in CODECS:
            config["compression.type"] = name
        else:
            config["enable.idempotence"] = True
        if name in TRANSACTIONAL_IDS:
            config["transactional.id"] = name
        producer = self._producers[name] = Producer(config)
        if name in TRANSACTIONAL_IDS:
            producer.init_transactions(60)
        return producer


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=CONFIG)])[TOPIC].result(60)


def set_ratio(bootstrap: str, ratio: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(
        "min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def active_bases(broker: Broker) -> dict[int, int]:
    return {
        partition: max(
            int(path.stem) for path in broker.partition_folder(TOPIC, partition).glob("*.log")
        )
        for partition in range(PARTITIONS)
    }


def cleaned_to(broker: Broker) -> dict[int, int]:
    path = broker.data / CHECKPOINT
    rows = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return {int(row[1]): int(row[2]) for row in rows if len(row) == 3 and row[0] == TOPIC}


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.1)


def no_transaction_is_open(bootstrap: str) -> bool:
    """Whether every marker is written: a commit is answered before that."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = {
        TopicPartition(TOPIC, partition): OffsetSpec.latest() for partition in range(PARTITIONS)
    }
    stable, last = (
        {
            partition: future.result(60).offset
            for partition, future in admin.list_offsets(wanted, isolation_level=level).items()
        }
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return stable == last


def compact(broker: Broker) -> None:
    """Let the broker compact everything once."""
    set_ratio(broker.bootstrap, AT_ONCE)
    wait_until("compaction", lambda: cleaned_to(broker) == active_bases(broker))
    set_ratio(broker.bootstrap, NEVER)


def read(bootstrap: str, isolation: str) -> dict[int, list[object]]:
    """What a consumer gets of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: dict[int, list[object]] = {partition: [] for partition in range(PARTITIONS)}
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, "the end of a partition was not reached"
        if message.error():
            ended.add(message.partition())
            continue
        found[message.partition()].append(
            (
                message.offset(),
                message.key(),
                message.value(),
                message.timestamp(),
                message.headers(),
            )
        )
    consumer.close()
    return found


def assert_read_the_same(ours: str, theirs: str) -> None:
    for isolation in ("read_uncommitted", "read_committed"):
        left, right = read(ours, isolation), read(theirs, isolation)
        for partition in range(PARTITIONS):
            missing = [record for record in right[partition] if record not in left[partition]]
            surplus = [record for record in left[partition] if record not in right[partition]]
            assert (missing, surplus) == ([], []), f"{isolation} of partition {partition}"
        assert left == right, "the order is the same"


def batch_headers(broker: Broker, partition: int) -> list[Header]:
    """What the files say of each batch, but for sizes, checksums and base timestamps."""
    found: list[Header] = []
    for path in sorted(broker.partition_folder(TOPIC, partition).glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            header = read_header(data, at)
            found.append(header._replace(batch_length=0, crc=0, base_timestamp=0))
            at += header.size_bytes
    return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    if reason := java.missing():
        pytest.skip(reason)
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": "4000000"}
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=settings, quick=True) as broker:
        yield broker


def copy_log(kafka: ApacheKafka, headrace: HeadraceBroker) -> None:
    """Give our broker the other's log; the topic's identity stays the one that ours knows."""
    for partition in range(PARTITIONS):
        folder = headrace.partition_folder(TOPIC, partition)
        identity = (folder / "partition.metadata").read_bytes()
        shutil.rmtree(folder)
        shutil.copytree(kafka.partition_folder(TOPIC, partition), folder)
        (folder / "partition.metadata").write_bytes(identity)
    shutil.copy(kafka.data / CHECKPOINT, headrace.data / CHECKPOINT)


def test_what_a_consumer_reads_is_what_kafka_left(kafka: ApacheKafka, tmp_path: Path) -> None:
    rnd = random.Random(SEED)
    create(kafka.bootstrap)
    headrace = HeadraceBroker(tmp_path, settings={"log.cleaner.backoff.ms": "100"})
    with headrace:
        create(headrace.bootstrap)
        # In the second round tombstones and markers of the first one have had their time.
        for turn in range(2):
            writer = Writer(kafka.bootstrap)
            for step in history(rnd, 100 * turn, STEPS):
                writer.take(step)
            del writer
            wait_until("the end of all", lambda: no_transaction_is_open(kafka.bootstrap))
            kafka.stop()
            headrace.stop()
            copy_log(kafka, headrace)
            headrace.start()
            kafka.start()
            before = read(headrace.bootstrap, "read_uncommitted")
            compact(kafka)
            compact(headrace)
            after = read(headrace.bootstrap, "read_uncommitted")
            assert sum(map(len, after.values())) < sum(map(len, before.values())) / 2
            assert_read_the_same(headrace.bootstrap, kafka.bootstrap)
            for partition in range(PARTITIONS):
                # A delete horizon is the time of each one's compaction and stands in the base
                # timestamp. All else is the same, down to empty batches and markers.
                assert batch_headers(headrace, partition) == batch_headers(kafka, partition)
