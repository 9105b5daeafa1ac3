"""Partition columns of a table: which are allowed, and how a batch is split by them.

Partition values are stored in the table's metadata and never in file paths, so that no value needs
escaping or is too long for a file name.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.pipelines.lake.columns import ColumnsDiffer

# One value for each partition column, in their order.
Values = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How a task writes its rows: the columns, and those that separate the files."""

    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    # Iceberg keeps partition columns in the data files, Delta only in its log.
    values_in_files: bool = True
    # How many rows a file has at most; 0: no limit.
    file_rows: int = 0
    format: str = "parquet"

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of a data file."""
        if self.values_in_files:
            return self.schema
        return pa.schema([field for field in self.schema if field.name not in self.partition_by])

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """The rows of each partition, in the order of the batch."""
        return split(batch, self.partition_by)


def parse(text: str | None) -> tuple[str, ...] | None:
    """The option `partitionBy`: names separated by commas, or a JSON list; None if absent."""
    if text is None:
        return None
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError as error:
            raise ValueError(f"partitionBy={text}: not a JSON list of column names") from error
        if not all(isinstance(name, str) for name in names):
            raise ValueError(f"partitionBy={text}: not a JSON list of column names")
    else:
        names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise ValueError(f"partitionBy={text}: a column name is empty")
    if len(set(names)) != len(names):
        raise ValueError(f"partitionBy={text}: a column is listed twice")
    return tuple(names)


def check(names: Sequence[str], schema: pa.Schema, table: str) -> None:
    """ColumnsDiffer unless rows of `schema` can be partitioned by these columns."""
    for name in names:
        if name not in schema.names:
            raise ColumnsDiffer(
                f"the table {table} is to be partitioned by {name!r}, which the DataFrame does not "
                f"have; its columns are {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if not _allowed(kind):
            raise ColumnsDiffer(
                f"the column {name!r} of type {kind} cannot partition the table {table}: use a "
                "string, integer, boolean, date or timestamp column"
            )
    if names and len(names) == len(schema.names):
        raise ColumnsDiffer(
            f"the table {table} would be partitioned by all of its columns; at least one column "
            "must not be a partition column"
        )


def agreed(
    wanted: tuple[str, ...] | None, there: tuple[str, ...], schema: pa.Schema, table: str
) -> tuple[str, ...]:
    """The table's partition columns; ColumnsDiffer if the query specifies others."""
    if wanted is not None and wanted != there:
        have = f"is partitioned by {', '.join(there)}" if there else "is not partitioned"
        ask = f"partitionBy({', '.join(wanted)})" if wanted else "no partition columns"
        raise ColumnsDiffer(
            f"the table {table} {have}, but the query specifies {ask}; the partitioning of a table "
            "cannot change: leave partitionBy out, or write to another table"
        )
    check(there, schema, table)
    return there


def split(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of each partition, in the order of the batch."""
    if not names:
        yield (), batch
        return
    codes = _codes(batch, names)
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, cuts):
        values = tuple(batch.column(name)[int(rows[0])].as_py() for name in names)
        # A copy: a slice would keep the whole batch in memory for its smallest partition.
        yield values, batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))


def delta_text(value: object) -> str | None:
    """A partition value in the format of Delta's log.

    The protocol has no empty string: it becomes null, as in every other Delta writer.
    """
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        text = value.isoformat(" " if value.tzinfo is None else "T", "microseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def _codes(batch: pa.RecordBatch, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each row; rows with the same number belong to the same partition."""
    codes = np.zeros(batch.num_rows, np.int64)
    for name in names:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        column = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # The codes are renumbered after each column, so that many columns do not overflow.
        _, codes = np.unique(codes * len(encoded.dictionary) + column, return_inverse=True)
    return codes


def _allowed(kind: pa.DataType) -> bool:
    """No fractions: equal values have several texts, and delta-rs misreads some decimals."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_integer(kind)
        or types.is_boolean(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
    )
