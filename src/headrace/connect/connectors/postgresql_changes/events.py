"""Change events in Debezium's envelope, as columns of Arrow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.connectors.change_events import Envelope
from headrace.connect.connectors.event_times import TimeEncoding
from headrace.connect.connectors.jdbc.dialects import TableColumn, TableName
from headrace.connect.connectors.postgresql_changes.pgoutput import (
    RowChange,
    TextTuple,
    TextValue,
    Unchanged,
)

UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium has for a long value that an update did not change."""
_SOURCE = pa.struct(
    [
        ("version", pa.string()),
        ("connector", pa.string()),
        ("name", pa.string()),
        ("ts_ms", pa.int64()),
        ("snapshot", pa.string()),
        ("db", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("txId", pa.int64()),
        ("lsn", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class TableEvents:
    """Makes the events of one table."""

    server: str
    database: str
    table: TableName
    columns: Sequence[TableColumn]
    tombstones: bool
    times: Mapping[str, TimeEncoding]

    @property
    def envelope(self) -> Envelope:
        return Envelope(self.columns, _SOURCE, self.times)

    @property
    def keys(self) -> Sequence[TableColumn]:
        return self.envelope.keys

    @property
    def schema(self) -> pa.Schema:
        return self.envelope.schema

    def snapshot(self, rows: pa.RecordBatch, lsn: int, now_ms: int) -> pa.RecordBatch:
        """The rows of a snapshot as events."""
        count = rows.num_rows
        after = pa.StructArray.from_arrays(rows.columns, rows.schema.names)
        source = self._source([now_ms] * count, "true", [None] * count, [lsn] * count)
        before = pa.nulls(count, after.type)
        return self.envelope.batch(after, before, after, source, ["r"] * count, [now_ms] * count)

    def changes(self, found: Sequence[RowChange]) -> pa.RecordBatch:
        """The changes of rows as events; a deletion is followed by its tombstone."""
        events = [event for change in found for event in self._events(change)]
        before = self._rows([change.before for change, _ in events], found)
        after = self._rows([change.after for change, _ in events], found)
        keyed = [change.before if change.after is None else change.after for change, _ in events]
        times = [change.transaction.time_ms for change, _ in events]
        source = self._source(
            times,
            "false",
            [change.transaction.number for change, _ in events],
            [change.lsn for change, _ in events],
        )
        ops = [change.op for change, _ in events]
        is_tombstone = [tombstone for _, tombstone in events]
        # Reading texts as types is most of the work, and most changes have a row after them.
        keys = after if after.null_count == 0 else self._rows(keyed, found)
        return self.envelope.batch(keys, before, after, source, ops, times, is_tombstone)

    def _events(self, change: RowChange) -> list[tuple[RowChange, bool]]:
        if change.op == "u" and change.has_key_only:
            # The key has changed: for readers by key the row is deleted and another one made.
            old = RowChange("d", change.before, None, change.names, True, change.lsn,
                            change.transaction)  # fmt: skip
            new = RowChange("c", None, change.after, change.names, False, change.lsn,
                            change.transaction)  # fmt: skip
            return [*self._events(old), (new, False)]
        if change.op == "d" and self.tombstones and self.keys:
            return [(change, False), (change, True)]
        return [(change, False)]

    def _rows(self, rows: Sequence[TextTuple | None], found: Sequence[RowChange]) -> pa.Array:
        """Tuples of text as structs. All changes of a batch have the same columns."""
        names = [column.name for column in self.columns]
        if not any(rows):
            return pa.nulls(len(rows), self.envelope.row)
        places = {name: place for place, name in enumerate(found[0].names)}
        nothing: TextTuple = [None] * len(places)
        values = list(zip(*(nothing if row is None else row for row in rows), strict=True))
        arrays = [
            typed(values[places[column.name]], column.arrow)
            if column.name in places
            else pa.nulls(len(rows), column.arrow)
            for column in self.columns
        ]
        missing = pa.array([row is None for row in rows])
        return pa.StructArray.from_arrays(arrays, names, mask=missing)

    def _source(
        self,
        times: Sequence[int],
        snapshot: str,
        numbers: Sequence[int | None],
        lsns: Sequence[int],
    ) -> pa.Array:
        from headrace import __version__

        def constant(text: str) -> pa.Array:
            return pa.repeat(text, len(times))

        return pa.StructArray.from_arrays(
            [
                constant(__version__),
                constant("postgresql"),
                constant(self.server),
                pa.array(times, pa.int64()),
                constant(snapshot),
                constant(self.database),
                constant(self.table.schema),
                constant(self.table.name),
                pa.array(numbers, pa.int64()),
                pa.array(lsns, pa.int64()),
            ],
            fields=list(_SOURCE),
        )


def typed(values: Sequence[TextValue], kind: pa.DataType) -> pa.Array:
    """Texts of PostgreSQL in an Arrow type."""
    try:
        texts = pa.array(values, pa.binary())
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        stand_in = UNAVAILABLE if kind in (pa.string(), pa.binary()) else None
        if kind == pa.binary():
            stand_in = f"\\x{UNAVAILABLE.encode().hex()}"
        known = [stand_in if isinstance(value, Unchanged) else value for value in values]
        texts = pa.array(known, pa.binary())
    if kind == pa.binary():
        found = [
            None if text is None else bytes.fromhex(text[2:].decode()) for text in texts.to_pylist()
        ]
        return pa.array(found, kind)
    if kind == pa.bool_():
        return pc.equal(texts, b"t")
    return texts.cast(pa.string()).cast(kind)
