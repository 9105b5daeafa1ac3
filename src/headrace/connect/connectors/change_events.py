"""Debezium's envelope of change events, as columns of Arrow. The sources of changes use it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.connect.connectors.event_times import TimeEncoding
from headrace.connect.connectors.jdbc.dialects import TableColumn


def with_decimals(columns: Sequence[TableColumn], word: str, mode: str) -> list[TableColumn]:
    """The columns with the type that decimals have in events; `word` is the database's name.

    The modes are those of Debezium's `decimal.handling.mode`.
    """
    other = {"double": pa.float64(), "string": pa.string()}.get(mode)
    return [
        column
        if other is None or re.fullmatch(rf"{word}\b[^\]]*", column.type) is None
        else replace(column, arrow=other)
        for column in columns
    ]


@dataclass(frozen=True, slots=True)
class Envelope:
    """The events of one table: before, after, source, op and ts_ms, by the table's key."""

    columns: Sequence[TableColumn]
    source: pa.StructType
    """The type of the block `source`, which depends on the database."""
    times: Mapping[str, TimeEncoding] = field(default_factory=dict)
    """The columns whose values `batch` encodes."""

    @property
    def keys(self) -> Sequence[TableColumn]:
        found = [column for column in self.columns if column.key]
        return sorted(found, key=lambda column: column.key)

    @property
    def row(self) -> pa.StructType:
        """The type of rows as they are read."""
        return pa.struct([(column.name, column.arrow) for column in self.columns])

    @property
    def schema(self) -> pa.Schema:
        row = pa.struct([(column.name, self._type(column)) for column in self.columns])
        value = pa.struct(
            [
                ("before", row),
                ("after", row),
                ("source", self.source),
                ("op", pa.string()),
                ("ts_ms", pa.int64()),
            ]
        )
        fields = [pa.field("value", value)]
        if self.keys:
            key = pa.struct([(column.name, self._type(column)) for column in self.keys])
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
        is_keyed_after = keyed is after
        before, after = self._encoded(before), self._encoded(after)
        keyed = after if is_keyed_after else self._encoded(keyed)
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

    def _type(self, column: TableColumn) -> pa.DataType:
        encoding = self.times.get(column.name)
        return column.arrow if encoding is None else encoding.type

    def _encoded(self, rows: pa.StructArray) -> pa.StructArray:
        if not self.times:
            return rows
        names = [field.name for field in rows.type]
        arrays = [
            self.times[name].encode(array) if name in self.times else array
            for name, array in zip(names, rows.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, names, mask=rows.is_null())
