"""Groups with their lag: against our broker and Apache Kafka, and the lag of a partition alone."""

import time
import uuid

import pytest
from confluent_kafka import Producer

from headrace.admin.errors import NotFound
from headrace.admin.group_view import (
    PartitionLag,
    TotalLag,
    existing_groups,
    total_lag,
    view_groups,
)
from headrace.admin.record_times import Gap, RecordTime, RecordTimes
from tests.admin.conftest import CountingCluster, MakeTopic, commit, produce
from tests.support.stores import eventually

DAY_2024 = 1_704_067_200_000


def test_the_lag_in_seconds_is_the_age_of_the_first_record_not_read(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(3), f"g-{uuid.uuid4().hex[:8]}"
    now_ms = time.time_ns() // 1_000_000
    produce(bootstrap, topic, [now_ms - 90_000, now_ms - 60_000, now_ms - 1000], partition=0)
    produce(bootstrap, topic, [now_ms - 1000], partition=1)
    commit(bootstrap, group, {(topic, 0): 1, (topic, 1): 1})
    found = existing_groups(cluster, [group])
    (view,) = view_groups(cluster, found, RecordTimes())
    behind, done = view.partitions
    assert (behind.committed, behind.end, behind.lag) == (1, 3, 2)
    assert behind.delay_s is not None
    assert 60 <= behind.delay_s < 3600
    assert behind.next_record == RecordTime(now_ms - 60_000)
    assert (done.lag, done.delay_s) == (0, 0.0)
    assert view.delay_s == behind.delay_s


def test_groups_at_different_offsets_of_one_partition_each_have_their_delay(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [DAY_2024 + 1000 * number for number in range(5)])
    names = [f"g{number}-{uuid.uuid4().hex[:8]}" for number in range(3)]
    for number, name in enumerate(names):
        commit(bootstrap, name, {(topic, 0): number})
    views = view_groups(cluster, existing_groups(cluster, names), RecordTimes())
    times = [view.partitions[0].next_record for view in views]
    assert times == [RecordTime(DAY_2024 + 1000 * number) for number in range(3)]


def test_many_groups_and_topics_need_few_requests(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topics = [make_topic() for _ in range(15)]
    names = [f"g{number}-{uuid.uuid4().hex[:8]}" for number in range(15)]
    for topic, name in zip(topics, names, strict=True):
        produce(bootstrap, topic, [DAY_2024])
        commit(bootstrap, name, {(topic, 0): 0})
    found = existing_groups(cluster, names)
    before = cluster.requests
    views = view_groups(cluster, found, RecordTimes())
    assert [view.lag for view in views] == [1] * 15
    assert cluster.requests - before <= 6


def test_a_marker_after_the_last_record_is_no_delay(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(), f"g-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=0)
    producer.commit_transaction(60)
    commit(bootstrap, group, {(topic, 0): 1})
    groups = existing_groups(cluster, [group])

    def row() -> PartitionLag:
        return view_groups(cluster, groups, RecordTimes())[0].partitions[0]

    # The answer to a commit comes before its markers are written.
    eventually(lambda: row().end == 2, "the marker is written")
    found = row()
    assert (found.lag, found.delay_s, found.caught_up) == (1, 0.0, True)
    assert found.delay_gap is Gap.ONLY_MARKERS


def test_a_missing_group_is_reported_with_similar_names(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    group = f"billing-{uuid.uuid4().hex[:8]}"
    commit(bootstrap, group, {(make_topic(), 0): 0})
    with pytest.raises(NotFound) as caught:
        existing_groups(cluster, [group + "x"])
    assert group in caught.value.hint


def test_a_sum_of_lags_says_what_it_does_not_contain() -> None:
    known = PartitionLag("a", 0, 3, 10, None)
    uncommitted, endless = PartitionLag("a", 1, None, 10, None), PartitionLag("a", 2, 3, None, None)
    assert total_lag([]) == TotalLag(0)
    assert total_lag([known]) == TotalLag(7)
    assert total_lag([uncommitted]) == TotalLag(None, "no committed offset in 1 of 1 partition")
    gaps = "no committed offset in 1 of 3 partitions; no end offset of 1 of 3 partitions"
    assert total_lag([known, uncommitted, endless]) == TotalLag(7, gaps)
    assert total_lag([], "not authorized") == TotalLag(None, "not authorized")


def test_lag_is_unknown_without_an_offset_or_an_end_and_never_negative() -> None:
    assert PartitionLag("a", 0, 3, 10, None).lag == 7
    assert PartitionLag("a", 0, None, 10, None).lag is None
    assert PartitionLag("a", 0, 3, None, None).lag is None
    # The records behind the offset may have been deleted with their topic.
    assert PartitionLag("a", 0, 3, 0, None).lag == 0
