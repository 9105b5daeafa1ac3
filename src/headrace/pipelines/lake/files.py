"""Parquet files that are written before the table refers to them.

    <table>/data/headrace/<query>/<epoch>/<task>-<number>-<uuid>.parquet
    <table>/data/headrace/compacted/<compaction>-<number>-<uuid>.parquet

A file belongs to the table only once a commit names it. All others in an epoch's folder were left
by attempts that failed, and `sweep` removes them when the epoch is committed.
"""

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
from pyspark.sql.datasource import WriterCommitMessage

from headrace.pipelines.lake import ranges as offset_ranges
from headrace.pipelines.lake.columns import fitted
from headrace.pipelines.lake.open_files import OpenTableFiles, WrittenFile
from headrace.pipelines.lake.partitioning import FileLayout
from headrace.pipelines.lake.ranges import Range, RangeCounter
from headrace.pipelines.sink.epoch import Epoch
from headrace.types import TopicPartition

FOLDER = "data/headrace"
# Files of compactions are not of one epoch.
COMPACTED = f"{FOLDER}/compacted"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskFiles(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the driver; no file if it had no row."""

    epoch: Epoch
    files: tuple[WrittenFile, ...]
    ranges: dict[TopicPartition, tuple[Range, ...]]


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A table's root on some file system."""

    filesystem: pafs.FileSystem
    root: str

    def at(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root else path

    def write(
        self, epoch: Epoch, task: int, batches: Iterator[pa.RecordBatch], layout: FileLayout
    ) -> TaskFiles:
        """All rows, one file for each partition; a failure leaves nothing behind."""
        counter = RangeCounter()
        tracked = offset_ranges.tracked(layout.schema)
        with OpenTableFiles(self, epoch_folder(epoch), f"{task:05d}", layout) as files:
            for batch in batches:
                if not batch.num_rows:
                    continue
                rows = fitted(batch, layout.schema)
                if tracked:
                    counter.add(rows)
                files.add(rows)
            return TaskFiles(epoch, files.finish(), counter.ranges())

    def rewrite(
        self, batches: Iterator[pa.RecordBatch], layout: FileLayout
    ) -> tuple[WrittenFile, ...]:
        """Rows of several files in new ones, for a compaction."""
        with OpenTableFiles(self, COMPACTED, str(uuid.uuid4()), layout) as files:
            for batch in batches:
                if batch.num_rows:
                    files.add(fitted(batch, layout.schema))
            return files.finish()

    def remove(self, paths: Collection[str]) -> None:
        """Delete files; what is gone already or cannot be deleted is only worth a line."""
        for path in paths:
            try:
                self.filesystem.delete_file(self.at(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("could not remove the orphan %s: %s", self.at(path), error)

    def sweep(self, epoch: Epoch, keep: Collection[str]) -> list[str]:
        """Remove what failed attempts left in the folder of an epoch; the names of it."""
        folder = epoch_folder(epoch)
        selector = pafs.FileSelector(self.at(folder), allow_not_found=True)
        found = [f"{folder}/{info.base_name}" for info in self.filesystem.get_file_info(selector)]
        orphans = sorted(set(found) - set(keep))
        self.remove(orphans)
        return orphans


def epoch_folder(epoch: Epoch) -> str:
    """Where the files of an epoch are, relative to the table."""
    return f"{FOLDER}/{epoch.query}/{epoch.number}"


def epoch_of(path: str) -> Epoch | None:
    """The epoch that wrote a file, by its path; None for other people's files."""
    _, found, rest = path.rpartition(f"{FOLDER}/")
    parts = rest.split("/")
    if not found or len(parts) != 3 or not parts[1].isdigit():
        return None
    return Epoch(parts[0], int(parts[1]))


def named_in(paths: Iterable[str], epoch: Epoch) -> frozenset[str]:
    """Those of some files that an epoch wrote, relative to the table as `sweep` names them."""
    names = (path.rpartition("/")[2] for path in paths if epoch_of(path) == epoch)
    return frozenset(f"{epoch_folder(epoch)}/{name}" for name in names)
