"""The same records and settings: Headrace and Apache Kafka delete the same segments."""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headrace.errors import ErrorCode
from headrace.wire.batch import MAX_TIMESTAMP_AT, put_checksum, read_header
from headrace.wire.records import Record, encode_batch
from tests.support import raw
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker
from tests.support.topics import create_topic

pytestmark = [pytest.mark.java, pytest.mark.slow]

_Broker: TypeAlias = HeadraceBroker | ApacheKafka

HOUR_MS = 3_600_000
RECORDS = 60
POLICIES: dict[str, dict[str, str]] = {
    "time": {"retention.ms": str(3 * HOUR_MS)},
    "short-time": {"retention.ms": "1"},
    "size": {"retention.ms": "-1", "retention.bytes": "9000"},
    "one-byte": {"retention.ms": "-1", "retention.bytes": "1"},
    "no-bytes": {"retention.ms": "-1", "retention.bytes": "0"},
    "both": {"retention.ms": str(2 * HOUR_MS), "retention.bytes": "15000"},
    "forever": {"retention.ms": "-1"},
    "compacted": {"cleanup.policy": "compact", "retention.ms": "1"},
}

KEEPS_ALL = ("forever", "compacted")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[_Broker, _Broker]]:
    folder: Path = tmp_path_factory.mktemp("brokers")
    interval = {"log.retention.check.interval.ms": "200"}
    with (
        HeadraceBroker(folder / "headrace", settings=interval) as ours,
        ApacheKafka(
            folder / "kafka",
            settings={**interval, "log.initial.task.delay.ms": "100"},
            quick=True,
        ) as theirs,
    ):
        yield ours, theirs


@pytest.fixture(scope="module")
def brokers(running: tuple[_Broker, _Broker]) -> tuple[str, str]:
    ours, theirs = running
    return ours.bootstrap, theirs.bootstrap


