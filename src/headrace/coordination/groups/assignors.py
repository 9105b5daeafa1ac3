"""The server-side assignors of consumer groups.

`uniform` gives each member the same number of partitions, plus or minus one, and moves as few as
possible. `range` gives each member neighbouring partitions of each topic, the same ones in all
topics that the same members read, so that one member gets the records with the same key.

An assignor is a function of the members, their subscriptions and their previous targets.
It is deterministic: the same input gives the same assignment on every broker.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import cycle
from typing import TypeAlias
from uuid import UUID

from headrace.coordination.consumer_records import Assignment

_Draft: TypeAlias = dict[UUID, set[int]]

MAX_ROUNDS = 16
"""How often the uniform assignor balances all topics if members read different ones."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A member as an assignor sees it."""

    id: str
    instance_id: str | None
    topics: frozenset[UUID]
    target: Assignment
    """Its previous target assignment."""


Assignor: TypeAlias = Callable[[Sequence[Reader], Mapping[UUID, int]], dict[str, Assignment]]
"""From the members and the number of partitions of each topic to a target for each member."""


# ------------------------------------------------------------------------------------ range


def assign_range(readers: Sequence[Reader], counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Neighbouring partitions of each topic; static members first, by name, then the others."""
    ordered = sorted(readers, key=_rank)
    found: dict[str, dict[UUID, frozenset[int]]] = {reader.id: {} for reader in ordered}
    for topic_id, count in counts.items():
        subscribers = [reader for reader in ordered if topic_id in reader.topics]
        if not subscribers:
            continue
        quota, extra = divmod(count, len(subscribers))
        start = 0
        for number, reader in enumerate(subscribers):
            end = start + quota + (number < extra)
            if start == end:
                break
            found[reader.id][topic_id] = frozenset(range(start, end))
            start = end
    return {**found}


def _rank(reader: Reader) -> tuple[bool, str]:
    return reader.instance_id is None, reader.instance_id or reader.id


# ---------------------------------------------------------------------------------- uniform


def assign_uniform(readers: Sequence[Reader], counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """The same number for each member, as far as their subscriptions allow."""
    if not readers:
        return {}
    first = readers[0].topics
    if all(reader.topics is first or reader.topics == first for reader in readers):
        return _assign_alike(readers, {one: counts[one] for one in first if one in counts})
    return _assign_unlike(readers, counts)


def _assign_alike(readers: Sequence[Reader], counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """All read the same topics: each member gets its quota, and some get one more."""
    quota, extra = divmod(sum(counts.values()), len(readers))
    free: _Draft = {topic_id: set(range(count)) for topic_id, count in counts.items()}
    found: dict[str, Assignment] = {}
    room: list[tuple[Reader, int]] = []
    # Members with the most partitions keep the larger share, so that no partition moves.
    held = {reader.id: _still_there(reader.target, counts) for reader in readers}
    sizes = {member: sum(map(len, target.values())) for member, target in held.items()}
    ordered = sorted(readers, key=lambda one: (-sizes[one.id], *_rank(one)))
    for number, reader in enumerate(ordered):
        share = quota + (number < extra)
        target = held[reader.id]
        if sizes[reader.id] > share:
            target = _trimmed(target, sizes[reader.id] - share)
        for topic_id, partitions in target.items():
            free[topic_id] -= partitions
        found[reader.id] = target
        if sizes[reader.id] < share:
            room.append((reader, share - sizes[reader.id]))
    _deal(found, room, free)
    return found


def _still_there(target: Assignment, counts: Mapping[UUID, int]) -> Assignment:
    """The part of a target whose topics are still read; the same object if that is all."""
    if all(topic_id in counts for topic_id in target):
        return target
    return {topic_id: held for topic_id, held in target.items() if topic_id in counts}


def _trimmed(target: Assignment, excess: int) -> Assignment:
    """Without `excess` partitions, always one of the topic of which there are most."""
    kept = {topic_id: sorted(partitions) for topic_id, partitions in target.items()}
    heap = [(-len(partitions), str(topic_id), topic_id) for topic_id, partitions in kept.items()]
    heapify(heap)
    for _ in range(excess):
        _, name, topic_id = heappop(heap)
        kept[topic_id].pop()
        heappush(heap, (-len(kept[topic_id]), name, topic_id))
    return {topic_id: frozenset(partitions) for topic_id, partitions in kept.items() if partitions}


def _deal(
    found: dict[str, Assignment], room: Sequence[tuple[Reader, int]], free: Mapping[UUID, set[int]]
) -> None:
    """Assign free partitions in turn to the members below their quotas."""
    if not room:
        return
    left = {reader.id: count for reader, count in room}
    drafts: dict[str, _Draft] = {member: defaultdict(set) for member in left}
    turns = cycle(list(left))
    for topic_id, partitions in free.items():
        for partition in sorted(partitions):
            member = next(one for one in turns if left[one])
            drafts[member][topic_id].add(partition)
            left[member] -= 1
    for member, draft in drafts.items():
        target = dict(found[member])
        for topic_id, gained in draft.items():
            target[topic_id] = target.get(topic_id, frozenset()) | gained
        found[member] = target


# -------------------------------------------------------- uniform, with other subscriptions


def _assign_unlike(readers: Sequence[Reader], counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Members read different topics: keep what is possible, assign the rest, then balance."""
    subscribers: dict[UUID, list[str]] = {topic_id: [] for topic_id in counts}
    drafts: dict[str, _Draft] = {}
    for reader in sorted(readers, key=_rank):
        drafts[reader.id] = {}
        for topic_id in reader.topics:
            if topic_id in subscribers:
                subscribers[topic_id].append(reader.id)
                drafts[reader.id][topic_id] = set(reader.target.get(topic_id, ()))
    # Topics with few readers come first: they have the fewest choices.
    order = sorted(
        (topic_id for topic_id, members in subscribers.items() if members),
        key=lambda topic_id: (len(subscribers[topic_id]), str(topic_id)),
    )
    loads = {member: sum(map(len, draft.values())) for member, draft in drafts.items()}
    for topic_id in order:
        members = subscribers[topic_id]
        taken = set[int]().union(*(drafts[member][topic_id] for member in members))
        heap = [(loads[member], member) for member in members]
        heapify(heap)
        for partition in sorted(set(range(counts[topic_id])) - taken):
            load, member = heappop(heap)
            drafts[member][topic_id].add(partition)
            loads[member] = load + 1
            heappush(heap, (load + 1, member))
    for _ in range(MAX_ROUNDS):
        moved = [_even_out(topic_id, subscribers[topic_id], drafts, loads) for topic_id in order]
        if not any(moved):
            break
    return {
        member: {topic_id: frozenset(held) for topic_id, held in draft.items() if held}
        for member, draft in drafts.items()
    }


def _even_out(
    topic_id: UUID, members: Sequence[str], drafts: Mapping[str, _Draft], loads: dict[str, int]
) -> bool:
    """Move partitions of a topic from the most to the least loaded; returns whether any moved."""
    givers = sorted((one for one in members if drafts[one][topic_id]), key=lambda one: -loads[one])
    takers = [(loads[member], member) for member in members]
    heapify(takers)
    moved = False
    for giver in givers:
        while drafts[giver][topic_id] and takers[0][0] + 1 < loads[giver]:
            load, taker = heappop(takers)
            if load != loads[taker]:
                # It has lost partitions since it was pushed.
                heappush(takers, (loads[taker], taker))
                continue
            held = drafts[giver][topic_id]
            partition = max(held)
            held.remove(partition)
            drafts[taker][topic_id].add(partition)
            loads[giver] -= 1
            loads[taker] += 1
            heappush(takers, (loads[taker], taker))
            moved = True
    return moved


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By the names in `group.consumer.assignors`, where Kafka's class names are known too."""

CLASS_NAMES = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
