"""Debezium's envelope of change events, as columns of Arrow. The sources of changes use it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.connect.connectors.jdbc.dialects import TableColumn


@dataclass(frozen=True, slots=True)
class Envelope:
    """The events of one table: before, after, source, op and ts_ms, by the table's key."""

    columns: Sequence[TableColumn]
    source: pa.StructType
    """The type of the block `source`, which depends on the database."""

    @property
    def keys(self) -> Sequence[TableColumn]:
        found = [column for column in self.columns if column.key]
        return sorted(found, key=lambda column: column.key)

    @property
    def row(self) -> pa.StructType:
        return pa.struct([(column.name, column.arrow) for column in self.columns])

    @property
    def schema(self) -> pa.Schema:
        value = pa.struct(
            [
                ("before", self.row),
                ("after", self.row),
                ("source", self.source),
                ("op", pa.string()),
                ("ts_ms", pa.int64()),
            ]
        )
        fields = [pa.field("value", value)]
        if self.keys:
            key = pa.struct([(column.name, column.arrow) for column in self.keys])
            fields.insert(0, pa.field("key", key))
        return pa.schema(fields)

    def batch(
        self,
        keyed: pa.Array,
        before: pa.Array,
        after: pa.Array,
        source: pa.Array,
        ops: Sequence[str],
        times: Sequence[int],
        is_tombstone: Sequence[bool] | None = None,
    ) -> pa.RecordBatch:
        """`keyed` has the rows whose keys the events have; a tombstone has no value."""
        value = pa.StructArray.from_arrays(
            [before, after, source, pa.array(ops, pa.string()), pa.array(times, pa.int64())],
            ["before", "after", "source", "op", "ts_ms"],
            mask=None if is_tombstone is None else pa.array(is_tombstone),
        )
        columns = [value]
        if self.keys:
            fields = dict(zip((field.name for field in keyed.type), keyed.flatten(), strict=True))
            names = [column.name for column in self.keys]
            columns.insert(0, pa.StructArray.from_arrays([fields[name] for name in names], names))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
