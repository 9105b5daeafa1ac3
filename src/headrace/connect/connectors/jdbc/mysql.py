"""MariaDB and MySQL, by PyMySQL. Rows are written as INSERT statements with many rows."""

import datetime
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.connect.connectors.jdbc.dialects import Dialect, Refusal, TableColumn, TableName, run

_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64, "year": 16}
_TYPES = {
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
    "varbinary": pa.binary(),
    "tinyblob": pa.binary(),
    "blob": pa.binary(),
    "mediumblob": pa.binary(),
    "longblob": pa.binary(),
    "geometry": pa.binary(),
    "point": pa.binary(),
    "linestring": pa.binary(),
    "polygon": pa.binary(),
    "multipoint": pa.binary(),
    "multilinestring": pa.binary(),
    "multipolygon": pa.binary(),
    "geometrycollection": pa.binary(),
}
_NEW = {
    pa.bool_(): "TINYINT",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INT",
    pa.uint32(): "BIGINT",
    pa.uint64(): "BIGINT UNSIGNED",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
}
_ROW = {1048, 1062, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1416, 1451, 1452, 1690, 3819, 4025}
_PERMANENT = {1044, 1045, 1046, 1049, 1054, 1064, 1103, 1142, 1143, 1146, 1227, 1290, 1698}


