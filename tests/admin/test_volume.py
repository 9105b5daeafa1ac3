"""The volume of a topic over time, from our broker and from Apache Kafka."""

import pytest

from headrace.admin.errors import InvalidRequest, NotFound
from headrace.admin.volume import topic_volume
from tests.admin.conftest import CountingCluster, MakeTopic, produce

T = 1_704_067_200_000


def test_records_are_counted_where_their_times_fall(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    produce(bootstrap, topic, [T, T + 5, T + 12, T + 39], partition=0)
    produce(bootstrap, topic, [T + 15, T + 20, T + 21], partition=1)
    found = topic_volume(cluster, topic, T, T + 40, 5)
    assert found.times_ms == (T, T + 10, T + 20, T + 30, T + 40)
    assert found.offsets == {0: (0, 2, 3, 3, 4), 1: (0, 0, 1, 3, 3)}
    assert found.records == (2, 2, 2, 1)
    assert found.missing == ()


def test_records_before_and_after_the_span_are_not_counted(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [T - 100, T, T + 10, T + 100])
    found = topic_volume(cluster, topic, T, T + 20, 3)
    assert found.offsets == {0: (1, 2, 3)}
    assert found.records == (1, 1)


def test_an_empty_topic_and_a_quiet_one_need_only_the_ends_of_the_span(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(20)
    produce(bootstrap, topic, [T - 100])
    before = cluster.requests
    found = topic_volume(cluster, topic, T, T + 1000, 200)
    assert sum(found.records) == 0
    assert len(found.offsets) == 20
    assert cluster.requests - before <= 8


def test_every_point_is_one_request_for_all_partitions_of_a_leader(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(8)
    for index in range(8):
        produce(bootstrap, topic, [T + step for step in range(0, 100, 5)], partition=index)
    before = cluster.requests
    found = topic_volume(cluster, topic, T, T + 100, 21)
    assert found.records == (8,) * 20
    # A request for metadata and one for offsets a point.
    assert cluster.requests - before <= 2 * 23


def test_what_cannot_be_divided_is_an_error(
    cluster: CountingCluster, make_topic: MakeTopic
) -> None:
    with pytest.raises(InvalidRequest):
        topic_volume(cluster, make_topic(), T, T, 10)
    with pytest.raises(InvalidRequest):
        topic_volume(cluster, make_topic(), T, T + 1, 1)
    with pytest.raises(NotFound):
        topic_volume(cluster, "no-such-topic", T, T + 1, 2)
