"""The Spark sinks for tables in the lake: tasks write files, the driver commits once.

The differences between Delta and Iceberg are behind `LakeTable`. The common rules are here: an
epoch is committed once, together with its number and its offsets; a replayed epoch adds nothing;
files without a commit are removed, but never one that a commit may refer to.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from headrace.pipelines.lake import ranges
from headrace.pipelines.lake.files import TableFolder, TaskFiles
from headrace.pipelines.lake.open_files import WrittenFile
from headrace.pipelines.lake.partitioning import FileLayout
from headrace.pipelines.lake.ranges import Ranges
from headrace.pipelines.sink import epoch as epochs
from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.worker_memory import modules_frozen_after
from headrace.pipelines.worker_socket import SentToTasks

_log = logging.getLogger(__name__)

# Commit properties, the same in Delta's commitInfo and in Iceberg's snapshot summary.
QUERY = "headrace.query"
EPOCH = "headrace.epoch"
OFFSETS = "headrace.offsets"
# The property of a compaction: how many files it replaced.
COMPACTION = "headrace.compaction"


class EpochTaken(Exception):
    """Another writer has committed this epoch of this query."""


class LakeTable(Protocol):
    """A table that adds an epoch's files in one commit. Picklable: it is sent to the tasks."""

    def prepare(self, schema: pa.Schema, partition_by: tuple[str, ...] | None = None) -> FileLayout:
        """Create the table or add new columns; returns the layout of files.

        Without `partition_by` an existing table keeps its partitioning, and a new one is not
        partitioned.
        """

    def folder(self) -> TableFolder:
        """The folder of the table's files."""

    def last_epoch(self, query: str) -> int | None:
        """The newest epoch of the query that is in the table."""

    def append(self, commit: "EpochCommit") -> None:
        """Add the files and properties in one commit; EpochTaken if the epoch is committed."""

    def files_of(self, epoch: Epoch) -> frozenset[str] | None:
        """The files of the epoch's commit; None if the commit is no longer in the history."""


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """The content of one commit."""

    epoch: Epoch
    files: tuple[WrittenFile, ...]
    ranges: Ranges
    layout: FileLayout
    overwrite: bool

    def properties(self) -> dict[str, str]:
        """The properties that are stored in the table's commit."""
        return {
            QUERY: self.epoch.query,
            EPOCH: str(self.epoch.number),
            OFFSETS: ranges.to_json(self.ranges),
        }


class LakeSink:
    """The common part of both writers."""

    def __init__(
        self,
        table: LakeTable,
        schema: StructType,
        overwrite: bool,
        partition_by: tuple[str, ...] | None = None,
    ) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._table = table
        self._overwrite = overwrite
        self._layout = table.prepare(to_arrow_schema(schema, timezone="UTC"), partition_by)

    def write(self, epoch: Epoch, batches: Iterator[pa.RecordBatch]) -> TaskFiles:
        """In a task: write a Parquet file for each partition."""
        with modules_frozen_after():
            return self._table.folder().write(epoch, epochs.task_number(), batches, self._layout)

    def commit(self, messages: Sequence[TaskFiles | None]) -> None:
        """In the driver: commit all files of the epoch once."""
        done = [message for message in messages if message is not None]
        if not done:
            return
        epoch = done[0].epoch
        files = tuple(file for message in done for file in message.files)
        paths = [file.path for file in files]
        merged = ranges.merge(message.ranges for message in done)
        folder = self._table.folder()
        try:
            self._table.append(EpochCommit(epoch, files, merged, self._layout, self._overwrite))
        except EpochTaken:
            _log.warning("epoch %d of query %s is in the table already", epoch.number, epoch.query)
            keep = self._table.files_of(epoch)
            # It may have been this commit, if its response was lost.
            folder.remove([path for path in paths if keep is None or path not in keep])
            if keep is None:
                return
        else:
            keep = frozenset(paths)
        try:
            # After a replay, too: the process that committed may have been killed before this line.
            folder.sweep(epoch, keep)
        except OSError as error:
            # The commit is valid. An exception here would make Spark abort a committed epoch.
            _log.warning("cannot remove orphaned files of epoch %d: %s", epoch.number, error)

    def abort(self, messages: Sequence[TaskFiles | None]) -> None:
        """In the driver: remove the files, unless the commit succeeded and only seemed lost."""
        done = [message for message in messages if message is not None]
        if not done:
            return
        epoch = done[0].epoch
        last = self._table.last_epoch(epoch.query)
        if last is None or last < epoch.number:
            self._table.folder().sweep(epoch, keep=())


class LakeBatchWriter(SentToTasks, DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write`: a query with one epoch."""

    def __init__(self, sink: LakeSink) -> None:
        self._sink = sink
        self._epoch = epochs.batch_job()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        return self._sink.write(self._epoch, iterator)

    def commit(self, messages: Sequence[TaskFiles | None]) -> None:
        self._sink.commit(messages)

    def abort(self, messages: Sequence[TaskFiles | None]) -> None:
        self._sink.abort(messages)


class LakeStreamWriter(SentToTasks, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream`: an epoch is a micro-batch."""

    def __init__(self, sink: LakeSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        return self._sink.write(epochs.of_stream(), iterator)

    def commit(self, messages: Sequence[TaskFiles | None], batchId: int) -> None:
        self._sink.commit(messages)

    def abort(self, messages: Sequence[TaskFiles | None], batchId: int) -> None:
        self._sink.abort(messages)
