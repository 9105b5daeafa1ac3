"""Ranges of offsets: the share of each partition in an epoch, and its tasks. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from headrace.types import TopicPartition

Offsets = Mapping[TopicPartition, int]
Stored = dict[str, dict[str, Any]]
"""The offsets of a stream in the format of the checkpoint: by topic and partition, as Spark's own
Kafka source writes them. In addition a topic may have the keys `id` (its id) and `initial` (the
offsets at which the query began)."""
TOPIC_ID, INITIAL = "id", "initial"


class OffsetRange(NamedTuple):
    """The offsets in [start, stop) of one partition that a task reads."""

    partition: TopicPartition
    start: int
    stop: int
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The position of a stream: the next offset of each partition, and the ids of topics."""

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    initial: Offsets | None = None
    """Where the query began; only in the end of its first epoch. Spark stores the end of an epoch
    before it runs it, but not the initial offsets, which `latest` would not find again."""

    def same_topic(self, other: "StreamOffset", topic: str) -> bool:
        """Whether both have offsets of one topic, not of two with the same name. Offsets without
        an id, from a checkpoint of an older version, match any topic."""
        mine, others = self.topic_ids.get(topic), other.topic_ids.get(topic)
        return mine is None or others is None or mine == others

    def same_place(self, other: "StreamOffset") -> bool:
        """Whether both have the same offsets."""
        return self.offsets == other.offsets and self.topic_ids == other.topic_ids


def to_stored(found: StreamOffset) -> Stored:
    """The format of the checkpoint, in a fixed order, because Spark compares the text."""
    stored: Stored = _by_topic(found.offsets)
    for topic, values in stored.items():
        if topic in found.topic_ids:
            values[TOPIC_ID] = found.topic_ids[topic]
    if found.initial is not None:
        initial = _by_topic(found.initial)
        for topic, values in stored.items():
            values[INITIAL] = initial.get(topic, {})
    return stored


def _by_topic(offsets: Offsets) -> Stored:
    found: Stored = {}
    for at in sorted(offsets):
        found.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return found


def from_stored(stored: Mapping[str, Mapping[str, Any]]) -> StreamOffset:
    """Parse the format of the checkpoint."""
    offsets: dict[TopicPartition, int] = {}
    topic_ids: dict[str, str] = {}
    initial: dict[TopicPartition, int] | None = None
    for topic, values in stored.items():
        for name, value in values.items():
            if name == TOPIC_ID:
                topic_ids[topic] = str(value)
            elif name == INITIAL:
                initial = initial or {}
                initial |= {TopicPartition(topic, int(n)): int(o) for n, o in value.items()}
            else:
                offsets[TopicPartition(topic, int(name))] = int(value)
    return StreamOffset(offsets, topic_ids, initial)


def limited(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """An end that is at most about `most` records away, shared in proportion to the waiting ones.

    Each partition with waiting records gets at least one.
    """
    waiting = {at: end[at] - start.get(at, 0) for at in end if end[at] > start.get(at, 0)}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    chosen = dict(end)
    for partition, count in waiting.items():
        share = max(most * count // total, 1)
        chosen[partition] = start.get(partition, 0) + min(share, count)
    return chosen


def bounded(start: Offsets, end: Offsets, bounds: Offsets) -> dict[TopicPartition, int]:
    """An end that is not after the bounds, and not before the start.

    Partitions without a bound are not read on: they are newer than the bounds.
    """
    found: dict[TopicPartition, int] = {}
    for at, offset in end.items():
        if at in bounds:
            found[at] = min(offset, max(bounds[at], start.get(at, 0)))
        elif at in start:
            found[at] = start[at]
    return found


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Split ranges into about `min_partitions`, each of at most `max_records`."""
    pieces: list[OffsetRange] = []
    total = sum(each.stop - each.start for each in ranges)
    for each in ranges:
        size = each.stop - each.start
        parts = 1
        if min_partitions is not None and min_partitions > len(ranges):
            parts = max(round(size / total * min_partitions), 1)
        if max_records is not None:
            parts = max(parts, -(-size // max_records))
        parts = min(parts, size)
        bounds = [each.start + size * number // parts for number in range(parts + 1)]
        pieces += [each._replace(start=low, stop=high) for low, high in pairwise(bounds)]
    return pieces


SHARED_TASK_RECORDS = 500
"""Ranges of fewer records than this share a task: its start costs more than reading them."""


def gather(pieces: Sequence[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task; small ones, in their order, share one.

    The result depends on offsets only, so that an epoch that is run again has the same tasks.
    """
    tasks: list[tuple[OffsetRange, ...]] = []
    waiting: list[OffsetRange] = []
    records = 0
    for each in pieces:
        waiting.append(each)
        records += each.stop - each.start
        if records >= SHARED_TASK_RECORDS:
            tasks.append(tuple(waiting))
            waiting, records = [], 0
    if waiting:
        tasks.append(tuple(waiting))
    return tasks
