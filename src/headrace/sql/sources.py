"""Streams and tables: which topic, which columns, and how keys and values are encoded."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Format(StrEnum):
    """Encodings of keys and values, with ksqlDB's names."""

    KAFKA = "KAFKA"
    """A single column as Kafka's serializers write it: STRING, INT, BIGINT, DOUBLE, BYTES."""
    JSON = "JSON"
    DELIMITED = "DELIMITED"
    AVRO = "AVRO"
    JSON_SR = "JSON_SR"
    PROTOBUF = "PROTOBUF"
    NONE = "NONE"
    """Nothing is read and nothing is written: keys of a stream without a key column."""


REGISTERED = frozenset({Format.AVRO, Format.JSON_SR, Format.PROTOBUF})
"""Formats whose schemas are in a schema registry."""


class ColumnRole(StrEnum):
    """Where the value of a column is in a record."""

    KEY = "KEY"
    VALUE = "VALUE"
    HEADER = "HEADER"
    """One header, or all of them if the column has no header name."""


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of a stream or table."""

    name: str
    """As it was written; names are compared without regard to case."""
    type: str
    """Spark's DDL, in lower case: `bigint`, `array<string>`, `struct<street: string>`."""
    role: ColumnRole = ColumnRole.VALUE
    header: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The window of an aggregation, or of the keys of a topic. Times are in milliseconds."""

    kind: str
    """TUMBLING, HOPPING or SESSION."""
    size_ms: int | None
    """None if it is not known: of sessions only the gap is, and it is in the statement."""
    advance_ms: int | None = None
    grace_ms: int | None = None
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SqlSource:
    """A stream or table over a topic."""

    name: str
    is_table: bool
    topic: str
    columns: tuple[SqlColumn, ...]
    """Without pseudo columns."""
    key_format: Format = Format.KAFKA
    value_format: Format = Format.JSON
    timestamp: str | None = None
    """The column with the time of a row; None: the timestamp of the record."""
    timestamp_format: str | None = None
    """The pattern of a timestamp column of type string."""
    window: Window | None = None
    """Of windowed keys: a key ends with the start of its window; sessions: with end and start."""
    wrap_single_value: bool = True
    delimiter: str = ","
    key_schema_id: int | None = None
    value_schema_id: int | None = None
    read_only: bool = False
    """CREATE SOURCE: statements cannot write to it or delete its topic."""

    def of_role(self, role: ColumnRole) -> tuple[SqlColumn, ...]:
        return tuple(each for each in self.columns if each.role is role)

    @property
    def keys(self) -> tuple[SqlColumn, ...]:
        return self.of_role(ColumnRole.KEY)

    @property
    def values(self) -> tuple[SqlColumn, ...]:
        return self.of_role(ColumnRole.VALUE)

    def column(self, name: str) -> SqlColumn | None:
        """The column with this name, in any case."""
        wanted = name.casefold()
        return next((each for each in self.columns if each.name.casefold() == wanted), None)


def source_to_json(source: SqlSource) -> dict[str, Any]:
    return asdict(source)


def source_from_json(stored: Mapping[str, Any]) -> SqlSource:
    window = stored["window"]
    return SqlSource(
        **{
            **stored,
            "columns": tuple(
                SqlColumn(**{**each, "role": ColumnRole(each["role"])})
                for each in stored["columns"]
            ),
            "key_format": Format(stored["key_format"]),
            "value_format": Format(stored["value_format"]),
            "window": None if window is None else Window(**window),
        }
    )
