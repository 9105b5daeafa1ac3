"""Values of columns in SQLite, and in results.

| type                        | in SQLite                                                        |
|-----------------------------|------------------------------------------------------------------|
| boolean, integers           | INTEGER                                                          |
| float, double               | REAL; NaN is the text NaN, which is larger than all numbers      |
| decimal                     | TEXT with all digits of the scale; compared with its collation   |
| string, binary              | TEXT, BLOB                                                       |
| date                        | INTEGER, days since 1970                                         |
| time, timestamps            | INTEGER, microseconds since midnight or since 1970               |
| array, map, struct, variant | TEXT, JSON of such values: decimals are strings, binary Base64   |

Results have values of JSON: decimals as text, binary as Base64, dates and times as ISO 8601.
"""

import base64
import datetime
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

from headrace.sql.records.json_texts import quoted
from headrace.sql.records.types import INTEGERS, ColumnType
from headrace.sql.records.values import (
    date_of,
    days,
    microseconds,
    moment_of,
    time_micros,
    time_of,
)

Stored: TypeAlias = int | float | str | bytes | None
Convert: TypeAlias = Callable[[Any], Any]

NAN = "NaN"
_INFINITE = "9e999"
"""The number of JSON that every reader takes for infinity."""


def declared(kind: ColumnType) -> str:
    """The type of a column of SQLite."""
    if kind.kind in INTEGERS or kind.kind in _AS_INTEGER:
        return "INTEGER"
    if kind.kind in ("float", "double"):
        return "REAL"
    return "BLOB" if kind.kind == "binary" else "TEXT"


def storing(kind: ColumnType) -> Convert | None:
    """Converts a row's values that are not null; None: they are stored as they are."""
    if kind.is_nested or kind.kind == "variant":
        return json_text(kind)
    return _STORING.get(kind.kind)


def loading(kind: ColumnType) -> Convert | None:
    """Converts stored values that are not null to those of results; None: they are the same."""
    if kind.is_nested:
        inner = _loading_json(kind)
        return lambda text: inner(json.loads(text))
    if kind.kind == "variant":
        return json.loads
    return _LOADING.get(kind.kind)


def decimal_text(number: Decimal) -> str:
    return f"{number:f}"


def moment_text(moment: datetime.datetime) -> str:
    """A time as ISO 8601, in UTC, with milliseconds or more."""
    fraction = "milliseconds" if moment.microsecond % 1000 == 0 else "microseconds"
    return moment.replace(tzinfo=None).isoformat(timespec=fraction)


def _double(number: float) -> float | str:
    # SQLite has no NaN: it would store null.
    return NAN if math.isnan(number) else number


def _loaded_double(number: float | str) -> float | str:
    # JSON has no infinity.
    if number == math.inf:
        return "Infinity"
    return "-Infinity" if number == -math.inf else number


_AS_INTEGER = ("boolean", "date", "time", "timestamp", "timestamp_ntz")
_STORING: dict[str, Convert] = {
    "boolean": int,
    "float": _double,
    "double": _double,
    "decimal": decimal_text,
    "date": days,
    "time": time_micros,
    "timestamp": microseconds,
    "timestamp_ntz": microseconds,
}
_LOADING: dict[str, Convert] = {
    "boolean": bool,
    "float": _loaded_double,
    "double": _loaded_double,
    "binary": lambda octets: base64.b64encode(octets).decode(),
    "date": lambda number: date_of(number).isoformat(),
    "time": lambda micros: time_of(micros).isoformat(),
    "timestamp": lambda micros: moment_text(moment_of(micros)),
    "timestamp_ntz": lambda micros: moment_text(moment_of(micros)),
}


# --------------------------------------------------------------------------------------- nested


def json_text(kind: ColumnType) -> Callable[[Any], str]:
    """Writes a row's values of a type as JSON of stored values."""
    if kind.kind == "struct":
        parts = [(name, f"{quoted(name)}:", json_text(each)) for name, each in kind.fields]
        return lambda value: (
            "{"
            + ",".join(before + _or_null(write, value.get(name)) for name, before, write in parts)
            + "}"
        )
    if kind.kind == "array":
        item = json_text(kind.items)
        return lambda value: "[" + ",".join(_or_null(item, each) for each in value) + "]"
    if kind.kind == "map":
        key, item = json_text(kind.keys), json_text(kind.items)
        if kind.keys.kind == "string":
            return lambda value: (
                "{"
                + ",".join(f"{key(name)}:{_or_null(item, each)}" for name, each in value.items())
                + "}"
            )
        return lambda value: (
            "["
            + ",".join(f"[{key(name)},{_or_null(item, each)}]" for name, each in value.items())
            + "]"
        )
    if kind.kind in _WRITTEN:
        return _WRITTEN[kind.kind]
    store = _STORING.get(kind.kind)
    return str if store is None else lambda value: str(store(value))


def _or_null(write: Callable[[Any], str], value: object) -> str:
    return "null" if value is None else write(value)


def _number_text(number: float) -> str:
    if math.isnan(number):
        return f'"{NAN}"'
    return repr(number) if math.isfinite(number) else _INFINITE if number > 0 else f"-{_INFINITE}"


_WRITTEN: dict[str, Callable[[Any], str]] = {
    "boolean": lambda value: "true" if value else "false",
    "float": _number_text,
    "double": _number_text,
    "decimal": lambda value: f'"{value:f}"',
    "string": quoted,
    "binary": lambda value: f'"{base64.b64encode(value).decode()}"',
    "variant": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
}


def _loading_json(kind: ColumnType) -> Convert:
    """Converts a value of stored JSON to that of a result."""
    if kind.kind == "struct":
        parts = [(name, _loading_json(each)) for name, each in kind.fields]
        return lambda value: {
            name: None if (part := value.get(name)) is None else load(part) for name, load in parts
        }
    if kind.kind == "array":
        item = _loading_json(kind.items)
        return lambda value: [None if each is None else item(each) for each in value]
    if kind.kind == "map":
        item, key = _loading_json(kind.items), _loading_json(kind.keys)
        return lambda value: {
            str(key(name)): None if each is None else item(each)
            for name, each in (value.items() if isinstance(value, dict) else value)
        }
    # Decimals, binary and NaN are texts already.
    load = None if kind.kind == "binary" else _LOADING.get(kind.kind)
    return _same if load is None else load


def _same(value: object) -> object:
    return value
