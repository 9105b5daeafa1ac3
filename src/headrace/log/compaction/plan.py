"""When a log is due for compaction, which part of it is dirty, and which segments go together.

    |--------- clean ---------|------------ dirty ------------|--- not yet ---|
    log start         first dirty offset              first uncleanable      log end

Everything before the first dirty offset went through a compaction; `cleaner-offset-checkpoint` has
it. The active segment is never compacted, nor is a segment that has records of an open transaction,
is not flushed, or is younger than `min.compaction.lag.ms`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headrace.log.compaction.job import Job
from headrace.log.segment import MAX_RELATIVE
from headrace.settings import LogSettings


class Sealed(Protocol):
    """The attributes of a segment that a plan needs."""

    base_offset: int
    size: int

    def newest_ms(self) -> int: ...

    def first_time(self) -> int: ...


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a compaction of a log would do now."""

    first_dirty: int
    end: int
    """The base offset of the first segment that cannot be compacted yet."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether a record is dirty for longer than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of the bytes that can be compacted."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, settings: LogSettings) -> bool:
        """Whether the log is due for compaction."""
        if self.dirty_bytes == 0:
            return False
        return self.overdue or self.dirty_ratio > settings.min_cleanable_dirty_ratio


def first_dirty_offset(cleaned_to: int | None, start: int, end: int) -> int:
    """The first dirty offset of a log, from its checkpoint.

    A checkpoint outside the log is ignored: its records were deleted or truncated.
    """
    if cleaned_to is None or not start <= cleaned_to <= end:
        return start
    return cleaned_to


def plan(
    segments: Sequence[Sealed],
    first_dirty: int,
    stable: int,
    settings: LogSettings,
    now_ms: int,
) -> CompactionPlan:
    """The plan for a log with these segments, of which the last is active.

    `stable` is the offset below which everything is committed, ended and flushed.
    """
    sealed = segments[:-1]
    limit = min(stable, segments[-1].base_offset)
    ends = [segment.base_offset for segment in segments[1:]]
    if settings.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - settings.min_compaction_lag_ms
        for segment, end in zip(sealed, ends, strict=True):
            if end > first_dirty and segment.newest_ms() > youngest_ms:
                limit = min(limit, segment.base_offset)
                break
    count = sum(end <= limit for end in ends)
    dirty = [
        segment for segment, end in zip(sealed[:count], ends, strict=False) if end > first_dirty
    ]
    clean_bytes = sum(segment.size for segment in sealed[: count - len(dirty)])
    if dirty and dirty[0].base_offset < first_dirty:
        clean_bytes += dirty[0].size  # the key map was full in the middle of it
    return CompactionPlan(
        first_dirty,
        segments[count].base_offset,
        clean_bytes,
        sum(segment.size for segment in dirty),
        _overdue(dirty, settings, now_ms),
    )


def _overdue(dirty: Sequence[Sealed], settings: LogSettings, now_ms: int) -> bool:
    latest_ms = now_ms - settings.max_compaction_lag_ms
    if latest_ms <= 0:
        return False
    return any(0 < segment.first_time() < latest_ms for segment in dirty)


class SourceSegment(NamedTuple):
    """A segment to compact, with the sizes of its files."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


def groups(sources: Sequence[SourceSegment], job: Job) -> Iterator[list[tuple[int, int]]]:
    """Which neighbours become one segment: (base offset, bytes) of each.

    A group fits into segment.bytes and segment.index.bytes even if nothing is removed, and its
    offsets fit into the 31 bits of index entries.
    """
    ends = [*(source.base_offset for source in sources[1:]), job.end]
    group: list[tuple[int, int]] = []
    total = index = time_index = 0
    for source, end in zip(sources, ends, strict=True):
        if group and (
            total + source.size > job.segment_bytes
            or index + source.index_bytes > job.segment_index_bytes
            or time_index + source.time_index_bytes > job.segment_index_bytes
            or (source.size and end - 1 - group[0][0] > MAX_RELATIVE)
        ):
            yield group
            group, total, index, time_index = [], 0, 0, 0
        group.append((source.base_offset, source.size))
        total += source.size
        index += source.index_bytes
        time_index += source.time_index_bytes
    if group:
        yield group
