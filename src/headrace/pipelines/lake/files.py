"""Parquet files of a table that are written before anybody refers to them.

    <table>/data/headrace/<query>/<epoch>/<task>-<uuid>.parquet

A file belongs to the table only once a commit names it. All others in an epoch's folder were left
by attempts that failed, and `sweep` removes them when the epoch is committed.
"""

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql.datasource import WriterCommitMessage

from headrace.pipelines.epoch import Epoch
from headrace.pipelines.lake import ranges as offset_ranges
from headrace.pipelines.lake.columns import fitted
from headrace.pipelines.lake.ranges import Range, RangeCounter
from headrace.types import TopicPartition

FOLDER = "data/headrace"
# A row group is what a reader skips or reads as a whole; Spark sends batches of 10,000 rows.
GROUP_ROWS = 1 << 17
GROUP_BYTES = 64 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WrittenFile(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the driver. `path` is relative to the table, None if there was no row."""

    epoch: Epoch
    path: str | None
    rows: int
    size_bytes: int
    ranges: dict[TopicPartition, tuple[Range, ...]]


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A table's root on some file system."""

    filesystem: pafs.FileSystem
    root: str

    def at(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root else path

    def write(
        self, epoch: Epoch, task: int, batches: Iterator[pa.RecordBatch], schema: pa.Schema
    ) -> WrittenFile:
        """One file of all rows; a failure leaves nothing behind."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return WrittenFile(epoch, None, 0, 0, {})
        folder = epoch_folder(epoch)
        path = f"{folder}/{task:05d}-{uuid.uuid4()}.parquet"
        self.filesystem.create_dir(self.at(folder), recursive=True)
        try:
            counter, rows = RangeCounter(), 0
            with (
                self.filesystem.open_output_stream(self.at(path)) as out,
                pq.ParquetWriter(out, schema, compression="zstd") as writer,
            ):
                for group in _groups(first, batches, schema):
                    if offset_ranges.tracked(schema):
                        counter.add(group)
                    rows += group.num_rows
                    writer.write_table(group, row_group_size=GROUP_ROWS)
        except BaseException:
            self.remove([path])
            raise
        size = self.filesystem.get_file_info(self.at(path)).size
        return WrittenFile(epoch, path, rows, size, counter.ranges())

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


def _groups(
    first: pa.RecordBatch, rest: Iterator[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.Table]:
    held = [fitted(first, schema)]
    rows, size = first.num_rows, first.nbytes
    for batch in rest:
        held.append(fitted(batch, schema))
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held, schema)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held, schema)
