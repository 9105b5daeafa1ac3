"""The offsets of topic-partitions in a file or a commit.

A range is (first, last, count), both ends included. The count is less than last - first + 1 if the
log has holes (transaction markers, aborted records, compaction) or if the query filtered records;
only the topic can distinguish these cases, and `verify.py` reads it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.types import TopicPartition

COLUMNS = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets from `first` to `last`, of which `count` are present."""

    first: int
    last: int
    count: int

    @property
    def dense(self) -> bool:
        return self.count == self.last - self.first + 1


Ranges = Mapping[TopicPartition, tuple[Range, ...]]


def tracked(schema: pa.Schema) -> bool:
    """Whether rows of this schema have topic, partition and offset."""
    try:
        topic, partition, offset = (schema.field(name).type for name in COLUMNS)
    except KeyError:
        return False
    return bool(
        (pa.types.is_string(topic) or pa.types.is_large_string(topic))
        and pa.types.is_integer(partition)
        and pa.types.is_integer(offset)
    )


def offsets_by_place(
    batch: pa.RecordBatch | pa.Table,
) -> dict[TopicPartition, npt.NDArray[np.int64]]:
    """The offsets of each partition, in the order of the rows; rows without one are left out."""
    table = pa.table({name: batch.column(name) for name in COLUMNS}).drop_null()
    if not table.num_rows:
        return {}
    topics = table.column("topic").combine_chunks().dictionary_encode()
    if isinstance(topics, pa.ChunkedArray):
        topics = topics.combine_chunks()
    names = topics.dictionary.to_pylist()
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    partitions = table.column("partition").to_numpy().astype(np.int64)
    offsets = table.column("offset").to_numpy().astype(np.int64)
    keys = codes << 32 | partitions
    if (keys == keys[0]).all():
        return {TopicPartition(names[codes[0]], int(partitions[0])): offsets}
    order = np.argsort(keys, kind="stable")
    keys, offsets = keys[order], offsets[order]
    cuts = np.flatnonzero(np.diff(keys)) + 1
    starts = np.concatenate(([0], cuts))
    return {
        TopicPartition(names[keys[start] >> 32], int(keys[start] & 0xFFFFFFFF)): part
        for start, part in zip(starts, np.split(offsets, cuts), strict=True)
    }


class RangeCounter:
    """Adds up the ranges of a file while it is written."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, Range] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        for place, offsets in offsets_by_place(batch).items():
            found = Range(int(offsets.min()), int(offsets.max()), len(offsets))
            seen = self._seen.get(place)
            if seen is not None:
                found = Range(
                    min(seen.first, found.first),
                    max(seen.last, found.last),
                    seen.count + found.count,
                )
            self._seen[place] = found

    def ranges(self) -> dict[TopicPartition, tuple[Range, ...]]:
        """The ranges so far."""
        return {place: (found,) for place, found in self._seen.items()}


def merge(many: Iterable[Ranges]) -> dict[TopicPartition, tuple[Range, ...]]:
    """The ranges of several files as one list per partition; adjacent dense ranges are joined."""
    collected: dict[TopicPartition, list[Range]] = {}
    for ranges in many:
        for place, found in ranges.items():
            collected.setdefault(place, []).extend(found)
    return {place: tuple(_join(found)) for place, found in sorted(collected.items())}


def _join(found: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for each in sorted(found, key=lambda r: (r.first, r.last)):
        if joined and joined[-1].dense and each.dense and joined[-1].last + 1 == each.first:
            before = joined.pop()
            each = Range(before.first, each.last, before.count + each.count)
        joined.append(each)
    return joined


def to_json(ranges: Ranges) -> str:
    """The format in a table's commit: topic, partition, list of [first, last, count]."""
    out: dict[str, dict[str, list[list[int]]]] = {}
    for place, found in ranges.items():
        listed = [[each.first, each.last, each.count] for each in found]
        out.setdefault(place.topic, {})[str(place.partition)] = listed
    return json.dumps(out, separators=(",", ":"))


def from_json(text: str) -> dict[TopicPartition, tuple[Range, ...]]:
    """Parse the output of `to_json`; ValueError if it is malformed."""
    try:
        return {
            TopicPartition(topic, int(partition)): tuple(Range(*map(int, each)) for each in found)
            for topic, partitions in json.loads(text).items()
            for partition, found in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not offset ranges: {text[:80]!r}") from error
