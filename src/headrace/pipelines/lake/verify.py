"""Verifies that a table has every record of a topic once and in order.

The offsets of the rows are read from the data files and compared. Two rows with one offset are a
duplicate; a smaller offset in a later epoch or row is a reordering. A hole is not necessarily a
loss: transaction markers, aborted records and compaction leave holes in the log itself. So every
hole is looked up in the topic, as a read_committed consumer reads it, and only records that the
topic still has there are missing. Holes in a range that retention has already deleted are explained
by the ranges that the sink stored in the table's commits, or reported as unknown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headrace.pipelines.lake.ranges import offsets_by_place
from headrace.pipelines.lake.views import TableCommit, TableFile, TableView
from headrace.pipelines.sink.epoch import Epoch
from headrace.types import TopicPartition

Offsets = npt.NDArray[np.int64]
Progress = Callable[[str, int, int], None]

LOOKED_AT_BEHIND = 10_000

MISSING, DUPLICATE, REORDERED, UNKNOWN, FOREIGN = (
    "missing", "duplicate", "reordered", "unknown", "foreign",
)  # fmt: skip


class TopicReader(Protocol):
    """The topic, read as a read_committed consumer."""

    def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """The first offset and the end offset of each partition."""

    def offsets(self, place: TopicPartition, first: int, last: int) -> Offsets:
        """The offsets of all visible records from `first` to `last`."""


@dataclass(frozen=True, slots=True)
class TableFinding:
    """A problem with `count` of the offsets from `first` to `last`."""

    kind: str
    place: TopicPartition
    first: int
    last: int
    count: int
    where: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a verification."""

    topic: str
    from_table_start: bool = False
    complete: bool = False
    any_order: bool = False
    full: bool = False


