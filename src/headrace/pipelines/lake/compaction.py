"""Rewrites small files of a table into larger ones, while queries write to it.

Rows do not change: the files of a bin are read in order and written again, and one commit replaces
the old files by the new ones. The commit is made only on a version of the table that still has all
old files. If another writer committed first, it is retried on the newer version, and a bin whose
files another writer has replaced or deleted is skipped. The old files stay on disk for readers of
older versions until the table's own clean-up removes them.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import pyarrow as pa

from headrace.pipelines.lake.files import TableFolder, epoch_of
from headrace.pipelines.lake.open_files import WrittenFile
from headrace.pipelines.lake.partitioning import FileLayout, Values

# A file of this fraction of the target size is not rewritten.
LARGE_ENOUGH = 0.75
# Bytes that are rewritten before a commit; a conflict loses no more work than that.
COMMIT_BYTES = 1 << 30
COMMIT_ATTEMPTS = 20

Progress = Callable[[str, int, int], None]
_log = logging.getLogger(__name__)


class CommitRefused(Exception):
    """Another writer committed first; nothing was changed."""


class FilesGone(Exception):
    """Files to replace are no longer in the table, or have deleted rows."""

    def __init__(self, paths: frozenset[str]) -> None:
        super().__init__(f"{len(paths)} files")
        self.paths = paths


class CompactionFailed(Exception):
    """The compaction cannot continue; earlier commits remain. The message says what to do."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file that may be rewritten; `path` is the path in the table's metadata."""

    path: str
    size_bytes: int
    rows: int | None
    partition: Values
    read: Callable[[], Iterable[pa.RecordBatch]] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Contents:
    """One version of a table: its files that may be rewritten, and their layout."""

    layout: FileLayout
    files: tuple[StoredFile, ...]
    # Files that are not rewritten: rows deleted in place, another format or partitioning.
    left_alone: int


@dataclass(frozen=True, slots=True)
class Replacement:
    """Files of one partition, and new files with the same rows."""

    old: tuple[StoredFile, ...]
    new: tuple[WrittenFile, ...]

    @property
    def old_bytes(self) -> int:
        return sum(file.size_bytes for file in self.old)


class CompactableTable(Protocol):
    """The operations of a table for a compaction."""

    def contents(self) -> Contents:
        """The current version of the table."""

    def folder(self) -> TableFolder:
        """The folder of the table's files."""

    def has(self, files: Sequence[WrittenFile]) -> bool:
        """Whether one of these files is in the table now."""

    def replace(self, layout: FileLayout, replacements: Sequence[Replacement]) -> None:
        """Replace files in one commit; may raise CommitRefused or FilesGone."""


@dataclass(slots=True)
class Report:
    """The result of a compaction, or its preview."""

    files_before: int = 0
    files_removed: int = 0
    files_added: int = 0
    bytes_removed: int = 0
    bytes_added: int = 0
    rows: int = 0
    commits: int = 0
    # Files that another writer replaced or deleted meanwhile.
    files_given_up: int = 0
    files_left_alone: int = 0


def plan(files: Iterable[StoredFile], target_bytes: int) -> list[tuple[StoredFile, ...]]:
    """The files to combine: small neighbours in a partition, up to the target size."""
    partitions: dict[Values, list[StoredFile]] = {}
    for file in files:
        if file.size_bytes < target_bytes * LARGE_ENOUGH:
            partitions.setdefault(file.partition, []).append(file)
    bins = []
    for small in partitions.values():
        chosen: list[StoredFile] = []
        size = 0
        for file in sorted(small, key=_age):
            if chosen and size + file.size_bytes > target_bytes:
                bins.append(tuple(chosen))
                chosen, size = [], 0
            chosen.append(file)
            size += file.size_bytes
        bins.append(tuple(chosen))
    return [each for each in bins if len(each) > 1]