def fill(bootstrap: str, topic: str, now_ms: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"internal.segment.bytes": "1000", "retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    chance = random.Random(7)
    for number in range(RECORDS):
        # Older ones first, but not in order.
        age_ms = (RECORDS - number) * HOUR_MS // 10 + chance.randrange(HOUR_MS)
        value = b"." * chance.randrange(100, 600)
        producer.produce(topic, value, key=b"%d" % number, timestamp=now_ms - age_ms)
        producer.flush(60)


def set_policy(bootstrap: str, topic: str, policy: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in policy.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(60)


def bounds(bootstrap: str) -> dict[str, tuple[int, int]]:
    """Where each topic begins and ends."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = [TopicPartition(name, 0) for name in POLICIES]
    first = admin.list_offsets({at: OffsetSpec.earliest() for at in places})
    last = admin.list_offsets({at: OffsetSpec.latest() for at in places})
    return {at.topic: (first[at].result(60).offset, last[at].result(60).offset) for at in places}


def settled(bootstrap: str) -> dict[str, tuple[int, int]]:
    """Where each topic begins and ends when nothing has changed for some passes."""
    found = bounds(bootstrap)
    since = time.monotonic()
    while time.monotonic() - since < 2:
        time.sleep(0.2)
        if (now := bounds(bootstrap)) != found:
            found, since = now, time.monotonic()
    return found


@pytest.fixture(scope="module")
def kept(brokers: tuple[str, str]) -> list[dict[str, tuple[int, int]]]:
    """What each broker has kept of each topic, all of which it was given at once."""
    now_ms = int(time.time() * 1000)
    for bootstrap in brokers:
        for name, policy in POLICIES.items():
            fill(bootstrap, name, now_ms)
            set_policy(bootstrap, name, policy)
    return [settled(bootstrap) for bootstrap in brokers]


@pytest.mark.parametrize("name", POLICIES)
def test_both_keep_the_same_records(kept: list[dict[str, tuple[int, int]]], name: str) -> None:
    ours, theirs = (found[name] for found in kept)
    assert ours == theirs
    assert ours[1] == RECORDS
    assert (ours[0] > 0) == (name not in KEEPS_ALL)


NOW = int(time.time() * 1000)
YEAR_MS = 365 * 24 * HOUR_MS
LONG_MAX = 2**63 - 1
AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"


@dataclass(frozen=True)
class Sent:
    """A batch of records with these timestamps; `claims` is the maximum in its header."""

    timestamps: tuple[int, ...]
    claims: int | None = None
    codec: int = 0
    config: dict[str, str] = field(default_factory=dict)

    def batch(self) -> bytearray:
        records = [Record(0, timestamp, b"k", b"v") for timestamp in self.timestamps]
        data = encode_batch(records, codec=self.codec)
        if self.claims is not None:
            data[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = self.claims.to_bytes(8, signed=True)
            put_checksum(data)
        return data


SENT = {
    "none-as-librdkafka": Sent((-1, -1), claims=0),
    "none-as-librdkafka-gzip": Sent((-1, -1), claims=0, codec=1),
    "none": Sent((-1,)),
    "zero": Sent((0,)),
    "negative": Sent((-7, -5)),
    "negative-claims-zero": Sent((-7, -5), claims=0),
    "none-then-now": Sent((-1, NOW)),
    "none-then-now-claims-zero": Sent((-1, NOW), claims=0),
    "now-then-none": Sent((NOW, -1)),
    "now-claims-none": Sent((NOW, NOW + 5), claims=-1),
    "now-claims-none-lz4": Sent((NOW, NOW + 5), claims=-1, codec=3),
    "now-claims-less": Sent((NOW, NOW + 5), claims=NOW - 1),
    "one-is-new": Sent((NOW - YEAR_MS, NOW)),
    "old": Sent((NOW - YEAR_MS,)),
    "future": Sent((NOW + YEAR_MS, NOW), config={AFTER: str(LONG_MAX)}),
    "future-refused": Sent((NOW, NOW + YEAR_MS)),
    "none-then-future-refused": Sent((-1, NOW + YEAR_MS)),
    "future-then-none-refused": Sent((NOW + YEAR_MS, -1)),
    "old-after-new-refused": Sent((NOW, NOW - YEAR_MS), config={BEFORE: str(HOUR_MS)}),
    "none-where-old-is-refused": Sent((-1,), config={BEFORE: str(HOUR_MS)}),
    "negative-where-old-is-refused": Sent((NOW, -5), config={BEFORE: str(HOUR_MS)}),
    "append-time": Sent((-1, -1), config={"message.timestamp.type": "LogAppendTime"}),
}


@pytest.fixture(scope="module")
def answered(running: tuple[_Broker, _Broker]) -> list[dict[str, tuple[ErrorCode, int]]]:
    """What each broker answered to each batch, which it keeps for an hour by its timestamps."""
    found = []
    for broker in running:
        codes = {}
        for name, sent in SENT.items():
            topic = f"times-{name}"
            config = {"retention.ms": str(HOUR_MS), **sent.config}
            create_topic(broker.bootstrap, topic, config=config)
            with raw.RawClient(broker.bootstrap) as client:
                answer = client.ask(raw.produce(topic, sent.batch()))
            code, base = raw.produce_error(answer, topic)
            codes[name] = (ErrorCode(code), base)
        found.append(codes)
    return found


@pytest.mark.parametrize("name", SENT)
def test_both_answer_the_same_to_timestamps(
    answered: list[dict[str, tuple[ErrorCode, int]]], name: str
) -> None:
    ours, theirs = (codes[name] for codes in answered)
    assert ours == theirs
    assert (ours[0] is ErrorCode.INVALID_TIMESTAMP) == (
        "refused" in name and "none-where" not in name
    )


@pytest.fixture(scope="module")
def starts(
    brokers: tuple[str, str], answered: list[dict[str, tuple[ErrorCode, int]]]
) -> list[dict[str, int]]:
    """Where each topic begins after two passes of retention over all of them."""
    for bootstrap in brokers:
        for name in ("times-first-pass", "times-second-pass"):
            create_topic(bootstrap, name, config={"retention.ms": str(HOUR_MS)})
            with raw.RawClient(bootstrap) as client:
                client.ask(raw.produce(name, Sent((0,)).batch()))
            deadline = time.monotonic() + 120
            while earliest(bootstrap, name) == 0:
                assert time.monotonic() < deadline, "retention does not run"
                time.sleep(0.1)
    return [{name: earliest(bootstrap, f"times-{name}") for name in SENT} for bootstrap in brokers]


def earliest(bootstrap: str, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(topic, 0)
    return admin.list_offsets({place: OffsetSpec.earliest()})[place].result(60).offset


@pytest.mark.parametrize("name", SENT)
def test_both_keep_the_same_timestamps(starts: list[dict[str, int]], name: str) -> None:
    ours, theirs = (found[name] for found in starts)
    assert ours == theirs
    assert (ours > 0) == (name in ("zero", "old"))


KEPT = [name for name in SENT if "refused" not in name and name not in ("zero", "old")]


@pytest.mark.parametrize("name", [*KEPT, "none-where-old-is-refused"])
def test_both_store_the_same_timestamps_and_find_the_same_offsets(
    running: tuple[_Broker, _Broker], starts: list[dict[str, int]], name: str
) -> None:
    ours, theirs = (stored(broker, f"times-{name}") for broker in running)
    if name == "append-time":
        assert ours[0] == theirs[0] == -1
        assert ours[1] >= NOW
        assert theirs[1] >= NOW
    else:
        assert ours == theirs
        assert ours[1] == max(-1, *SENT[name].timestamps)
    found, expected = (by_time(broker.bootstrap, f"times-{name}") for broker in running)
    assert found == expected


def stored(broker: _Broker, topic: str) -> tuple[int, int]:
    """Base timestamp and maximum timestamp of the first batch on the disk."""
    data = (broker.partition_folder(topic) / f"{0:020}.log").read_bytes()
    header = read_header(data, 0)
    return header.base_timestamp, header.max_timestamp


def by_time(bootstrap: str, topic: str) -> list[int]:
    """The offsets that ListOffsets finds for the largest timestamp and for some others."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    place = TopicPartition(topic, 0)
    specs = [OffsetSpec.max_timestamp()]
    specs += [OffsetSpec.for_timestamp(time_ms) for time_ms in (0, 1, NOW - HOUR_MS, NOW, NOW + 3)]
    return [admin.list_offsets({place: spec})[place].result(60).offset for spec in specs]


def test_records_that_confluent_kafka_sends_without_a_timestamp_stay(
    running: tuple[_Broker, _Broker], brokers: tuple[str, str]
) -> None:
    for broker in running:
        topic = create_topic(broker.bootstrap, "times-confluent")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, b"v", timestamp=-1)
        producer.flush(60)
        assert stored(broker, topic) == (-1, -1)
