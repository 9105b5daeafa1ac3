"""Finds the changes of one table in the events of a binary log, by whole transactions.

A transaction begins with an event of its GTID or with the query BEGIN, and ends with an event XID
or the query COMMIT; other queries, such as ALTER TABLE, stand alone. Half a transaction at the end
of a file, after a crash of the server, is left out.
"""

import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.connect.connectors.mysql_changes import binlog
from headrace.connect.connectors.mysql_changes.binlog import BinlogEvent, BinlogPosition
from headrace.connect.connectors.mysql_changes.table_maps import (
    KnownTable,
    TableLayout,
    layout_of,
    length_at,
    table_of,
)
from headrace.connect.plugin import PermanentError

_OPS = {
    **dict.fromkeys(binlog.WRITE_ROWS, "c"),
    **dict.fromkeys(binlog.UPDATE_ROWS, "u"),
    **dict.fromkeys(binlog.DELETE_ROWS, "d"),
}
_QUERY_COMPRESSED = 165
_STANDALONE = 1
Row = tuple[object, ...]


class BinlogRowChange(NamedTuple):
    """A change of one row. Made for every row, so it is a tuple."""

    op: str
    """Debezium's letter: c, u or d."""
    before: Row | None
    after: Row | None
    layout: TableLayout
    event: BinlogEvent
    row: int
    """Its number in the event."""
    gtid: str | None


@dataclass(slots=True)
class LogTransaction:
    """A transaction, or a query that stands alone, with the events of one table."""

    gtid: str | None
    end: BinlogPosition
    rows: list[tuple[TableLayout, BinlogEvent]] = field(default_factory=list)

    def changes(self) -> Iterator[BinlogRowChange]:
        for layout, event in self.rows:
            op = _OPS[event.type]
            place = _rows_place(event, len(layout.names), op == "u")
            found = layout.rows(event.body, place)
            if op == "u":
                for number, before in enumerate(found):
                    yield BinlogRowChange(op, before, next(found), layout, event, number, self.gtid)
            else:
                for number, row in enumerate(found):
                    is_new = op == "c"
                    yield BinlogRowChange(op, None if is_new else row, row if is_new else None,
                                    layout, event, number, self.gtid)  # fmt: skip


