"""Decides what retention deletes, and which groups are about to lose unread records. Pure.

Whole segments are deleted, the oldest first, and never above the high watermark. A segment is due
when

    it ends at or below the log start offset            always (DeleteRecords moved the start)
    all its records are older than retention.ms         cleanup.policy has delete or consumed
    retention.bytes or more follow it                   cleanup.policy has delete or consumed
    retention.messages or more offsets follow it        cleanup.policy has delete or consumed
    every group that counts has committed past it       cleanup.policy has consumed

This includes the active segment if it has records: a new one is begun first. Segments that groups
in retention.hold.groups have not read are held, up to retention.hold.bytes.
`broker/retention.py` deletes the segments.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Protocol

from headrace.settings import LogSettings

NOTHING_READ = -1


class SegmentView(Protocol):
    """The properties of a segment that retention uses."""

    @property
    def base_offset(self) -> int:
        """The offset of its first record."""

    @property
    def size(self) -> int:
        """Its bytes."""

    def newest_ms(self) -> int:
        """The largest timestamp of its records; without timestamps, the time of its last write."""


class Reason(Enum):
    """Why a segment is deleted; the value is the setting that requires it."""

    START_OFFSET = "start.offset"
    TIME = "retention.ms"
    SIZE = "retention.bytes"
    MESSAGES = "retention.messages"
    CONSUMED = "consumed.groups"
    HOLD = "retention.hold.bytes"


@dataclass(frozen=True, slots=True)
class LogView:
    """One partition as retention sees it; `segments` oldest first, the last one active."""

    segments: Sequence[SegmentView]
    start_offset: int
    end_offset: int
    high_watermark: int

    def end_of(self, index: int) -> int:
        """The offset after a segment."""
        following = index + 1
        if following < len(self.segments):
            return self.segments[following].base_offset
        return self.end_offset


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """The reasons of the oldest segments to delete, and the bytes that are held for slow groups."""

    reasons: tuple[Reason, ...] = ()
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Risk:
    """A group that will soon lose records: how much of which limit is left until then."""

    group: str
    offset: int
    limit: Reason
    left: int


def decide(
    log: LogView,
    settings: LogSettings,
    now_ms: int,
    committed: Mapping[str, int],
    at_most: int | None = None,
) -> RetentionDecision:
    """The segments to delete now, at most `at_most` of them.

    `committed` is the offset that each group of the topic reads next in this partition.
    """
    if not settings.retention_hold_groups:
        return RetentionDecision(tuple(islice(_due(log, settings, now_ms, committed), at_most)))
    due = [*_due(log, settings, now_ms, committed)]
    read = min(committed.get(group, NOTHING_READ) for group in settings.retention_hold_groups)
    goes = 0
    while goes < len(due) and (due[goes] is Reason.START_OFFSET or log.end_of(goes) <= read):
        goes += 1
    held_bytes = sum(segment.size for segment in log.segments[goes : len(due)])
    while held_bytes > settings.retention_hold_bytes:
        held_bytes -= log.segments[goes].size
        due[goes] = Reason.HOLD
        goes += 1
    return RetentionDecision(tuple(due[:goes][:at_most]), held_bytes)


def _due(
    log: LogView, settings: LogSettings, now_ms: int, committed: Mapping[str, int]
) -> Iterator[Reason]:
    """The reasons of all segments that are due, held or not."""
    policy = settings.cleanup_policy
    limited = "delete" in policy or "consumed" in policy
    read = consumed_below(settings, committed)
    bytes_limit = settings.retention_bytes if limited else -1
    behind_bytes = sum(segment.size for segment in log.segments) if bytes_limit >= 0 else 0
    last = len(log.segments) - 1
    for index, segment in enumerate(log.segments):
        end = log.end_of(index)
        behind_bytes -= segment.size
        if end > log.high_watermark or (index == last and segment.size == 0):
            return
        if end <= log.start_offset and index < last:
            yield Reason.START_OFFSET
        elif end <= read:
            yield Reason.CONSUMED
        elif 0 <= bytes_limit <= behind_bytes:
            yield Reason.SIZE
        elif limited and 0 <= settings.retention_messages <= log.end_offset - end:
            yield Reason.MESSAGES
        elif limited and 0 <= settings.retention_ms < now_ms - segment.newest_ms():
            yield Reason.TIME
        else:
            return


def consumed_below(settings: LogSettings, committed: Mapping[str, int]) -> int:
    """The offset below which every group that counts has read; -1 if consuming deletes nothing.

    A topic on which no group is registered keeps its records.
    """
    if "consumed" not in settings.cleanup_policy:
        return NOTHING_READ
    groups = settings.consumed_groups or committed
    return min((committed.get(group, NOTHING_READ) for group in groups), default=NOTHING_READ)


def risks(
    log: LogView, settings: LogSettings, now_ms: int, committed: Mapping[str, int]
) -> Iterator[Risk]:
    """The groups whose next record is deleted soon: `retention.warn.ratio` of a limit is left.

    Not included: groups that have read everything, and groups whose records are deleted
    already.
    """
    ratio = settings.retention_warn_ratio
    if not ratio or not settings.cleanup_policy & {"delete", "consumed"}:
        return
    bases = [segment.base_offset for segment in log.segments]
    for group, offset in committed.items():
        if not log.start_offset <= offset < log.end_offset:
            continue
        left = left_of(log, settings, now_ms, bisect_right(bases, offset) - 1)
        due = any(amount <= 0 for _, amount, _ in left)
        if due and group in settings.retention_hold_groups:
            left = [_hold_left(log, settings, now_ms, committed)]
        for limit, amount, whole in left:
            if amount <= whole * ratio:
                yield Risk(group, offset, limit, max(amount, 0))
                break


def left_of(
    log: LogView, settings: LogSettings, now_ms: int, index: int
) -> list[tuple[Reason, int, int]]:
    """For each limit: how much is left until the segment is deleted, and the limit itself."""
    found = []
    if settings.retention_ms >= 0:
        age_ms = now_ms - log.segments[index].newest_ms()
        found.append((Reason.TIME, settings.retention_ms - age_ms, settings.retention_ms))
    if settings.retention_bytes >= 0:
        limit = settings.retention_bytes
        behind = sum(segment.size for segment in log.segments[index + 1 :])
        found.append((Reason.SIZE, limit - behind, limit))
    if settings.retention_messages >= 0:
        count = settings.retention_messages
        found.append((Reason.MESSAGES, count - (log.end_offset - log.end_of(index)), count))
    return found


def _hold_left(
    log: LogView, settings: LogSettings, now_ms: int, committed: Mapping[str, int]
) -> tuple[Reason, int, int]:
    limit = settings.retention_hold_bytes
    return Reason.HOLD, limit - decide(log, settings, now_ms, committed).held_bytes, limit
