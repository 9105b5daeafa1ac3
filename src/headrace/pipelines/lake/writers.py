"""The sinks of Spark for a table in the lake: tasks write files, the driver commits once.

What differs between Delta and Iceberg is behind `LakeTable`. The rules are here: an epoch is
committed once, together with its number and the offsets in it; a replayed epoch adds nothing;
files that no commit names are removed, and never one that a commit may name.
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
# Of a compaction: how many files it replaced.
COMPACTION = "headrace.compaction"


class EpochTaken(Exception):
    """Another writer has committed this epoch of this query."""


class LakeTable(Protocol):
    """A table that takes an epoch's files in one commit. Picklable: it travels to the tasks."""

    def prepare(self, schema: pa.Schema, partition_by: tuple[str, ...] | None = None) -> FileLayout:
        """Create the table or add new columns; how files are to be written.

        Without `partition_by` an existing table keeps its partitioning, and a new one has none.
        """

    def folder(self) -> TableFolder:
        """Where the table's files are."""

    def last_epoch(self, query: str) -> int | None:
        """The newest epoch of the query that is in the table."""

    def append(self, commit: "EpochCommit") -> None:
        """Add the files with their properties in one commit; EpochTaken if that was done."""

    def files_of(self, epoch: Epoch) -> frozenset[str] | None:
        """The files that the epoch's commit named; None if the table no longer knows it."""


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """All that one commit brings."""

    epoch: Epoch
    files: tuple[WrittenFile, ...]
    ranges: Ranges
    layout: FileLayout
    overwrite: bool

    def properties(self) -> dict[str, str]:
        """What the table's own commit says about it."""
        return {
            QUERY: self.epoch.query,
            EPOCH: str(self.epoch.number),
            OFFSETS: ranges.to_json(self.ranges),
        }


class LakeSink:
    """What both writers do."""

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
        """In a task: a Parquet file for each partition."""
        with modules_frozen_after():
            return self._table.folder().write(epoch, epochs.task_number(), batches, self._layout)

    def commit(self, messages: Sequence[TaskFiles | None]) -> None:
        """In the driver: all files of the epoch in one commit, once."""
        done = [message for message in messages if message is not None]
        if not done:
            return
        epoch = done[0].epoch
        files = tuple(file for message in done for file in message.files)
        paths = [file.path for file in files]
        merged = ranges.merge(message.ranges for message in done)
        folder = self._table.folder()
        last = self._table.last_epoch(epoch.query)
        try:
            if last is not None and last >= epoch.number:
                raise EpochTaken
            self._table.append(EpochCommit(epoch, files, merged, self._layout, self._overwrite))
        except EpochTaken:
            _log.warning("epoch %d of query %s is in the table already", epoch.number, epoch.query)
            keep = self._table.files_of(epoch)
            # It may have been this very commit, if its answer was lost on the way.
            folder.remove([path for path in paths if keep is None or path not in keep])
            if keep is None:
                return
        else:
            keep = frozenset(paths)
        try:
            # After a replay, too: who committed may have been killed before it came to this line.
            folder.sweep(epoch, keep)
        except OSError as error:
            # The commit stands. An exception here would make Spark abort what is committed.
            _log.warning("could not look for orphans of epoch %d: %s", epoch.number, error)

    def abort(self, messages: Sequence[TaskFiles | None]) -> None:
        """In the driver: remove the files, unless the commit went through and only seemed lost."""
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
