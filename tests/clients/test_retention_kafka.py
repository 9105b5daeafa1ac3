"""The same records under the same settings: Headrace and Apache Kafka keep the same of them."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

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

from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker

pytestmark = [pytest.mark.java, pytest.mark.slow]

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
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
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
        yield ours.bootstrap, theirs.bootstrap


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
