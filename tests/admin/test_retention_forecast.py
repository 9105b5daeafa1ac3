"""When groups lose unread records: from our broker, from Apache Kafka, and from values alone."""

import time
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient

from headrace.admin.group_view import existing_groups, view_groups
from headrace.admin.record_times import Gap, RecordTime, RecordTimes
from headrace.admin.retention_forecast import (
    RATE_SPAN_MS,
    PartitionFacts,
    RetentionForecast,
    forecast_partition,
    retention_forecast,
)
from headrace.client.offsets import LATEST, list_offsets
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from tests.admin.conftest import CountingCluster, MakeTopic, commit, produce
from tests.support.stores import eventually

HOUR = 3_600_000
NOW = 1_704_067_200_000


def forecast(cluster: CountingCluster, *groups: str) -> tuple[RetentionForecast, ...]:
    views = view_groups(cluster, existing_groups(cluster, groups))
    return retention_forecast(cluster, views, RecordTimes(), time.time_ns() // 1_000_000).rows


def test_the_group_with_the_oldest_unread_record_comes_first(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms=str(24 * HOUR))
    now_ms = time.time_ns() // 1_000_000
    produce(bootstrap, topic, [now_ms - 5 * HOUR, now_ms - 2 * HOUR, now_ms])
    slow, fast, done = (f"{word}-{uuid.uuid4().hex[:8]}" for word in ("slow", "fast", "done"))
    for name, offset in ((fast, 1), (slow, 0), (done, 3)):
        commit(bootstrap, name, {(topic, 0): offset})
    first, second = forecast(cluster, fast, slow, done)
    assert (first.group, first.unread, first.limit) == (slow, 3, "retention.ms")
    assert (second.group, second.unread, second.estimated) == (fast, 2, False)
    assert first.next_record == RecordTime(now_ms - 5 * HOUR)
    assert first.left_ms is not None
    assert second.left_ms is not None
    assert 18 * HOUR < first.left_ms <= 19 * HOUR
    assert abs(second.left_ms - first.left_ms - 3 * HOUR) <= 1


def test_records_that_are_gone_are_counted_as_lost(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(2, retention_ms="-1"), f"g-{uuid.uuid4().hex[:8]}"
    produce(bootstrap, topic, [NOW] * 5)
    commit(bootstrap, group, {(topic, 0): 1, (topic, 1): 0})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([LibraryPartition(topic, 0, 3)]).values():
        deleted.result(60)
    (found,) = forecast(cluster, group)
    assert (found.lost, found.unread, found.left_ms, found.limit) == (2, 2, None, None)
    assert found.next_record == RecordTime(NOW)


def test_a_transaction_marker_is_nothing_to_lose(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(), f"g-{uuid.uuid4().hex[:8]}"
    at = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    producer.commit_transaction(60)
    eventually(lambda: list_offsets(cluster, {at: LATEST}) == {at: 2}, "the marker is written")
    commit(bootstrap, group, {at: 1})
    assert forecast(cluster, group) == ()
    commit(bootstrap, group, {at: 0})
    (found,) = forecast(cluster, group)
    assert found.unread == 2


def test_many_partitions_need_few_requests(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(40), f"g-{uuid.uuid4().hex[:8]}"
    for index in range(40):
        produce(bootstrap, topic, [NOW], partition=index)
    commit(bootstrap, group, {(topic, index): 0 for index in range(40)})
    views = view_groups(cluster, existing_groups(cluster, [group]))
    before = cluster.requests
    found = retention_forecast(cluster, views, RecordTimes(), NOW)
    assert len(found.rows) == 40
    assert found.unknown == ()
    assert cluster.requests - before <= 12


DELETE = frozenset({"delete"})
UNREAD = RetentionForecast("g", "t", 0, 100, 400, 0, RecordTime(NOW - 2 * HOUR))
# A thousand records of 100 bytes, of which 100 came in the last hour.
HUNDRED_AN_HOUR = PartitionFacts(0, 1000, 100_000, 900, LogSettings())


def facts(**settings: object) -> PartitionFacts:
    merged = {"cleanup_policy": DELETE, "retention_ms": -1, **settings}
    found = HUNDRED_AN_HOUR
    return PartitionFacts(
        found.begin,
        found.end,
        found.size_bytes,
        found.hour_ago,
        LogSettings(**merged),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("settings", "limit", "left_ms", "estimated"),
    [
        ({"retention_ms": 3 * HOUR}, "retention.ms", HOUR, False),
        ({"retention_ms": HOUR}, "retention.ms", 0, False),
        # 400 of 500 records that fit are unread: a hundred more take an hour.
        ({"retention_bytes": 50_000}, "retention.bytes", RATE_SPAN_MS, True),
        ({"retention_bytes": 30_000}, "retention.bytes", 0, True),
        ({"retention_messages": 600}, "retention.messages", 2 * RATE_SPAN_MS, True),
        ({"retention_ms": 4 * HOUR, "retention_bytes": 50_000}, "retention.bytes", HOUR, True),
        ({}, None, None, False),
        ({"retention_ms": HOUR, "cleanup_policy": frozenset({"compact"})}, None, None, False),
    ],
)
def test_the_setting_that_deletes_first_counts(
    settings: dict[str, object], limit: str | None, left_ms: int | None, estimated: bool
) -> None:
    found = forecast_partition(UNREAD, facts(**settings), NOW)
    assert (found.limit, found.left_ms, found.estimated) == (limit, left_ms, estimated)


def test_an_unknown_time_is_not_a_time() -> None:
    unknown = RetentionForecast("g", "t", 0, 100, 400, 0, RecordTime(None, Gap.MARKER))
    found = forecast_partition(unknown, facts(retention_ms=HOUR), NOW)
    assert (found.limit, found.left_ms) == ("retention.ms", None)


def test_a_group_that_the_topic_holds_records_for_is_marked() -> None:
    held = facts(retention_ms=HOUR, retention_hold_groups=frozenset({"g"}))
    assert forecast_partition(UNREAD, held, NOW).held
    assert not forecast_partition(UNREAD, facts(retention_ms=HOUR), NOW).held
