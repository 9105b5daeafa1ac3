"""SQLite, by Python's own module. Times are texts in UTC, and decimals are texts."""

import datetime
import decimal
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.connect.connectors.jdbc.dialects import Dialect, Refusal, TableColumn, TableName, run

_NORMAL = "%Y-%m-%d %H:%M:%f"


class Sqlite(Dialect):
    """A file of SQLite, from version 3.24 on."""

    placeholder = "?"

    def connect(self) -> Any:
        path = Path(self.login.name)
        if not path.absolute().parent.is_dir():
            raise sqlite3.OperationalError(f"no such folder: {path.absolute().parent}")
        return sqlite3.connect(path, timeout=30)

    def columns(self, connection: Any, table: TableName) -> Sequence[TableColumn]:
        found = self.fetch(connection, f"PRAGMA table_info({self.quoted(table.name)})")
        keys = [name for _, name, _, _, _, key in found if key]
        return [
            TableColumn(
                name,
                kind,
                _arrow(kind),
                not (required or key),
                key,
                # The only key of this type is the number of the row.
                kind.upper() == "INTEGER" and keys == [name],
                default is not None,
            )
            for _, name, kind, required, default, key in found
        ]

    def query_columns(self, connection: Any, query: str) -> Sequence[TableColumn]:
        run(connection, f"CREATE TEMPORARY VIEW headrace_query AS SELECT * FROM ({query})")
        try:
            return self.columns(connection, TableName("headrace_query"))
        finally:
            run(connection, "DROP VIEW headrace_query")

    def tables(self, connection: Any, kinds: Sequence[str]) -> Sequence[TableName]:
        found = self.fetch(
            connection, "SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
        )
        wanted = [kind.lower() for kind in kinds]
        return [TableName(name) for name, kind in found if kind in wanted]

    def column_type(self, kind: pa.DataType, is_key: bool) -> str:
        if pa.types.is_boolean(kind):
            return "BOOLEAN"
        if pa.types.is_integer(kind):
            return "INTEGER"
        if pa.types.is_floating(kind):
            return "REAL"
        if pa.types.is_timestamp(kind):
            return "DATETIME"
        if pa.types.is_date(kind):
            return "DATE"
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return "BLOB"
        return "TEXT"

    def refusal(self, error: Exception) -> Refusal:
        if isinstance(
            error,
            sqlite3.IntegrityError
            | sqlite3.DataError
            | sqlite3.InterfaceError
            | sqlite3.ProgrammingError,
        ):
            return Refusal.ROW
        if re.search(
            "no such|no column|syntax error|unable to open|readonly|ON CONFLICT clause", str(error)
        ):
            return Refusal.PERMANENT
        return Refusal.PASSING

    def upsert_clause(self, columns: Sequence[str], keys: Sequence[str]) -> str:
        changes = ", ".join(
            f"{self.quoted(name)} = excluded.{self.quoted(name)}"
            for name in columns
            if name not in keys
        )
        action = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f"ON CONFLICT ({self.listed(keys)}) DO {action}"

    def now(self, connection: Any) -> Any:
        return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)

    def ordered(self, column: TableColumn) -> str:
        name = self.quoted(column.name)
        if not pa.types.is_timestamp(column.arrow):
            return name
        # Texts of different lengths, or milliseconds since 1970, as Java's driver writes them.
        return (
            f"CASE typeof({name}) WHEN 'integer' "
            f"THEN strftime('{_NORMAL}', {name} / 1000.0, 'unixepoch') "
            f"ELSE strftime('{_NORMAL}', {name}) END"
        )

    def parameter(self, value: object) -> object:
        if isinstance(value, datetime.datetime):
            if value.tzinfo is not None:
                value = value.astimezone(datetime.UTC).replace(tzinfo=None)
            # The functions of SQLite know milliseconds.
            precision = "microseconds" if value.microsecond % 1000 else "milliseconds"
            return value.isoformat(" ", precision)
        if isinstance(value, datetime.date):
            return value.isoformat()
        return str(value) if isinstance(value, decimal.Decimal) else value

    def value(self, value: Any, kind: pa.DataType) -> Any:
        if value is None:
            return None
        if pa.types.is_timestamp(kind):
            return _time(value)
        if pa.types.is_date(kind):
            return _time(value).date()
        if pa.types.is_decimal(kind):
            return decimal.Decimal(str(value)).quantize(decimal.Decimal(1).scaleb(-kind.scale))
        if kind == pa.bool_():
            return bool(value)
        if kind == pa.string() and not isinstance(value, str):
            return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        return value.encode() if kind == pa.binary() and isinstance(value, str) else value


def _time(value: Any) -> datetime.datetime:
    if isinstance(value, int | float):
        epoch = datetime.datetime(1970, 1, 1)
        return epoch + datetime.timedelta(milliseconds=value)
    found = datetime.datetime.fromisoformat(str(value))
    return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo else found


def _arrow(kind: str) -> pa.DataType:
    """By the rules of SQLite for the affinity of a column, and the names of times and decimals."""
    upper = kind.upper()
    if upper.startswith(("DATETIME", "TIMESTAMP")):
        return pa.timestamp("us")
    if upper == "DATE":
        return pa.date32()
    if upper.startswith("BOOL"):
        return pa.bool_()
    if "INT" in upper:
        return pa.int64()
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT", "JSON")):
        return pa.string()
    if "BLOB" in upper:
        return pa.binary()
    if any(word in upper for word in ("REAL", "FLOA", "DOUB")):
        return pa.float64()
    numbers = re.search(r"\((\d+)\s*(?:,\s*(\d+))?\)", upper)
    if numbers and int(numbers[1]) <= 38:
        return pa.decimal128(int(numbers[1]), int(numbers[2] or 0))
    return pa.string() if not upper else pa.float64()