class TransactionReader:
    """Collects events into transactions."""

    def __init__(self, table: KnownTable) -> None:
        self._table = table
        self._layouts: dict[bytes, TableLayout] = {}
        """By table map: the same one comes before every statement."""
        self._open: dict[int, TableLayout] = {}
        """By the number that the events of rows have, within a transaction."""
        self._is_inside = False
        self._gtid: str | None = None
        self._rows: list[tuple[TableLayout, BinlogEvent]] = []
        self.boundary: BinlogPosition | None = None
        """Up to where everything was read: between two transactions."""

    def read(self, events: Iterable[BinlogEvent]) -> Iterator[LogTransaction]:
        for event in events:
            kind = event.type
            if kind in _OPS:
                self._add(event)
            elif kind == binlog.TABLE_MAP:
                self._map(event.body)
            elif kind == binlog.MARIADB_GTID:
                self._begin(mariadb_gtid(event), not event.body[12] & _STANDALONE)
            elif kind in (binlog.MYSQL_GTID, binlog.MYSQL_ANONYMOUS_GTID):
                named = kind == binlog.MYSQL_GTID
                self._begin(mysql_gtid(event) if named else None, False)
            elif kind == binlog.XID or kind == binlog.XA_PREPARE:
                yield self._end(event)
            elif kind == binlog.QUERY or kind == _QUERY_COMPRESSED:
                if self._is_end(event):
                    yield self._end(event)
            elif kind == binlog.FORMAT:
                # The server began another file. If it crashed before, half a transaction may
                # stand at the end of the one before.
                self._begin(None, False)
                # The server repeats it, without a position, when it begins within a file.
                self.boundary = event.end if event.end.pos else self.boundary
            elif kind in binlog.BETWEEN:
                self.boundary = event.end
            elif kind == binlog.INCIDENT:
                raise PermanentError(
                    f"the binary log has an incident event before {_told(event.end)}: the server "
                    "could not write all changes. Reset the connector's offsets to read all rows"
                )
            elif kind in binlog.REFUSED:
                raise PermanentError(
                    f"the binary log has {binlog.REFUSED[kind]} (before {_told(event.end)}), and "
                    "reset the connector's offsets"
                )

    def read_until(
        self, events: Iterable[BinlogEvent], end: BinlogPosition
    ) -> Iterator[LogTransaction]:
        """The transactions up to a boundary where a reader was before."""
        for transaction in self.read(events):
            if transaction.end.order <= end.order:
                yield transaction
            if transaction.end.order >= end.order:
                return
        if self.boundary is None or self.boundary.order < end.order:
            raise PermanentError(
                f"the binary log of the server ends before {_told(end)}, where it was read before: "
                "the server lost the end of its log (sync_binlog=1 prevents that) or is another "
                "one. Reset the connector's offsets to read all rows again"
            )

    def _begin(self, gtid: str | None, is_inside: bool) -> None:
        self._gtid, self._is_inside = gtid, is_inside
        self._rows, self._open = [], {}

    def _end(self, event: BinlogEvent) -> LogTransaction:
        found = LogTransaction(self._gtid, event.end, self._rows)
        self._begin(None, False)
        self.boundary = event.end
        return found

    def _is_end(self, event: BinlogEvent) -> bool:
        """Whether a query ends a transaction, or stands alone."""
        text = _query(event.body).upper() if event.type == binlog.QUERY else b""
        if text == b"BEGIN" or text.startswith(b"XA START"):
            self._is_inside = True
            return False
        if text == b"ROLLBACK":
            self._rows = []
            return True
        return text == b"COMMIT" or not self._is_inside

    def _map(self, body: bytes) -> None:
        number, database, name, place = table_of(body)
        if (database, name) != (self._table.database, self._table.name):
            # Numbers are used again.
            self._open.pop(number, None)
            return
        # The number is not part of the layout.
        known = body[6:]
        if known not in self._layouts:
            self._layouts[known] = layout_of(body, place, self._table)
        self._open[number] = self._layouts[known]

    def _add(self, event: BinlogEvent) -> None:
        layout = self._open.get(int.from_bytes(event.body[:6], "little"))
        if layout is not None:
            self._rows.append((layout, event))


def _rows_place(event: BinlogEvent, columns: int, has_two: bool) -> int:
    """Where the rows begin. Version 2 of the events has additional data before."""
    body, place = event.body, 8
    if event.type >= 30:
        place += int.from_bytes(body[8:10], "little")
    count, place = length_at(body, place)
    size = (count + 7) // 8
    complete = (1 << count) - 1
    for _ in range(2 if has_two else 1):
        if int.from_bytes(body[place : place + size], "little") & complete != complete:
            raise PermanentError(
                f"the binary log does not have all columns of a row before {_told(event.end)}: set "
                "binlog_row_image=FULL on the server, and reset the connector's offsets"
            )
        place += size
    assert count == columns, "the table map has the columns of its events"
    return place


def mariadb_gtid(event: BinlogEvent) -> str:
    sequence, domain = struct.unpack_from("<QI", event.body)
    return f"{domain}-{event.server_id}-{sequence}"


def mysql_gtid(event: BinlogEvent) -> str:
    number = int.from_bytes(event.body[17:25], "little")
    return f"{uuid.UUID(bytes=event.body[1:17])}:{number}"


def _query(body: bytes) -> bytes:
    """The text of a query.

    thread uint32, seconds uint32, length of the database uint8, error uint16,
    length of the variables uint16; variables, database, zero byte, text
    """
    variables = int.from_bytes(body[11:13], "little")
    return body[13 + variables + body[8] + 1 :]


def _told(position: BinlogPosition) -> str:
    return f"{position.file}:{position.pos}"
