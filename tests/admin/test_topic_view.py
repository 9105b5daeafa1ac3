"""Topics as they are now, on our broker and on Apache Kafka: few requests for many topics."""

import uuid

import pytest

from headrace.admin import group_reset, positions
from headrace.admin.errors import NotFound
from headrace.admin.topic_sizes import topic_sizes
from headrace.admin.topic_view import view_topics
from headrace.admin.topics import existing_topics
from tests.admin.conftest import CountingCluster, MakeTopic, commit, produce

T = 1_704_067_200_000
TOPICS = 12


@pytest.fixture
def topics(bootstrap: str, make_topic: MakeTopic) -> list[str]:
    """Topics of two partitions that keep a day, with three records in each."""
    made = [make_topic(2, retention_ms="86400000") for _ in range(TOPICS)]
    for name in made:
        produce(bootstrap, name, [T, T + 1000, T + 2000])
    return made


def test_many_topics_are_described_with_few_requests(
    cluster: CountingCluster, topics: list[str]
) -> None:
    views = view_topics(cluster, topics)
    assert [view.name for view in views] == topics
    for view in views:
        first, second = view.partitions
        assert (first.begin, first.end, second.end) == (0, 3, 0)
        assert first.size_bytes
        assert view.configs["retention.ms"] == "86400000"
    assert cluster.requests <= 8


def test_many_topics_are_measured_with_few_requests(
    cluster: CountingCluster, topics: list[str]
) -> None:
    progress: list[tuple[int, int]] = []
    sizes = topic_sizes(cluster, topics, lambda done, total: progress.append((done, total)))
    assert [each.topic for each in sizes] == topics
    for each in sizes:
        assert (each.records, each.oldest_ms) == (3, T)
        assert each.next is not None
        assert each.next.due_ms == T + 86_400_000
    assert progress == [(TOPICS, TOPICS)]
    assert cluster.requests <= 10


def test_a_reset_of_many_topics_is_planned_with_few_requests(
    cluster: CountingCluster, bootstrap: str, topics: list[str]
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    commit(bootstrap, group, {(name, 0): 3 for name in topics})
    before = cluster.requests
    plan = group_reset.plan_reset(cluster, group, positions.Since(T + 1), None)
    changes = {(each.before, each.after, each.difference) for each in plan.changes}
    assert (len(plan.changes), changes) == (TOPICS, {(3, 1, -2)})
    assert cluster.requests - before <= 12
    shifted = group_reset.plan_reset(cluster, group, group_reset.Shift(-1), None)
    assert {each.after for each in shifted.changes} == {2}
    group_reset.apply_reset(cluster, plan)
    found = group_reset.plan_reset(cluster, group, positions.Since(T + 1), None)
    assert found.different == ()
    assert {each.before for each in found.changes} == {1}


def test_a_missing_topic_is_reported_with_similar_names(
    cluster: CountingCluster, make_topic: MakeTopic
) -> None:
    name = make_topic()
    with pytest.raises(NotFound) as caught:
        existing_topics(cluster, [name[:-1]])
    assert name in caught.value.hint