@dataclass(slots=True)
class PartitionReport:
    """One partition: the offsets of the topic, those of the table, and the problems."""

    place: TopicPartition
    log_start: int
    log_end: int
    rows: int = 0
    first: int | None = None
    last: int | None = None
    behind: int = 0
    findings: list[TableFinding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Runs:
    """Consecutive offsets of rows of one partition in one file, in the order of the rows."""

    file: TableFile
    starts: Offsets
    ends: Offsets


def verify(
    table: TableView, wanted: Wanted, log: TopicReader, progress: Progress
) -> list[PartitionReport]:
    """A report for each partition of the topic."""
    bounds = log.bounds(wanted.topic)
    found = _read_files(table.files, wanted.topic, progress)
    places = sorted({TopicPartition(wanted.topic, number) for number in bounds} | set(found))
    reports = []
    for done, place in enumerate(places):
        progress(f"checking {place.topic}-{place.partition}", done, len(places))
        start, end = bounds.get(place.partition, (0, 0))
        report = PartitionReport(place, start, end)
        _check(report, found.get(place, []), table.commits, wanted, log)
        reports.append(report)
    return reports


def _read_files(
    files: tuple[TableFile, ...], topic: str, progress: Progress
) -> dict[TopicPartition, list[Runs]]:
    found: dict[TopicPartition, list[Runs]] = {}
    for done, file in enumerate(files):
        progress("reading offsets", done, len(files))
        for place, offsets in offsets_by_place(file.read()).items():
            if place.topic == topic:
                starts, ends = runs_of(offsets)
                found.setdefault(place, []).append(Runs(file, starts, ends))
    return found


def _check(
    report: PartitionReport,
    runs: list[Runs],
    commits: tuple[TableCommit, ...],
    wanted: Wanted,
    log: TopicReader,
) -> None:
    starts, ends = _sorted(runs)
    covered = union(starts, ends)
    report.rows = int((ends - starts + 1).sum())
    doubled = overlaps(starts, ends)
    for first, last in zip(*doubled, strict=True):
        report.findings.append(_finding(DUPLICATE, report.place, first, last))
    if not wanted.any_order:
        report.findings += _reordered(report.place, runs, doubled)
    if len(starts):
        report.first, report.last = int(covered[0][0]), int(covered[1][-1])
    next_offset = 0 if report.last is None else report.last + 1
    _check_against_topic(report, covered, commits, wanted, log)
    next_offset = max(next_offset, report.log_start)
    report.behind = max(0, report.log_end - next_offset)
    # Near the end, count how many of these are records and not markers.
    if report.behind and (wanted.complete or report.behind <= LOOKED_AT_BEHIND):
        behind = log.offsets(report.place, next_offset, report.log_end - 1)
        report.behind = len(behind)
        if wanted.complete:
            report.findings += _grouped(MISSING, report.place, behind, "after the table's end")
    report.findings.sort(key=lambda each: (each.first, each.kind))


def _check_against_topic(
    report: PartitionReport,
    covered: tuple[Offsets, Offsets],
    commits: tuple[TableCommit, ...],
    wanted: Wanted,
    log: TopicReader,
) -> None:
    """Add the findings about holes, and about rows that are not in the topic."""
    if report.first is None or report.last is None:
        return
    place, start, end = report.place, report.log_start, report.log_end
    if report.last >= end:
        first = max(report.first, end)
        report.findings.append(
            _finding(FOREIGN, place, first, report.last, "the topic ends before it")
        )
    lowest = report.first if wanted.from_table_start else min(report.first, start)
    holes = complement(covered, lowest, report.last)
    for first, last in zip(*holes, strict=True):
        if first < start:
            until = min(int(last), start - 1)
            if not _explained(place, int(first), until, covered, commits):
                why = "the topic no longer has these offsets, and no commit explains the hole"
                report.findings.append(_finding(UNKNOWN, place, int(first), until, why))
    top = min(report.last, end - 1)
    spans = [(max(lowest, start), top)] if wanted.full else _spans(holes, start, top)
    for first, last in spans:
        if first > last:
            continue
        there = log.offsets(place, first, last)
        present = inside(there, covered)
        report.findings += _grouped(MISSING, place, there[~present], "the topic has them")
        if wanted.full:
            extra = _expanded(covered, first, last)
            lost = extra[~np.isin(extra, there, assume_unique=True)]
            report.findings += _grouped(FOREIGN, place, lost, "not visible in the topic")


def _explained(
    place: TopicPartition,
    first: int,
    last: int,
    covered: tuple[Offsets, Offsets],
    commits: Iterable[TableCommit],
) -> bool:
    """Whether a commit's ranges contain this hole, and the table still has its rows."""
    for commit in commits:
        for each in commit.ranges.get(place, ()):
            if each.first <= first and last <= each.last:
                return len(_expanded(covered, each.first, each.last)) == each.count
    return False


# -------------------------------------------------------------------------------- intervals


def runs_of(offsets: Offsets) -> tuple[Offsets, Offsets]:
    """First and last of each run of consecutive offsets, in the order given."""
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    starts = np.concatenate(([0], cuts))
    ends = np.concatenate((cuts, [len(offsets)])) - 1
    return offsets[starts], offsets[ends]


def _sorted(runs: list[Runs]) -> tuple[Offsets, Offsets]:
    if not runs:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts = np.concatenate([each.starts for each in runs])
    ends = np.concatenate([each.ends for each in runs])
    order = np.lexsort((ends, starts))
    return starts[order], ends[order]


def union(starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
    """Sorted intervals, joined where they touch or overlap."""
    if not len(starts):
        return starts, ends
    reach = np.maximum.accumulate(ends)
    fresh = np.concatenate(([True], starts[1:] > reach[:-1] + 1))
    begins = np.flatnonzero(fresh)
    return starts[begins], reach[np.concatenate((begins[1:] - 1, [len(reach) - 1]))]


def overlaps(starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
    """The intervals that sorted intervals cover more than once."""
    if len(starts) < 2:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    reach = np.maximum.accumulate(ends)[:-1]
    twice = starts[1:] <= reach
    firsts, lasts = starts[1:][twice], np.minimum(ends[1:], reach)[twice]
    order = np.lexsort((lasts, firsts))
    return union(firsts[order], lasts[order])


def complement(covered: tuple[Offsets, Offsets], first: int, last: int) -> tuple[Offsets, Offsets]:
    """The holes of joined intervals between two offsets, both included."""
    starts = np.concatenate(([first], covered[1] + 1))
    ends = np.concatenate((covered[0] - 1, [last]))
    starts, ends = np.maximum(starts, first), np.minimum(ends, last)
    real = starts <= ends
    return starts[real], ends[real]


def inside(offsets: Offsets, covered: tuple[Offsets, Offsets]) -> npt.NDArray[np.bool_]:
    """Which offsets are in joined intervals."""
    if not len(covered[0]):
        return np.zeros(len(offsets), np.bool_)
    index = np.searchsorted(covered[0], offsets, side="right") - 1
    return (index >= 0) & (offsets <= covered[1][np.maximum(index, 0)])


def _expanded(covered: tuple[Offsets, Offsets], first: int, last: int) -> Offsets:
    parts = [
        np.arange(max(start, first), min(end, last) + 1)
        for start, end in zip(*covered, strict=True)
        if start <= last and end >= first
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _spans(holes: tuple[Offsets, Offsets], lowest: int, highest: int) -> list[tuple[int, int]]:
    """The ranges of the topic to read for all holes; close ones are read together."""
    near = 1000
    spans: list[tuple[int, int]] = []
    for first, last in zip(*holes, strict=True):
        first, last = max(int(first), lowest), min(int(last), highest)
        if first > last:
            continue
        if spans and first - spans[-1][1] <= near:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    return spans


# ----------------------------------------------------------------------------------- order


def _reordered(
    place: TopicPartition, runs: list[Runs], doubled: tuple[Offsets, Offsets]
) -> list[TableFinding]:
    """Rows after a row with a larger offset: in one file, or in an earlier epoch.

    Only files of epochs are checked: a compaction joins files in its own order.
    """
    findings = []
    queries: dict[str, dict[int, list[Runs]]] = {}
    for each in runs:
        if each.file.epoch is None:
            continue
        reach = np.maximum.accumulate(each.ends)[:-1]
        back = np.flatnonzero(each.starts[1:] < reach) + 1
        where = f"within {each.file.path}"
        findings += _moved(place, each.starts[back], each.ends[back], doubled, where)
        epoch: Epoch = each.file.epoch
        queries.setdefault(epoch.query, {}).setdefault(epoch.number, []).append(each)
    for query, epochs in queries.items():
        reached = -1
        for number in sorted(epochs):
            starts, ends = union(*_sorted(epochs[number]))
            back = np.flatnonzero(starts < reached)
            where = f"epoch {number} of query {query} comes after a larger offset"
            findings += _moved(place, starts[back], ends[back], doubled, where)
            reached = max(reached, int(ends.max()))
    return findings


def _moved(
    place: TopicPartition,
    starts: Offsets,
    ends: Offsets,
    doubled: tuple[Offsets, Offsets],
    where: str,
) -> list[TableFinding]:
    """Reorderings, without runs that are already reported as duplicates."""
    again = inside(starts, doubled) & inside(ends, doubled)
    return [
        _finding(REORDERED, place, first, last, where)
        for first, last in zip(starts[~again], ends[~again], strict=True)
    ]


def _finding(
    kind: str, place: TopicPartition, first: int, last: int, where: str = ""
) -> TableFinding:
    return TableFinding(kind, place, int(first), int(last), int(last - first + 1), where)


def _grouped(kind: str, place: TopicPartition, offsets: Offsets, where: str) -> list[TableFinding]:
    if not len(offsets):
        return []
    return [
        _finding(kind, place, first, last, where)
        for first, last in zip(*runs_of(offsets), strict=True)
    ]
