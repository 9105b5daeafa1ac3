"""The assignors: each partition has one owner, members have equal shares, few partitions move."""

import uuid
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.consumer_records import Assignment
from headrace.coordination.groups.assignors import ASSIGNORS, Reader, assign_range, assign_uniform

TOPICS = [uuid.uuid5(uuid.NAMESPACE_OID, str(number)) for number in range(5)]
A, B, C = TOPICS[:3]


def _readers(*names: str, topics: set[uuid.UUID], before: Mapping[str, Assignment]) -> list[Reader]:
    return [Reader(one, None, frozenset(topics), before.get(one, {})) for one in names]


def _sizes(found: Mapping[str, Assignment]) -> dict[str, int]:
    return {member: sum(map(len, target.values())) for member, target in found.items()}


def _moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """How many partitions somebody lost."""
    return sum(
        len(held - after.get(member, {}).get(topic, frozenset()))
        for member, target in before.items()
        for topic, held in target.items()
    )


def test_uniform_takes_no_more_than_a_newcomer_needs() -> None:
    first = assign_uniform(_readers("a", "b", topics={A}, before={}), {A: 6})
    second = assign_uniform(_readers("a", "b", "c", topics={A}, before=first), {A: 6})
    assert _sizes(second) == {"a": 2, "b": 2, "c": 2}
    assert _moved(first, second) == 2


def test_uniform_gives_what_a_leaver_had_to_those_who_have_least() -> None:
    first = assign_uniform(_readers("a", "b", "c", topics={A}, before={}), {A: 7})
    second = assign_uniform(_readers("b", "c", topics={A}, before=first), {A: 7})
    assert sorted(_sizes(second).values()) == [3, 4]
    del first["a"]
    assert _moved(first, second) == 0


def test_uniform_spreads_each_topic_when_one_member_had_them_all() -> None:
    first = assign_uniform(_readers("a", topics={A, B}, before={}), {A: 4, B: 4})
    second = assign_uniform(_readers("a", "b", topics={A, B}, before=first), {A: 4, B: 4})
    assert {topic: len(held) for topic, held in second["a"].items()} == {A: 2, B: 2}


def test_uniform_with_other_subscriptions_evens_out_over_a_third_member() -> None:
    before: dict[str, Assignment] = {"b": {A: frozenset(range(4)), B: frozenset(range(2))}}
    readers = [
        Reader("a", None, frozenset({A}), {}),
        Reader("b", None, frozenset({A, B}), before["b"]),
        Reader("c", None, frozenset({B}), {}),
    ]
    assert _sizes(assign_uniform(readers, {A: 4, B: 2})) == {"a": 2, "b": 2, "c": 2}


def test_range_gives_the_same_partitions_of_each_topic_to_the_same_member() -> None:
    found = assign_range(_readers("b", "a", topics={A, B}, before={}), {A: 3, B: 3, C: 9})
    first, second = frozenset({0, 1}), frozenset({2})
    assert found == {"a": {A: first, B: first}, "b": {A: second, B: second}}


def test_range_identifies_static_members_by_their_instance_id() -> None:
    topics = frozenset({A})
    readers = [Reader("x", None, topics, {}), Reader("z", "two", topics, {})]
    again = [Reader("x", None, topics, {}), Reader("a-new-id", "two", topics, {})]
    assert assign_range(readers, {A: 2})["z"] == assign_range(again, {A: 2})["a-new-id"]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_empty_groups_and_topics_can_be_assigned(name: str) -> None:
    assert ASSIGNORS[name]([], {A: 3}) == {}
    assert ASSIGNORS[name](_readers("a", "b", topics={A}, before={}), {}) == {"a": {}, "b": {}}
    crowd = ASSIGNORS[name](_readers("a", "b", "c", topics={A}, before={}), {A: 1})
    assert sorted(_sizes(crowd).values()) == [0, 0, 1]


_COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
_SUBSCRIPTIONS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.frozensets(st.sampled_from(TOPICS)), min_size=1
)


@given(st.sampled_from(sorted(ASSIGNORS)), _COUNTS, _SUBSCRIPTIONS, _SUBSCRIPTIONS)
def test_every_subscribed_partition_has_one_owner_who_subscribes(
    name: str,
    counts: dict[uuid.UUID, int],
    first: dict[str, frozenset[uuid.UUID]],
    second: dict[str, frozenset[uuid.UUID]],
) -> None:
    found: dict[str, Assignment] = {}
    for subscriptions in (first, second, first):
        readers = [
            Reader(member, None, topics, found.get(member, {}))
            for member, topics in subscriptions.items()
        ]
        found = ASSIGNORS[name](readers, counts)
        given_out = [
            (topic, partition)
            for target in found.values()
            for topic, held in target.items()
            for partition in held
        ]
        wanted = frozenset().union(*subscriptions.values()) & counts.keys()
        assert len(given_out) == len(set(given_out))
        assert set(given_out) == {(topic, n) for topic in wanted for n in range(counts[topic])}
        assert all(set(found[one]) <= topics for one, topics in subscriptions.items())


@given(_COUNTS, st.lists(st.sets(st.sampled_from("abcdefgh"), min_size=1), min_size=1))
def test_uniform_is_even_and_a_second_look_changes_nothing(
    counts: dict[uuid.UUID, int], generations: list[set[str]]
) -> None:
    found: dict[str, Assignment] = {}
    for members in generations:
        found = assign_uniform(_readers(*sorted(members), topics=set(counts), before=found), counts)
        sizes = _sizes(found).values()
        assert max(sizes) - min(sizes) <= 1
    again = assign_uniform(
        _readers(*sorted(found, reverse=True), topics=set(counts), before=found), counts
    )
    assert again == found


@given(_COUNTS, _SUBSCRIPTIONS)
def test_uniform_leaves_no_pair_that_could_be_evened_out(
    counts: dict[uuid.UUID, int], subscriptions: dict[str, frozenset[uuid.UUID]]
) -> None:
    readers = [Reader(member, None, topics, {}) for member, topics in subscriptions.items()]
    found = assign_uniform(readers, counts)
    sizes = _sizes(found)
    for giver, target in found.items():
        for topic in target:
            least = min(sizes[one] for one, topics in subscriptions.items() if topic in topics)
            assert sizes[giver] - least <= 1
