"""Reads the events of a binary log from the server, as a replica does.

The server sends each event in a packet: a zero byte, then, with little-endian integers,

    timestamp uint32, type uint8, server id uint32, size uint32, next position uint32, flags uint16
    body
    CRC32 of all of it, if the log has checksums

A rotate event names the file of the events after it, and a format event says whether they have
checksums. The server sends both also when a reader begins in the middle of a file.
"""

import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.connect.connectors.jdbc.dialects import Dialect, run
from headrace.connect.plugin import PermanentError, SourceOffset

QUERY, ROTATE, FORMAT, XID, TABLE_MAP, INCIDENT, XA_PREPARE = 2, 4, 15, 16, 19, 26, 38
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = (23, 30), (24, 31), (25, 32)
MYSQL_GTID, MYSQL_ANONYMOUS_GTID, MARIADB_GTID = 33, 34, 162
BETWEEN = (35, 161, 163)
"""Events about the log, between two transactions: which GTIDs came before, and checkpoints."""
REFUSED = {
    39: "partial updates of JSON; set binlog_row_value_options to an empty value",
    40: "compressed transactions; set binlog_transaction_compression=OFF",
    **dict.fromkeys(range(166, 172), "compressed events; set log_bin_compress=OFF"),
}
"""Types of events with changes that are not decoded here."""

_COMMAND = 0x12  # COM_BINLOG_DUMP
_NOT_BLOCKING = 1  # an end of file instead of a wait for more
_HEADER = struct.Struct("<xIBIIIH")
_REQUEST = struct.Struct("<IHI")
_GONE = 1236
_SYNTAX = 1064


class BinlogPosition(NamedTuple):
    """A place in the binary log of one server."""

    file: str
    pos: int

    @classmethod
    def of(cls, offset: SourceOffset) -> "BinlogPosition":
        return cls(str(offset["file"]), int(str(offset["pos"])))

    @property
    def order(self) -> tuple[int, int]:
        """The number of the file counts, because it may get more digits."""
        return int(self.file.rpartition(".")[2]), self.pos


class BinlogEvent(NamedTuple):
    """One event. Made for every event, so it is a tuple."""

    type: int
    time_s: int
    server_id: int
    end: BinlogPosition
    body: bytes


def current_position(database: Dialect, connection: Any) -> BinlogPosition:
    """The end of the log."""
    import pymysql

    try:
        found = database.fetch(connection, "SHOW MASTER STATUS")
    except pymysql.err.MySQLError as error:
        if error.args[0] != _SYNTAX:
            raise
        found = database.fetch(connection, "SHOW BINARY LOG STATUS")  # MySQL from 8.4 on
    if not found:
        raise PermanentError(
            "the server has no binary log: start it with log_bin, and binlog_format=ROW"
        )
    return BinlogPosition(found[0][0], int(found[0][1]))


def events_from(connection: Any, start: BinlogPosition) -> Iterator[BinlogEvent]:
    """The events from this position to the end of the log as it is now.

    The connection cannot be used for anything else after this.
    """
    import pymysql

    for name in ("source_binlog_checksum", "master_binlog_checksum"):
        run(connection, f"SET @{name} = @@global.binlog_checksum")
    # The reader knows the events of MariaDB, so that the server does not replace them.
    run(connection, "SET @mariadb_slave_capability = 4")
    # A server closes the connection of a replica with the same number, and several tables are
    # read at once.
    server_id = random.randrange(2**31, 2**32)
    request = _REQUEST.pack(start.pos, _NOT_BLOCKING, server_id) + start.file.encode()
    try:
        connection._execute_command(_COMMAND, request)
        yield from _events(connection, start.file)
    except pymysql.err.MySQLError as error:
        if error.args[0] != _GONE:
            raise
        raise PermanentError(
            f"the server no longer has its binary log from {start.file}:{start.pos} on, so that "
            f"changes are lost ({error.args[1]}); reset the connector's offsets to read all rows "
            "again, and let the server keep its log longer (binlog_expire_logs_seconds)"
        ) from error


def _events(connection: Any, file: str) -> Iterator[BinlogEvent]:
    checksum_bytes = 0
    while True:
        packet = connection._read_packet()
        if packet.is_eof_packet():
            return
        data: bytes = packet.get_all_data()
        time_s, kind, server_id, _, pos, _ = _HEADER.unpack_from(data)
        if kind == ROTATE:
            # It may come before the format event.
            crc = struct.pack("<I", zlib.crc32(data[1:-4]))
            name = data[28:-4] if data[-4:] == crc else data[28:]
            file = name.decode()
            continue
        if kind == FORMAT:
            checksum_bytes = 4 if data[-5] == 1 else 0
        body = data[20 : len(data) - checksum_bytes]
        yield BinlogEvent(kind, time_s, server_id, BinlogPosition(file, pos), body)
