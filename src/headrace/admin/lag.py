"""Lag over time, and the status of groups by Burrow's rules.

Observations of groups (`group_view.GroupView`) are stored in a bounded history in memory. The
status is a pure function of it. Burrow sees every commit; an observation sees only the committed
offset. So a commit counts as seen if the offset has changed, or if a member owns the partition:
consumers commit at intervals even if they make no progress.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from threading import Lock

from headrace.admin.group_view import GroupView, PartitionLag
from headrace.types import TopicPartition

WINDOW_MS = 600_000
"""How much history the status needs: Burrow's ten commits, one a minute."""
RECENT_MS = 120_000
"""A group that had read everything within this time does not count as stopped."""
KEEP_MS = 3_600_000
MOST_POINTS = 500_000
POINTS_OF_A_PARTITION = 360
FEWEST_POINTS_OF_A_PARTITION = 12
NOTHING = -1


class LagStatus(StrEnum):
    """The status of a group in a partition."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    STALLED = "stalled"
    STOPPED = "stopped"
    REWIND = "rewind"


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset, with the time and the lag when it was observed."""

    time_ms: int
    offset: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class LagPoint:
    """A partition of a group at one moment; unknown values are None."""

    time_ms: int
    committed: int | None
    end: int | None
    delay_ms: int | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)


@dataclass(frozen=True, slots=True)
class PastPoint:
    """A moment before the first observation; whether a commit came since the point before."""

    time_ms: int
    committed: int
    end: int
    committing: bool


@dataclass(frozen=True, slots=True)
class PastLag:
    """A partition of a group before the first observation, oldest point first."""

    group: str
    topic: str
    partition: int
    points: tuple[PastPoint, ...]


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The status of a group in one partition; not `complete` while the history is too short."""

    topic: str
    partition: int
    status: LagStatus
    complete: bool
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The status of a group: the worst of its partitions."""

    group: str
    status: LagStatus
    complete: bool
    partitions: tuple[PartitionStatus, ...]


SEVERITY = (
    LagStatus.OK,
    LagStatus.UNKNOWN,
    LagStatus.WARNING,
    LagStatus.REWIND,
    LagStatus.STALLED,
    LagStatus.STOPPED,
)


def status_of_commits(
    commits: Sequence[Commit], recent_ends: Iterable[int], lag: int | None, now_ms: int
) -> LagStatus:
    """Burrow's rules for one partition; commits in their order, and ends of the last minutes.

    - If the lag now is not known, neither is the status.
    - Without lag now the partition is ok.
    - Stopped: no commit for longer than the commits span, and no end of the last minutes shows
      that the group had read everything.
    - Rewind: an offset went back, and the group has not reached the earlier offset again.
    - If the lag was zero at any commit, the partition is ok.
    - Stalled: commits come and their offset does not change.
    - Warning: the offset moves, and the lag does not fall.
    """
    if lag is None:
        return LagStatus.UNKNOWN
    if not lag or not commits:
        return LagStatus.OK
    first, last = commits[0], commits[-1]
    if now_ms - last.time_ms > last.time_ms - first.time_ms and not any(
        end <= last.offset for end in recent_ends
    ):
        return LagStatus.STOPPED
    if _is_rewound(commits):
        return LagStatus.REWIND
    if any(each.lag == 0 for each in commits):
        return LagStatus.OK
    if all(each.offset == first.offset for each in commits):
        return LagStatus.STALLED
    lags = [each.lag for each in commits if each.lag is not None]
    if all(later >= earlier for earlier, later in pairwise(lags)):
        return LagStatus.WARNING
    return LagStatus.OK


def _is_rewound(commits: Sequence[Commit]) -> bool:
    for index in range(1, len(commits)):
        reached = commits[index - 1].offset
        if commits[index].offset < reached:
            return all(each.offset < reached for each in commits[index:])
    return False


class _Series:
    """The observations of one partition of one group, oldest first, in a few bytes each."""

    __slots__ = ("caught_up", "committed", "delays", "ends", "owned", "times")

    def __init__(self) -> None:
        self.times = array("q")
        self.committed = array("q")
        self.ends = array("q")
        self.delays = array("q")
        self.owned = array("b")
        self.caught_up = array("b")

    def add(self, row: PartitionLag, now_ms: int) -> None:
        self.times.append(now_ms)
        self.committed.append(_number(row.committed))
        self.ends.append(_number(row.end))
        self.delays.append(NOTHING if row.delay_s is None else round(row.delay_s * 1000))
        self.owned.append(row.owner is not None)
        self.caught_up.append(row.caught_up)

    def add_past(self, points: Sequence[PastPoint]) -> None:
        """Insert points before the first observation."""
        first_ms = self.times[0] if self.times else None
        past = [each for each in points if first_ms is None or each.time_ms < first_ms]
        self.times[:0] = array("q", (each.time_ms for each in past))
        self.committed[:0] = array("q", (each.committed for each in past))
        self.ends[:0] = array("q", (each.end for each in past))
        self.delays[:0] = array("q", (NOTHING for _ in past))
        self.owned[:0] = array("b", (each.committing for each in past))
        self.caught_up[:0] = array("b", (each.committed >= each.end for each in past))

    def cut(self, count: int) -> None:
        """Drop the oldest observations, except `count`."""
        excess = len(self.times) - count
        if excess > 0:
            for column in (self.times, self.committed, self.ends, self.delays):
                del column[:excess]
            for flags in (self.owned, self.caught_up):
                del flags[:excess]

    def points(self) -> list[LagPoint]:
        return [
            LagPoint(at, _known(committed), _known(end), _known(delay))
            for at, committed, end, delay in zip(
                self.times, self.committed, self.ends, self.delays, strict=True
            )
        ]

    def status(self, lag: int | None, now_ms: int) -> tuple[LagStatus, bool]:
        """The status, and whether the history is long enough for it."""
        if now_ms - self.times[0] < WINDOW_MS:
            return LagStatus.UNKNOWN if lag is None else LagStatus.OK, False
        recent = [
            end
            for at, end in zip(self.times, self.ends, strict=True)
            if at >= now_ms - RECENT_MS and end >= 0
        ]
        return status_of_commits(self._commits(now_ms), recent, lag, now_ms), True

    def _commits(self, now_ms: int) -> list[Commit]:
        found: list[Commit] = []
        for at, offset, end, owned, caught_up in zip(
            self.times, self.committed, self.ends, self.owned, self.caught_up, strict=True
        ):
            if offset < 0 or not (owned or not found or offset != found[-1].offset):
                continue
            lag = None if end < 0 else max(end - offset, 0)
            found.append(Commit(at, offset, 0 if caught_up else lag))
        inside = [each for each in found if each.time_ms >= now_ms - WINDOW_MS]
        # The last commit counts, whatever its age: the group has not committed since.
        return inside or found[-1:]


