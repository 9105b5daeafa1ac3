"""Change events of one table of MySQL or MariaDB."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.connect.connectors.change_events import Envelope
from headrace.connect.connectors.event_times import TimeEncoding
from headrace.connect.connectors.jdbc.dialects import TableColumn
from headrace.connect.connectors.jdbc.mysql import Mysql
from headrace.connect.connectors.mysql_changes.binlog import BinlogPosition
from headrace.connect.connectors.mysql_changes.table_maps import KnownTable
from headrace.connect.connectors.mysql_changes.transactions import BinlogRowChange, Row
from headrace.connect.plugin import PermanentError

EVENTS_A_BATCH = 10_000
_SOURCE = pa.struct(
    [
        ("version", pa.string()),
        ("connector", pa.string()),
        ("name", pa.string()),
        ("ts_ms", pa.int64()),
        ("snapshot", pa.string()),
        ("db", pa.string()),
        ("table", pa.string()),
        ("server_id", pa.int64()),
        ("gtid", pa.string()),
        ("file", pa.string()),
        ("pos", pa.int64()),
        ("row", pa.int32()),
    ]
)


@dataclass(frozen=True, slots=True)
class BinlogTableEvents:
    """Makes the events of one table."""

    server: str
    table: KnownTable
    columns: Sequence[TableColumn]
    """Those that are read, with the types that they have in events."""
    tombstones: bool
    times: Mapping[str, TimeEncoding]
    database: Mysql

    @property
    def envelope(self) -> Envelope:
        return Envelope(self.columns, _SOURCE, self.times)

    def snapshot(
        self, rows: pa.StructArray, position: BinlogPosition, now_ms: int
    ) -> pa.RecordBatch:
        """The rows of a snapshot as events."""
        count = len(rows)
        times = [now_ms] * count
        source = self._source(times, "true", [(0, None, position, 0)] * count)
        return self.envelope.batch(
            rows, pa.nulls(count, rows.type), rows, source, ["r"] * count, times
        )

    def changes(self, found: Iterable[BinlogRowChange]) -> Iterator[pa.RecordBatch]:
        """The changes of rows as events; a deletion is followed by its tombstone."""
        for _, same in itertools.groupby(found, key=lambda change: id(change.layout)):
            while some := list(itertools.islice(same, EVENTS_A_BATCH)):
                yield self._batch(some)

    def rows(self, rows: Sequence[Row | None], names: Sequence[str]) -> pa.StructArray:
        """Rows with these columns as structs of the table's columns; null where there is none."""
        if not any(row is not None for row in rows):
            return pa.nulls(len(rows), self.envelope.row)
        places = {name: place for place, name in enumerate(names)}
        nothing: Row = (None,) * len(names)
        values = list(zip(*(nothing if row is None else row for row in rows), strict=True))
        arrays = [
            self._typed(values[places[column.name]], column)
            if column.name in places
            else pa.nulls(len(rows), column.arrow)
            for column in self.columns
        ]
        missing = pa.array([row is None for row in rows])
        fields = [column.name for column in self.columns]
        return pa.StructArray.from_arrays(arrays, fields, mask=missing)

    def _batch(self, found: Sequence[BinlogRowChange]) -> pa.RecordBatch:
        events = [event for change in found for event in self._events(change)]
        names = found[0].layout.names
        before = self.rows([change.before for change, _ in events], names)
        after = self.rows([change.after for change, _ in events], names)
        times = [change.event.time_s * 1000 for change, _ in events]
        places = [
            (change.event.server_id, change.gtid, change.event.end, change.row)
            for change, _ in events
        ]
        keyed = after
        if after.null_count:
            keyed = self.rows([change.after or change.before for change, _ in events], names)
        return self.envelope.batch(
            keyed,
            before,
            after,
            self._source(times, "false", places),
            [change.op for change, _ in events],
            times,
            [is_tombstone for _, is_tombstone in events],
        )

    def _events(self, change: BinlogRowChange) -> list[tuple[BinlogRowChange, bool]]:
        if change.op == "u" and self._key(change.before, change) != self._key(change.after, change):
            # For readers by key the row is deleted and another one made.
            old = change._replace(op="d", after=None)
            return [*self._events(old), (change._replace(op="c", before=None), False)]
        if change.op == "d" and self.tombstones and self.envelope.keys:
            return [(change, False), (change, True)]
        return [(change, False)]

    def _key(self, row: Row | None, change: BinlogRowChange) -> list[object]:
        assert row is not None
        names = change.layout.names
        return [row[names.index(key.name)] for key in self.envelope.keys if key.name in names]

    def _typed(self, values: Sequence[object], column: TableColumn) -> pa.Array:
        kind = column.arrow
        try:
            return pa.array([self.database.value(value, kind) for value in values], kind)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise PermanentError(
                f"a value of the column {column.name} of the table {self.table} in the binary log "
                f"is no {kind} ({error}); if the table was altered, restart the connector"
            ) from error

    def _source(
        self,
        times: Sequence[int],
        snapshot: str,
        places: Sequence[tuple[int, str | None, BinlogPosition, int]],
    ) -> pa.Array:
        from headrace import __version__

        def constant(text: str) -> pa.Array:
            return pa.repeat(text, len(times))

        return pa.StructArray.from_arrays(
            [
                constant(__version__),
                constant("mariadb" if self.table.is_mariadb else "mysql"),
                constant(self.server),
                pa.array(times, pa.int64()),
                constant(snapshot),
                constant(self.table.database),
                constant(self.table.name),
                pa.array([server_id for server_id, _, _, _ in places], pa.int64()),
                pa.array([gtid for _, gtid, _, _ in places], pa.string()),
                pa.array([position.file for _, _, position, _ in places], pa.string()),
                pa.array([position.pos for _, _, position, _ in places], pa.int64()),
                pa.array([row for _, _, _, row in places], pa.int32()),
            ],
            fields=list(_SOURCE),
        )


