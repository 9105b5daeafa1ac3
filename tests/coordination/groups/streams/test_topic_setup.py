"""The topics of a topology: partition counts, internal topics to create, and problems."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.groups.streams.tasks import TaskId
from headrace.coordination.groups.streams.topic_setup import (
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    ConfiguredTopology,
    configure,
)
from headrace.coordination.groups.streams.topology import (
    CopartitionGroup,
    InternalTopicSpec,
    StreamsTopology,
    Subtopology,
)
from headrace.errors import ErrorCode, KafkaError

COMPACT = (("cleanup.policy", "compact"),)
STORE = InternalTopicSpec("app-store-changelog", configs=COMPACT)
SPLIT = Subtopology("0", ("lines",), repartition_sink_topics=("app-words-repartition",))
WORDS = InternalTopicSpec("app-words-repartition")
COUNT = Subtopology("1", changelog_topics=(STORE,), repartition_source_topics=(WORDS,))
WORD_COUNT = StreamsTopology(0, (SPLIT, COUNT))


def _configure(*subtopologies: Subtopology, **topics: int) -> ConfiguredTopology:
    return configure(StreamsTopology(0, subtopologies), _named(topics).get)


def _named(topics: Mapping[str, int]) -> Mapping[str, int]:
    return {name.replace("_", "-"): count for name, count in topics.items()}


def _counts(found: ConfiguredTopology) -> dict[str, int]:
    return {topic.name: topic.partitions for topic in found.missing}


def _status(found: ConfiguredTopology) -> tuple[int, str]:
    assert found.problem is not None
    return found.problem.code, found.problem.detail


def test_internal_topics_get_the_partitions_of_the_topics_that_feed_them() -> None:
    found = configure(WORD_COUNT, {"lines": 5}.get)
    assert _counts(found) == {"app-words-repartition": 5, "app-store-changelog": 5}
    assert {topic.name: topic.configs for topic in found.missing}[STORE.name] == COMPACT
    code, detail = _status(found)
    assert code == MISSING_INTERNAL_TOPICS
    assert detail == "Internal topics are missing: app-store-changelog, app-words-repartition"


def test_a_topology_whose_topics_exist_is_ready() -> None:
    topics = {"lines": 5, WORDS.name: 5, STORE.name: 5}
    found = configure(WORD_COUNT, topics.get)
    assert found.is_ready
    assert not found.missing
    assert [(one.task_count, one.is_stateful) for one in found.subtopologies.values()] == [
        (5, False),
        (5, True),
    ]


def test_missing_source_topics_are_named_and_nothing_is_created() -> None:
    found = _configure(Subtopology("0", ("d", "b", "c", "a")))
    assert _status(found) == (
        MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 1 additional topics are missing.",
    )
    assert not found.missing


def test_an_existing_internal_topic_with_another_count_is_a_problem() -> None:
    topics = {"lines": 5, WORDS.name: 5, STORE.name: 4}
    code, detail = _status(configure(WORD_COUNT, topics.get))
    assert code == INCORRECTLY_PARTITIONED_TOPICS
    assert "topic app-store-changelog has different number of partitions: expected 5" in detail


def test_sources_of_a_join_must_have_equal_counts() -> None:
    join = Subtopology("0", ("left", "right"), copartition_groups=(CopartitionGroup((0, 1)),))
    assert _configure(join, left=2, right=2).is_ready
    code, detail = _status(_configure(join, left=2, right=3))
    assert code == INCORRECTLY_PARTITIONED_TOPICS
    assert "{left=2, right=3}" in detail


def test_merged_sources_may_differ_and_there_is_a_task_for_each_partition_of_the_largest() -> None:
    found = _configure(Subtopology("0", ("left", "right")), left=2, right=3)
    assert found.subtopologies["0"].task_count == 3


def test_a_repartition_topic_takes_the_count_of_the_topic_that_it_is_joined_with() -> None:
    join = Subtopology(
        "1",
        ("table",),
        repartition_source_topics=(InternalTopicSpec("keyed"),),
        copartition_groups=(CopartitionGroup((0,), (), (0,)),),
    )
    first = Subtopology("0", ("lines",), repartition_sink_topics=("keyed",))
    assert _counts(_configure(first, join, lines=8, table=3)) == {"keyed": 3}


def test_repartition_topics_of_a_join_take_the_largest_count_unless_one_is_fixed() -> None:
    def join(fixed: int) -> tuple[Subtopology, ...]:
        both = (InternalTopicSpec("one", fixed), InternalTopicSpec("other"))
        return (
            Subtopology("0", ("a",), repartition_sink_topics=("one",)),
            Subtopology("1", ("b",), repartition_sink_topics=("other",)),
            Subtopology(
                "2",
                repartition_source_topics=both,
                copartition_groups=(CopartitionGroup((), (), (0, 1)),),
            ),
        )

    assert _counts(_configure(*join(0), a=2, b=6)) == {"one": 6, "other": 6}
    assert _counts(_configure(*join(4), a=2, b=6)) == {"one": 4, "other": 4}


def test_a_fixed_count_that_does_not_fit_the_joined_topic_is_a_problem() -> None:
    join = Subtopology(
        "1",
        ("table",),
        repartition_source_topics=(InternalTopicSpec("keyed", 4),),
        copartition_groups=(CopartitionGroup((0,), (), (0,)),),
    )
    first = Subtopology("0", ("lines",), repartition_sink_topics=("keyed",))
    code, detail = _status(_configure(first, join, lines=8, table=3))
    assert code == INCORRECTLY_PARTITIONED_TOPICS
    assert "[4] of repartition topic [keyed]" in detail


@pytest.mark.parametrize(
    "subtopologies",
    [
        (Subtopology("0"),),
        (Subtopology("0", repartition_source_topics=(WORDS,)),),
        (
            Subtopology(
                "0",
                repartition_sink_topics=(WORDS.name,),
                repartition_source_topics=(WORDS,),
            ),
        ),
        (Subtopology("0", ("lines",), copartition_groups=(CopartitionGroup((7,)),)),),
    ],
    ids=["no-sources", "never-written", "loop", "no-such-topic"],
)
def test_a_topology_that_has_no_partition_counts_is_refused(
    subtopologies: tuple[Subtopology, ...],
) -> None:
    with pytest.raises(KafkaError) as caught:
        _configure(*subtopologies, lines=1)
    assert caught.value.code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_tasks_that_do_not_exist_are_refused() -> None:
    found = _configure(Subtopology("0", ("lines",)), lines=2)
    found.check_tasks([TaskId("0", 1)])
    for task in (TaskId("0", 2), TaskId("0", -1), TaskId("1", 0)):
        with pytest.raises(KafkaError) as caught:
            found.check_tasks([task])
        assert caught.value.code == ErrorCode.INVALID_REQUEST


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 4))
def test_a_topology_is_ready_once_the_missing_topics_are_created(
    counts: list[int], depth: int
) -> None:
    topics = {f"source-{at}": count for at, count in enumerate(counts)}
    chain = [Subtopology("0", tuple(topics), repartition_sink_topics=("step-1",))]
    chain += [
        Subtopology(
            str(at),
            changelog_topics=(InternalTopicSpec(f"store-{at}"),),
            repartition_sink_topics=(f"step-{at + 1}",) if at < depth else (),
            repartition_source_topics=(InternalTopicSpec(f"step-{at}"),),
        )
        for at in range(1, depth + 1)
    ]
    topology = StreamsTopology(0, tuple(reversed(chain)))
    found = configure(topology, topics.get)
    assert set(_counts(found).values()) == {max(counts)}
    assert configure(topology, {**topics, **_counts(found)}.get).is_ready
