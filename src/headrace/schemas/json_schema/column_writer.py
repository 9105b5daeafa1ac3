"""Encodes rows as JSON, and derives the JSON Schema of a Spark type.

Null fields are left out. Times and dates are ISO 8601 strings, decimals are strings, and binary is
base64, because JSON has no types for them.
"""

import base64
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.schemas.errors import BadColumn

SIMPLE: dict[type[DataType], dict[str, str]] = {
    BooleanType: {"type": "boolean"},
    ByteType: {"type": "integer", "connect.type": "int8"},
    ShortType: {"type": "integer", "connect.type": "int16"},
    IntegerType: {"type": "integer", "connect.type": "int32"},
    LongType: {"type": "integer", "connect.type": "int64"},
    FloatType: {"type": "number", "connect.type": "float32"},
    DoubleType: {"type": "number", "connect.type": "float64"},
    StringType: {"type": "string"},
    BinaryType: {"type": "string", "contentEncoding": "base64"},
    DateType: {"type": "string", "format": "date"},
    TimestampType: {"type": "string", "format": "date-time"},
    TimestampNTZType: {"type": "string"},
    DecimalType: {"type": "string"},
}


def derived(kind: DataType, name: str) -> str:
    """The schema of a column. It is closed, and all fields are optional, so that fields can be
    added and removed later."""
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name}
    return json.dumps({**draft, **_schema(kind, name)})


def _schema(kind: DataType, path: str) -> dict[str, Any]:
    if isinstance(kind, StructType):
        fields = {
            each.name: _optional(_schema(each.dataType, f"{path}.{each.name}"))
            for each in kind.fields
        }
        return {"type": "object", "properties": fields, "additionalProperties": False}
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": _optional(_schema(kind.elementType, f"{path}[]"))}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        values = _schema(kind.valueType, f"{path}{{}}")
        return {"type": "object", "additionalProperties": _optional(values)}
    if type(kind) in SIMPLE:
        return dict(SIMPLE[type(kind)])
    raise BadColumn(f"{path} is {kind.simpleString()}, which has no JSON type; convert it")


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, schema]}


class JsonColumnWriter:
    """Rows as JSON documents."""

    def __init__(self, kind: DataType, column: str) -> None:
        self._plain = plain(kind)
        self._column = column

    def encode(self, array: pa.Array) -> pa.Array:
        """A document for each row that is not null."""
        return pa.array(
            [None if each is None else self._document(each) for each in array.to_pylist()],
            pa.binary(),
        )

    def _document(self, row: Any) -> bytes:
        try:
            text = json.dumps(
                self._plain(row), separators=(",", ":"), ensure_ascii=False, allow_nan=False
            )
        except ValueError:
            raise BadColumn(
                f"a row of {self._column} has a number that JSON does not have: NaN or infinity"
            ) from None
        return text.encode()


def plain(kind: DataType) -> Callable[[Any], Any]:
    """A function that converts values of this type to JSON's types."""
    if isinstance(kind, StructType):
        parts = [(each.name, plain(each.dataType)) for each in kind.fields]
        return lambda row: {
            name: make(value) for name, make in parts if (value := row[name]) is not None
        }
    if isinstance(kind, ArrayType):
        item = plain(kind.elementType)
        return lambda items: [None if each is None else item(each) for each in items]
    if isinstance(kind, MapType):
        inner = plain(kind.valueType)
        return lambda pairs: {key: None if value is None else inner(value) for key, value in pairs}
    if isinstance(kind, BinaryType):
        return lambda octets: base64.b64encode(octets).decode()
    if isinstance(kind, DecimalType):
        return str
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return lambda moment: moment.isoformat()
    return lambda value: value
