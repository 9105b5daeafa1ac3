"""The assignor of share groups: everything has an owner, evenly, and nothing moves needlessly."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.consumer_records import Assignment
from headrace.coordination.groups.simple_assignor import simple

TOPIC = uuid.UUID(int=1)


def assigned(members: int, partitions: int, current: dict[str, Assignment]) -> dict[str, set[int]]:
    names = {f"member-{number}": frozenset({TOPIC}) for number in range(members)}
    targets = simple(names, {TOPIC: frozenset(range(partitions))}, current)
    return {name: set(target.get(TOPIC, ())) for name, target in targets.items()}


@given(st.integers(1, 12), st.integers(1, 12))
def test_partitions_and_members_are_spread_evenly(members: int, partitions: int) -> None:
    found = assigned(members, partitions, {})
    sizes = [len(owned) for owned in found.values()]
    shares = [sum(index in owned for owned in found.values()) for index in range(partitions)]
    assert min(sizes) >= 1
    assert min(shares) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 8), st.integers(1, 8))
def test_nothing_moves_without_a_reason(members: int, partitions: int) -> None:
    before = assigned(members, partitions, {})
    current: dict[str, Assignment] = {
        name: {TOPIC: frozenset(owned)} for name, owned in before.items()
    }
    assert assigned(members, partitions, current) == before


def test_a_member_without_topics_gets_nothing() -> None:
    other = uuid.UUID(int=2)
    targets = simple(
        {"a": frozenset({TOPIC}), "b": frozenset({other})}, {TOPIC: frozenset({0, 1})}, {}
    )
    assert targets == {"a": {TOPIC: frozenset({0, 1})}, "b": {}}
