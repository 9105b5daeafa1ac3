"""The Parquet files that a task writes concurrently: one for each partition of its rows.

Rows are buffered until they fill a row group, or until all buffers together are too large. The
number of open files is bounded: the least recently written one is closed, and further rows of its
partition begin another file.
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.pipelines.lake.json_lines import JsonLinesWriter
from headrace.pipelines.lake.partitioning import FileLayout, Values
from headrace.pipelines.lake.statistics import delta_statistics

if TYPE_CHECKING:
    from headrace.pipelines.lake.files import TableFolder

# A row group is what a reader skips or reads as a whole; Spark sends batches of 10,000 rows.
GROUP_ROWS = 1 << 17
GROUP_BYTES = 64 << 20
# The limit of all partitions together.
WAITING_BYTES = 128 << 20
OPEN_FILES = 32


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A data file that is not committed yet; `path` is relative to the table."""

    path: str
    rows: int
    size_bytes: int
    partition: Values
    # In the format of Delta's log.
    statistics: str


@dataclass(slots=True)
class _Waiting:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class _Open:
    path: str
    resources: ExitStack
    writer: pq.ParquetWriter | JsonLinesWriter
    footers: list[pq.FileMetaData]
    """Of a Parquet file, when it is closed."""
    rows: int = 0
    with_nan: set[str] = field(default_factory=set)


class OpenTableFiles:
    """Writes batches to files in one folder of a table. A failure removes the files."""

    def __init__(self, table: "TableFolder", folder: str, name: str, layout: FileLayout) -> None:
        self._table = table
        self._folder = folder
        self._name = name
        self._layout = layout
        self._schema = layout.file_schema
        self._waiting: dict[Values, _Waiting] = {}
        self._waiting_bytes = 0
        # In the order in which they were last written to.
        self._open: dict[Values, _Open] = {}
        self._paths: list[str] = []
        self._done: list[WrittenFile] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            for each in self._open.values():
                # This may fail for the same reason as the task; the first error is raised.
                with suppress(Exception):
                    each.resources.close()
            self._table.remove(self._paths)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with the columns of the layout."""
        for values, rows in self._layout.split(batch):
            waiting = self._waiting.setdefault(values, _Waiting())
            waiting.batches.append(rows.select(self._schema.names))
            waiting.rows += rows.num_rows
            waiting.size_bytes += rows.nbytes
            self._waiting_bytes += rows.nbytes
            if waiting.rows >= GROUP_ROWS or waiting.size_bytes >= GROUP_BYTES:
                self._write(values)
        if self._waiting_bytes > WAITING_BYTES:
            self._make_room()

    def finish(self) -> tuple[WrittenFile, ...]:
        """Write the buffered rows and close all files; returns the files."""
        for values in list(self._waiting):
            self._write(values)
        for values in list(self._open):
            self._close(values)
        return tuple(self._done)

    def _make_room(self) -> None:
        largest = sorted(self._waiting, key=lambda each: -self._waiting[each].size_bytes)
        for values in largest:
            if self._waiting_bytes <= WAITING_BYTES // 2:
                return
            self._write(values)

    def _write(self, values: Values) -> None:
        waiting = self._waiting.pop(values)
        self._waiting_bytes -= waiting.size_bytes
        rows = pa.Table.from_batches(waiting.batches, self._schema)
        limit = self._layout.file_rows
        while rows.num_rows:
            file = self._open.pop(values, None) or self._create()
            self._open[values] = file
            if len(self._open) > OPEN_FILES:
                self._close(next(iter(self._open)))
            some = rows.slice(0, limit - file.rows) if limit else rows
            file.with_nan.update(_with_nan(some))
            file.writer.write_table(some, row_group_size=GROUP_ROWS)
            file.rows += some.num_rows
            if file.rows == limit:
                self._close(values)
            rows = rows.slice(some.num_rows)

    def _create(self) -> _Open:
        # The number preserves the order of the files of one partition.
        path = (
            f"{self._folder}/{self._name}-{len(self._paths):05d}-{uuid.uuid4()}{self._table.ending}"
        )
        if not self._paths:
            self._table.filesystem.create_dir(self._table.at(self._folder), recursive=True)
        self._paths.append(path)
        footers: list[pq.FileMetaData] = []
        with ExitStack() as resources:
            out = self._table.filesystem.open_output_stream(self._table.at(path))
            resources.enter_context(out)
            writer = self._writer(out, footers)
            resources.enter_context(writer)
            return _Open(path, resources.pop_all(), writer, footers)

    def _writer(
        self, out: pa.NativeFile, footers: list[pq.FileMetaData]
    ) -> pq.ParquetWriter | JsonLinesWriter:
        if self._layout.format == "jsonl":
            return JsonLinesWriter(out)
        return pq.ParquetWriter(out, self._schema, compression="zstd", metadata_collector=footers)

    def _close(self, values: Values) -> None:
        file = self._open.pop(values)
        file.resources.close()
        size = self._table.filesystem.get_file_info(self._table.at(file.path)).size
        statistics = ""
        for footer in file.footers:
            statistics = delta_statistics(footer, self._schema, file.with_nan)
        self._done.append(WrittenFile(file.path, file.rows, size, values, statistics))


def _with_nan(rows: pa.Table) -> Iterator[str]:
    for name, kind in zip(rows.schema.names, rows.schema.types, strict=True):
        if pa.types.is_floating(kind) and pc.any(pc.is_nan(rows.column(name))).as_py():
            yield name