class PastRows:
    """Undoes changes: makes rows of now into the rows as they were when the changes began.

    Rows of a table with a key are known by it, and the first change of each decides: its row
    before the change is the one that was there. Other rows are counted.
    """

    def __init__(self, events: BinlogTableEvents, changes: Iterable[BinlogRowChange]) -> None:
        self._events = events
        self._keys = [column.name for column in events.envelope.keys]
        self._first: dict[object, dict[str, object] | None] = {}
        self._more: Counter[object] = Counter()
        """How often each row must be added, or left out if it is negative."""
        for _, same in itertools.groupby(changes, key=lambda change: id(change.layout)):
            while some := list(itertools.islice(same, EVENTS_A_BATCH)):
                self._undo(some)

    def _undo(self, some: Sequence[BinlogRowChange]) -> None:
        names = some[0].layout.names
        before = self._events.rows([change.before for change in some], names).to_pylist()
        after = self._events.rows([change.after for change in some], names).to_pylist()
        for old, new in zip(before, after, strict=True):
            if not self._keys:
                self._more[_whole(old)] += 1
                self._more[_whole(new)] -= 1
                continue
            for row, was_there in ((old, old), (new, None)):
                if row is not None:
                    self._first.setdefault(self._key(row), was_there)

    def _key(self, row: dict[str, object]) -> object:
        return tuple(row[name] for name in self._keys)

    def kept(self, rows: pa.StructArray) -> pa.StructArray:
        """Those of the rows of now that were there, as they are."""
        if not self._first and not self._more:
            return rows
        found = []
        for row in rows.to_pylist():
            if self._keys:
                found.append(self._key(row) not in self._first)
                continue
            whole = _whole(row)
            is_new = self._more[whole] < 0
            if is_new:
                self._more[whole] += 1
            found.append(not is_new)
        return rows.filter(pa.array(found, pa.bool_()))

    def others(self) -> pa.StructArray:
        """The rows that are not there any more, or not as they were."""
        rows = [row for row in self._first.values() if row is not None]
        for whole, count in self._more.items():
            if isinstance(whole, tuple) and count > 0:
                rows += [dict(whole)] * count
        return pa.array(rows, self._events.envelope.row)


def _whole(row: dict[str, object] | None) -> object:
    return None if row is None else tuple(row.items())
