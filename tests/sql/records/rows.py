"""Sources and records for the tests."""

from headrace.sql.records.decoding import Row, RowReader
from headrace.sql.sources import ColumnRole, Format, SqlColumn, SqlSource
from headrace.wire.records import Record, RecordHeader


def columns(text: str) -> tuple[SqlColumn, ...]:
    """`k string key, n bigint`; a semicolon separates columns whose types have commas."""
    found = []
    for each in text.split(";" if ";" in text else ","):
        name, _, kind = each.strip().partition(" ")
        role = ColumnRole.KEY if kind.endswith(" key") else ColumnRole.VALUE
        found.append(SqlColumn(name, kind.removesuffix(" key"), role))
    return tuple(found)


def source(text: str, key: str = "KAFKA", value: str = "JSON", **more: object) -> SqlSource:
    made = {
        "name": "s",
        "is_table": True,
        "topic": "s",
        "columns": columns(text),
        "key_format": Format(key),
        "value_format": Format(value),
    }
    return SqlSource(**{**made, **more})  # type: ignore[arg-type]


def record(
    key: bytes | None, value: bytes | None, headers: tuple[RecordHeader, ...] = ()
) -> Record:
    return Record(7, 1000, key, value, headers)


def read(of: SqlSource, key: bytes | None, value: bytes | None) -> Row:
    return RowReader(of).read(record(key, value), 3)