def preview(table: CompactableTable, target_bytes: int) -> Report:
    """The files that `compact` would rewrite now; one new file per bin."""
    contents = table.contents()
    bins = plan(contents.files, target_bytes)
    return Report(
        files_before=len(contents.files) + contents.left_alone,
        files_removed=sum(len(each) for each in bins),
        files_added=len(bins),
        bytes_removed=sum(file.size_bytes for each in bins for file in each),
        rows=sum(file.rows or 0 for each in bins for file in each),
        files_left_alone=contents.left_alone,
    )


def compact(table: CompactableTable, target_bytes: int, progress: Progress) -> Report:
    """Rewrite the small files of a table; queries may write to it at the same time."""
    contents = table.contents()
    bins = plan(contents.files, target_bytes)
    folder = table.folder()
    report = Report(len(contents.files) + contents.left_alone)
    report.files_left_alone = contents.left_alone
    waiting: list[Replacement] = []
    try:
        for done, each in enumerate(bins):
            progress("rewriting", done, len(bins))
            waiting.append(Replacement(each, _rewritten(folder, each, contents.layout)))
            if done + 1 == len(bins) or sum(one.old_bytes for one in waiting) >= COMMIT_BYTES:
                # From here on files may be removed only after a commit that was definitely refused.
                committing, waiting = waiting, []
                _commit(table, contents.layout, committing, report)
        progress("rewriting", len(bins), len(bins))
    finally:
        folder.remove([file.path for one in waiting for file in one.new])
    return report


def _rewritten(
    folder: TableFolder, old: Sequence[StoredFile], layout: FileLayout
) -> tuple[WrittenFile, ...]:
    batches: Iterator[pa.RecordBatch] = chain.from_iterable(file.read() for file in old)
    new = folder.rewrite(batches, layout)
    expected = [file.rows for file in old]
    found = sum(file.rows for file in new)
    if None not in expected and sum(each or 0 for each in expected) != found:
        folder.remove([file.path for file in new])
        raise CompactionFailed(
            f"the table's metadata have {sum(each or 0 for each in expected)} rows for {len(old)} "
            f"files from {old[0].path} on, but {found} were read; nothing was "
            "replaced: check the table with `headrace lake verify`"
        )
    return new


def _commit(
    table: CompactableTable, layout: FileLayout, replacements: list[Replacement], report: Report
) -> None:
    folder = table.folder()
    for attempt in range(COMMIT_ATTEMPTS):
        if not replacements:
            return
        try:
            table.replace(layout, replacements)
        except FilesGone as gone:
            if _went_through(table, replacements):
                break
            lost = [one for one in replacements if any(f.path in gone.paths for f in one.old)]
            replacements = [one for one in replacements if one not in lost]
            report.files_given_up += sum(len(one.old) for one in lost)
            folder.remove([file.path for one in lost for file in one.new])
            _log.warning("another writer has replaced %d files meanwhile", len(gone.paths))
        except CommitRefused:
            time.sleep(random.uniform(0, min(2.0, 0.05 * 2**attempt)))
        else:
            break
    else:
        if not _went_through(table, replacements):
            folder.remove([file.path for one in replacements for file in one.new])
            raise CompactionFailed(
                f"other writers committed first {COMMIT_ATTEMPTS} times in a row; nothing was "
                "replaced by the last commit: run the compaction again when the table is quieter"
            )
    report.commits += 1
    report.files_removed += sum(len(one.old) for one in replacements)
    report.files_added += sum(len(one.new) for one in replacements)
    report.bytes_removed += sum(one.old_bytes for one in replacements)
    report.bytes_added += sum(f.size_bytes for one in replacements for f in one.new)
    report.rows += sum(file.rows for one in replacements for file in one.new)


def _went_through(table: CompactableTable, replacements: Sequence[Replacement]) -> bool:
    """Whether a commit that seemed refused is in the table, because its response was lost."""
    return table.has([file for one in replacements for file in one.new])


def _age(file: StoredFile) -> tuple[bool, str, int, str]:
    """A sort key: files of earlier compactions and other writers first, then by epoch."""
    epoch = epoch_of(file.path)
    if epoch is None:
        return False, "", 0, file.path
    return True, epoch.query, epoch.number, file.path