def _status(
    row: PartitionLag, known: Mapping[TopicPartition, _Series], now_ms: int
) -> PartitionStatus:
    series = known.get(TopicPartition(row.topic, row.partition))
    # Without records there is nothing to read, whether an offset is committed or not.
    lag = 0 if row.caught_up or row.end == 0 else row.lag
    if series is None:
        status, complete = LagStatus.UNKNOWN if lag is None else LagStatus.OK, False
    else:
        status, complete = series.status(lag, now_ms)
    return PartitionStatus(row.topic, row.partition, status, complete, row.lag)


def _worst(rows: Sequence[PartitionStatus], lowest: LagStatus) -> LagStatus:
    return max((lowest, *(each.status for each in rows)), key=SEVERITY.index)


def _number(value: int | None) -> int:
    return NOTHING if value is None else value


def _known(value: int) -> int | None:
    return None if value < 0 else value


class LagHistory:
    """Observations of groups in memory, at most `points` in total; for use by several threads."""

    def __init__(self, points: int = MOST_POINTS, points_each: int = POINTS_OF_A_PARTITION) -> None:
        self._points = points
        self._points_each = points_each
        self._lock = Lock()
        self._groups: dict[str, dict[TopicPartition, _Series]] = {}

    def observe(self, views: Iterable[GroupView], now_ms: int) -> None:
        """Add an observation of all groups; groups and partitions that were removed are dropped."""
        with self._lock:
            self._observe(views, now_ms)

    def add_past(self, found: Iterable[PastLag]) -> None:
        """Add points from before the first observation."""
        with self._lock:
            for each in found:
                if each.points:
                    at = TopicPartition(each.topic, each.partition)
                    rows = self._groups.setdefault(each.group, {})
                    rows.setdefault(at, _Series()).add_past(each.points)

    def _observe(self, views: Iterable[GroupView], now_ms: int) -> None:
        for view in views:
            rows = self._groups.setdefault(view.description.name, {})
            for row in view.partitions:
                at = TopicPartition(row.topic, row.partition)
                rows.setdefault(at, _Series()).add(row, now_ms)
        self._forget(now_ms - KEEP_MS)
        count = sum(map(len, self._groups.values()))
        room = max(self._points // max(count, 1), FEWEST_POINTS_OF_A_PARTITION)
        for rows in self._groups.values():
            for series in rows.values():
                series.cut(min(room, self._points_each))

    def _forget(self, before_ms: int) -> None:
        for group, rows in list(self._groups.items()):
            for at in [at for at, series in rows.items() if series.times[-1] < before_ms]:
                del rows[at]
            if not rows:
                del self._groups[group]

    def points(self, group: str, topic: str, partition: int) -> list[LagPoint]:
        """The lag of a partition over time, oldest first."""
        with self._lock:
            series = self._groups.get(group, {}).get(TopicPartition(topic, partition))
            return [] if series is None else series.points()

    def group_points(self, group: str) -> list[LagPoint]:
        """Sums of the partitions at each time; the delay is the longest of them.

        Partitions without a committed offset do not count. Without the end of another one the sum
        at that time is unknown.
        """
        with self._lock:
            rows = [series.points() for series in self._groups.get(group, {}).values()]
        totals: dict[int, tuple[int, int, int]] = {}
        incomplete: set[int] = set()
        for point in (point for points in rows for point in points):
            if point.committed is None:
                continue
            if point.lag is None:
                incomplete.add(point.time_ms)
                continue
            committed, end, delay = totals.get(point.time_ms, (0, 0, NOTHING))
            totals[point.time_ms] = (
                committed + point.committed,
                end + point.committed + point.lag,
                max(delay, _number(point.delay_ms)),
            )
        known = [
            LagPoint(at, committed, end, _known(delay))
            for at, (committed, end, delay) in totals.items()
            if at not in incomplete
        ]
        unknown = [LagPoint(at, None, None, None) for at in incomplete]
        return sorted(known + unknown, key=lambda point: point.time_ms)

    def status(self, view: GroupView, now_ms: int) -> GroupStatus:
        """The status of a group that was observed."""
        with self._lock:
            rows = self._groups.get(view.description.name, {})
            found = [_status(row, rows, now_ms) for row in view.partitions]
        return GroupStatus(
            view.description.name,
            _worst(found, LagStatus.UNKNOWN if view.problem else LagStatus.OK),
            all(each.complete for each in found),
            tuple(found),
        )
