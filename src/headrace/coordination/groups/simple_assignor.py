"""The assignor of share groups, which Kafka calls `simple`.

In a share group several members may have the same partition. Every partition gets at least one
member and every member at least one partition; both are spread evenly. Members keep what they have
as far as that allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

from headrace.coordination.consumer_records import NOTHING, Assignment

_Item: TypeAlias = tuple[UUID, int]


def simple(
    subscriptions: Mapping[str, frozenset[UUID]],
    partitions: Assignment,
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """The partitions of each member, given its topics and what it has now."""
    alike: dict[frozenset[UUID], list[str]] = defaultdict(list)
    for member, topics in subscriptions.items():
        alike[topics].append(member)
    targets: dict[str, Assignment] = {}
    for topics, members in alike.items():
        items = sorted(
            (topic, index) for topic in topics for index in partitions.get(topic, frozenset())
        )
        held = {
            member: [
                (topic, index)
                for topic, indexes in current.get(member, NOTHING).items()
                for index in indexes
            ]
            for member in members
        }
        for member, found in _spread(sorted(members), items, held).items():
            targets[member] = _grouped(found)
    return targets


def _spread(
    members: Sequence[str], items: Sequence[_Item], held: Mapping[str, Sequence[_Item]]
) -> dict[str, list[_Item]]:
    """Divide the larger side among the smaller one: partitions among members, or the reverse."""
    out: dict[str, list[_Item]] = {member: [] for member in members}
    if not items:
        return out
    if len(members) <= len(items):
        wanted = {item: [] for item in items}  # type: dict[_Item, list[str]]
        for member, mine in held.items():
            for item in mine:
                if item in wanted:
                    wanted[item].append(member)
        for item, member in _divide(items, members, wanted).items():
            out[member].append(item)
        return out
    there = set(items)
    keep = {member: [item for item in held[member] if item in there] for member in members}
    for member, item in _divide(members, items, keep).items():
        out[member].append(item)
    return out


def _divide(many: Sequence, few: Sequence, wishes: Mapping) -> dict:  # type: ignore[type-arg]
    """One of `few` for each of `many`, evenly; a wish is granted while its quota lasts."""
    most, rest = divmod(len(many), len(few))
    loads = dict.fromkeys(few, 0)
    chosen = {}
    for one in many:
        for wish in wishes.get(one, ()):
            room = loads[wish] < most or (loads[wish] == most and rest > 0)
            if room:
                rest -= loads[wish] == most
                loads[wish] += 1
                chosen[one] = wish
                break
    free = iter(_room(few, loads, most, rest))
    for one in many:
        if one not in chosen:
            chosen[one] = next(free)
    return chosen


def _room(few: Sequence, loads: Mapping, most: int, rest: int) -> Iterable:  # type: ignore[type-arg]
    """The places that are left, each as often as it is free."""
    for one in few:
        for _ in range(loads[one], most):
            yield one
    for one in few:
        if rest > 0 and loads[one] <= most:
            rest -= 1
            yield one


def _grouped(items: Iterable[_Item]) -> Assignment:
    found: dict[UUID, set[int]] = defaultdict(set)
    for topic, index in items:
        found[topic].add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}
