"""Rows of results as JSON text, with all digits of decimals.

Python's encoder has no way to write a number with given digits, so rows with decimals are put
together from texts.
"""

import base64
import datetime
import json
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from headrace.sql.hosting import ResultColumn
from headrace.sql.records.types import ColumnType, InvalidType, parse_type

_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_SIMPLE = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "string", "void"})

ToText = Callable[[Any], str]


def row_encoder(columns: Sequence[ResultColumn]) -> Callable[[Sequence[object]], str]:
    """Writes rows with these columns as JSON arrays."""
    kinds = [_parsed(each.type) for each in columns]
    if all(kind.kind in _SIMPLE for kind in kinds):
        return lambda row: _ENCODER.encode(list(row))
    encoders = [_nullable(kind) for kind in kinds]
    return lambda row: (
        "[" + ",".join(encode(each) for encode, each in zip(encoders, row, strict=True)) + "]"
    )


@cache
def _parsed(ddl: str) -> ColumnType:
    try:
        return parse_type(ddl)
    except InvalidType:
        return ColumnType(ddl)


def _nullable(kind: ColumnType) -> ToText:
    encode = _encoder(kind)
    return lambda value: "null" if value is None else encode(value)


def _encoder(kind: ColumnType) -> ToText:
    match kind.kind:
        case "decimal":
            return _decimal
        case "float" | "double":
            return _floating
        case "array":
            items = _nullable(kind.items)
            return lambda value: "[" + ",".join(map(items, value)) + "]"
        case "map":
            values = _nullable(kind.items)
            return lambda value: _object((str(key), values(each)) for key, each in value.items())
        case "struct":
            fields = {name: _nullable(each) for name, each in kind.fields}
            return lambda value: _object(
                (name, encode(value.get(name))) for name, encode in fields.items()
            )
    return _other


def _object(pairs: Any) -> str:
    return "{" + ",".join(f"{_ENCODER.encode(name)}:{text}" for name, text in pairs) + "}"


def _decimal(value: Any) -> str:
    """A number, from text or a Decimal."""
    return f"{Decimal(value):f}"


def _floating(value: Any) -> str:
    return _ENCODER.encode(value if math.isfinite(value) else str(value))


def _other(value: Any) -> str:
    if isinstance(value, bytes):
        return _ENCODER.encode(base64.b64encode(value).decode())
    if isinstance(value, datetime.datetime):
        return _ENCODER.encode(value.replace(tzinfo=None).isoformat(timespec="milliseconds"))
    if isinstance(value, datetime.date | datetime.time):
        return _ENCODER.encode(value.isoformat())
    return _ENCODER.encode(value)
