"""Parquet files that are written before the table refers to them.

    <table>/data/headrace/<query>/<epoch>/<task>-<number>-<uuid>.parquet
    <table>/data/headrace/compacted/<compaction>-<number>-<uuid>.parquet

A file belongs to the table only when a commit refers to it. All others in an epoch's folder are
left over from failed attempts, and `sweep` removes them when the epoch is committed.
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
# Files of compactions do not belong to one epoch.
COMPACTED = f"{FOLDER}/compacted"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskFiles(WriterCommitMessage):  # type: ignore[misc]
    """The result of a task for the driver; without files if it had no rows."""

    epoch: Epoch
    files: tuple[WrittenFile, ...]
    ranges: dict[TopicPartition, tuple[Range, ...]]


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The root of a table on a file system."""

    filesystem: pafs.FileSystem
    root: str
    ending: str = ".parquet"
    """The ending of the names of new files."""

    def at(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root else path

    def write(
        self, epoch: Epoch, task: int, batches: Iterator[pa.RecordBatch], layout: FileLayout
    ) -> TaskFiles:
        """Write all rows, one file for each partition; a failure removes the files."""
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
        """Write the rows of several files into new ones, for a compaction."""
        with OpenTableFiles(self, COMPACTED, str(uuid.uuid4()), layout) as files:
            for batch in batches:
                if batch.num_rows:
                    files.add(fitted(batch, layout.schema))
            return files.finish()

    def remove(self, paths: Collection[str]) -> None:
        """Delete files; failures are only logged."""
        for path in paths:
            try:
                self.filesystem.delete_file(self.at(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("cannot remove the orphaned file %s: %s", self.at(path), error)

    def sweep(self, epoch: Epoch, keep: Collection[str]) -> list[str]:
        """Remove the files of failed attempts from the folder of an epoch; returns their names."""
        folder = epoch_folder(epoch)
        selector = pafs.FileSelector(self.at(folder), allow_not_found=True)
        found = [f"{folder}/{info.base_name}" for info in self.filesystem.get_file_info(selector)]
        orphans = sorted(set(found) - set(keep))
        self.remove(orphans)
        return orphans


def epoch_folder(epoch: Epoch) -> str:
    """The folder of an epoch's files, relative to the table."""
    return f"{FOLDER}/{epoch.query}/{epoch.number}"


def epoch_of(path: str) -> Epoch | None:
    """The epoch that wrote a file, by its path; None for files of other writers."""
    _, found, rest = path.rpartition(f"{FOLDER}/")
    parts = rest.split("/")
    if not found or len(parts) != 3 or not parts[1].isdigit():
        return None
    return Epoch(parts[0], int(parts[1]))


def named_in(paths: Iterable[str], epoch: Epoch) -> frozenset[str]:
    """Those of the files that an epoch wrote, relative to the table, as in `sweep`."""
    names = (path.rpartition("/")[2] for path in paths if epoch_of(path) == epoch)
    return frozenset(f"{epoch_folder(epoch)}/{name}" for name in names)