class Mysql(Dialect):
    """MariaDB from version 10.6 on, and MySQL from version 8 on."""

    quotes = "`"
    default_port = 3306

    def connect(self) -> Any:
        import pymysql

        login = self.login
        connection = pymysql.connect(
            host=login.host,
            port=login.port,
            user=login.user or None,
            password=login.password,
            database=login.name or None,
            charset="utf8mb4",
            connect_timeout=10,
            sql_mode="STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE",
            init_command="SET time_zone = '+00:00'",
        )
        # A consistent view for the two queries of a range, and no locks for readers.
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return connection

    def columns(self, connection: Any, table: TableName) -> Sequence[TableColumn]:
        import pymysql

        try:
            found = self.fetch(connection, f"SHOW COLUMNS FROM {self.quoted_table(table)}")
        except pymysql.err.ProgrammingError as error:
            if error.args[0] == 1146:
                return []
            raise
        keys = [name for name, _, _, key, _, _ in found if key == "PRI"]
        return [
            TableColumn(
                name,
                kind,
                _arrow(kind),
                null == "YES",
                keys.index(name) + 1 if key == "PRI" else 0,
                "auto_increment" in extra,
                default is not None or "auto_increment" in extra,
            )
            for name, kind, null, key, default, extra in found
        ]

    def query_columns(self, connection: Any, query: str) -> Sequence[TableColumn]:
        run(connection, "DROP TEMPORARY TABLE IF EXISTS headrace_query")
        run(
            connection,
            f"CREATE TEMPORARY TABLE headrace_query AS SELECT * FROM ({query}) q LIMIT 0",
        )
        try:
            return self.columns(connection, TableName("headrace_query"))
        finally:
            run(connection, "DROP TEMPORARY TABLE headrace_query")

    def tables(self, connection: Any, kinds: Sequence[str]) -> Sequence[TableName]:
        names = {"TABLE": "BASE TABLE", "VIEW": "VIEW"}
        wanted = [names[kind.upper()] for kind in kinds if kind.upper() in names]
        found = self.fetch(
            connection,
            "SELECT table_schema, table_name, table_type FROM information_schema.tables "
            "WHERE table_schema = database() ORDER BY 1, 2",
        )
        return [TableName(name, schema) for schema, name, kind in found if kind in wanted]

    def column_type(self, kind: pa.DataType, is_key: bool) -> str:
        if kind in _NEW:
            return _NEW[kind]
        if pa.types.is_decimal(kind):
            return f"DECIMAL({kind.precision},{kind.scale})"
        if pa.types.is_timestamp(kind):
            # TIMESTAMP ends in 2038.
            return "DATETIME(6)"
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return "VARBINARY(255)" if is_key else "LONGBLOB"
        if pa.types.is_nested(kind):
            return "JSON"
        return "VARCHAR(255)" if is_key else "LONGTEXT"

    def refusal(self, error: Exception) -> Refusal:
        import pymysql

        code = error.args[0] if error.args else 0
        if code in _ROW:
            return Refusal.ROW
        if code in _PERMANENT:
            return Refusal.PERMANENT
        if isinstance(error, pymysql.err.DataError | pymysql.err.IntegrityError):
            return Refusal.ROW
        return Refusal.PASSING

    def upsert_clause(self, columns: Sequence[str], keys: Sequence[str]) -> str:
        changed = [name for name in columns if name not in keys] or keys
        changes = ", ".join(
            f"{self.quoted(name)} = VALUES({self.quoted(name)})" for name in changed
        )
        return f"ON DUPLICATE KEY UPDATE {changes}"

    def unique_keys(self, connection: Any, table: TableName) -> Sequence[set[str]] | None:
        # Without one, ON DUPLICATE KEY adds a row each time.
        found: dict[str, set[str]] = {}
        for row in self.fetch(connection, f"SHOW INDEX FROM {self.quoted_table(table)}"):
            _, is_ambiguous, name, _, column = row[:5]
            if not is_ambiguous:
                found.setdefault(name, set()).add(column)
        return list(found.values())

    def now(self, connection: Any) -> Any:
        return self.fetch(connection, "SELECT UTC_TIMESTAMP(6)")[0][0]

    def expression(self, column: TableColumn) -> str:
        name = self.quoted(column.name)
        if re.match(r"time\b", column.type):
            # The driver has a duration for TIME.
            return f"CAST({name} AS CHAR)"
        if re.match(r"float\b", column.type):
            # The server has only six digits of a FLOAT in a result.
            return f"({name} + 0e0)"
        return name

    def parameter(self, value: object) -> object:
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            return value.astimezone(datetime.UTC).replace(tzinfo=None)
        return value

    def value(self, value: Any, kind: pa.DataType) -> Any:
        if kind == pa.bool_() and isinstance(value, bytes):
            return value != b"\0"
        if kind == pa.string() and isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, str) and (kind == pa.date32() or pa.types.is_timestamp(kind)):
            return None  # dates with zeros, which the driver leaves as text
        if isinstance(value, Decimal) and kind == pa.float64():
            return float(value)
        if isinstance(value, Decimal) and kind == pa.string():
            return f"{value:f}"
        if kind == pa.string() and value is not None and not isinstance(value, str):
            return str(value)
        return value

    def select(
        self,
        connection: Any,
        query: str,
        parameters: Sequence[object],
        columns: Sequence[TableColumn],
    ) -> Iterator[pa.RecordBatch]:
        import pymysql

        # Otherwise the driver has the whole result in memory.
        connection.cursorclass = pymysql.cursors.SSCursor
        try:
            yield from super().select(connection, query, parameters, columns)
        finally:
            connection.cursorclass = pymysql.cursors.Cursor


def _arrow(kind: str) -> pa.DataType:
    word = re.split(r"[( ]", kind, maxsplit=1)[0]
    if word in _INTEGERS:
        bits = _INTEGERS[word]
        if "unsigned" in kind:
            if bits == 64:
                return pa.decimal128(20, 0)
            bits = {8: 16, 16: 32, 32: 64}[bits]
        return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    if kind == "bit(1)":
        return pa.bool_()
    if word == "bit":
        return pa.binary()
    if word == "decimal":
        numbers = re.search(r"\((\d+),(\d+)\)", kind)
        if numbers and int(numbers[1]) <= 38:
            return pa.decimal128(int(numbers[1]), int(numbers[2]))
    return _TYPES.get(word, pa.string())
