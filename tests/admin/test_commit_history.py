"""The lag of the past from `__consumer_offsets`, of our broker and of Apache Kafka."""

import struct
import time
import uuid

from headrace.admin.commit_history import CommitRecord, parse_commit, past_lag, read_commits
from headrace.admin.lag import LagHistory, PastLag, PastPoint
from headrace.types import TopicPartition
from tests.admin.conftest import CountingCluster, MakeTopic, commit, produce
from tests.admin.test_lag import MINUTE, view

SECOND = 1000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_commits_are_read_with_their_times_in_order(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(2), f"g-{uuid.uuid4().hex[:8]}"
    start_ms = now_ms()
    produce(bootstrap, topic, [start_ms] * 5)
    for offset in (1, 3, 3, 2):
        commit(bootstrap, group, {(topic, 0): offset, (topic, 1): 0})
    found = [
        each for each in read_commits(cluster, start_ms - SECOND, 10_000) if each.group == group
    ]
    first = [each for each in found if each.partition == TopicPartition(topic, 0)]
    assert [each.offset for each in first] == [1, 3, 3, 2]
    assert len(found) == 8
    stamps = [each.time_ms for each in first]
    assert stamps == sorted(stamps)
    assert start_ms - SECOND <= stamps[0] <= now_ms() + SECOND


def test_the_lag_of_the_past_is_known_from_the_first_commit_on(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(), f"g-{uuid.uuid4().hex[:8]}"
    start_ms = now_ms()
    produce(bootstrap, topic, [start_ms - 5 * MINUTE, start_ms - 3 * MINUTE, start_ms - MINUTE])
    commit(bootstrap, group, {(topic, 0): 1})
    later_ms = now_ms() + 4 * MINUTE
    found = {
        (each.group, each.topic): each
        for each in past_lag(cluster, later_ms, span_ms=20 * MINUTE, points=11)
    }
    past = found[group, topic]
    assert past.partition == 0
    # A point every two minutes; those before the commit are unknown.
    expected = [later_ms - 4 * MINUTE, later_ms - 2 * MINUTE, later_ms]
    assert [each.time_ms for each in past.points] == expected
    assert {(each.committed, each.end) for each in past.points} == {(1, 3)}
    assert [each.committing for each in past.points] == [True, False, False]


def test_the_number_of_records_is_bounded_and_the_newest_are_read(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(), f"g-{uuid.uuid4().hex[:8]}"
    start_ms = now_ms() - SECOND
    for _ in range(30):
        commit(bootstrap, group, {(topic, 0): 0})
    everything = [each for each in read_commits(cluster, start_ms, 10_000) if each.group == group]
    assert len(everything) == 30
    few = [each for each in read_commits(cluster, start_ms, 10) if each.group == group]
    assert 0 < len(few) < 30
    assert few == everything[-len(few) :]


def test_other_records_of_the_topic_are_no_commits() -> None:
    key = struct.pack(">hh1sh2si", 1, 1, b"g", 2, b"tt", 7)
    value = struct.pack(">hqi", 3, 42, 0)
    at = TopicPartition("tt", 7)
    assert parse_commit(key, value, 5) == CommitRecord("g", at, 42, 5)
    assert parse_commit(key, None, 5) == CommitRecord("g", at, None, 5)
    for other in (None, b"", b"\0", struct.pack(">h", 2) + key[2:], key[:-1]):
        assert parse_commit(other, value, 5) is None
    assert parse_commit(key, b"\0\3", 5) is None


def test_the_past_stands_before_what_was_observed_and_never_within_it() -> None:
    history = LagHistory()
    history.observe([view(50, 80)], 10 * MINUTE)
    points = tuple(PastPoint(minute * MINUTE, minute, 80, True) for minute in range(15))
    history.add_past([PastLag("g", "t", 0, points), PastLag("other", "t", 0, points)])
    found = history.points("g", "t", 0)
    assert [each.time_ms for each in found] == [minute * MINUTE for minute in range(11)]
    assert [each.committed for each in found] == [*range(10), 50]
    assert len(history.points("other", "t", 0)) == 15
    assert history.status(view(50, 80), 10 * MINUTE).complete
