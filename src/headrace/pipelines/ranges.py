"""Ranges of offsets: how much an epoch takes of each partition, and how tasks share it. Pure."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.types import TopicPartition

Offsets = Mapping[TopicPartition, int]
Stored = dict[str, dict[str, int]]
"""Offsets as Spark keeps them in the checkpoint: by topic, by partition."""


class OffsetRange(NamedTuple):
    """What one task reads: the offsets in [start, stop) of one partition."""

    partition: TopicPartition
    start: int
    stop: int


def to_stored(offsets: Offsets) -> Stored:
    """As Spark's own Kafka source writes them, in a fixed order."""
    stored: Stored = {}
    for partition in sorted(offsets):
        stored.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return stored


def from_stored(stored: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint."""
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, numbers in stored.items()
        for number, offset in numbers.items()
    }


def limited(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """An end that is at most about `most` records away, shared in proportion to what waits.

    Nobody starves: whoever has records waiting gets one at least.
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


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Ranges cut so that there are about `min_partitions`, and none has over `max_records`."""
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
        pieces += [OffsetRange(each.partition, low, high) for low, high in pairwise(bounds)]
    return pieces
