"""Registers Spark's functions on a connection of SQLite."""

import base64
import binascii
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from headrace.sql.views.spark_sql import decimals, moments, nested, numbers, texts
from headrace.sql.views.spark_sql.decimals import Unlike

DECIMAL_COLLATION = "spark_decimal"


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Null if an argument is null."""

    def call(*arguments: Any) -> Any:
        return None if None in arguments else function(*arguments)

    return call


def _fail(reason: str) -> None:
    raise Unlike(reason)


def _to_decimal(value: float | str, precision: int, scale: int) -> str:
    number = numbers.decimal_of_text(value if isinstance(value, str) else repr(value))
    return decimals.fitted(number, precision, scale)


def _round_decimal(number: str, digits: int, precision: int, scale: int) -> str:
    step = Decimal(1).scaleb(-digits)
    rounded = Decimal(number).quantize(step, context=decimals.ROUNDING)
    return decimals.fitted(rounded, precision, scale)


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Unlike("no Base64") from None


def _required(value: Any) -> Any:
    """A value that Spark may refuse to be null."""
    if value is None:
        raise Unlike("null")
    return value


def _must(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of Spark's that fails where its other form is null."""
    return lambda *arguments: _required(function(*arguments))


def _number(value: float | str) -> float:
    if isinstance(value, str):
        raise Unlike("NaN")
    return value


def _divisor(value: float) -> float:
    if not value:
        raise Unlike("division by zero")
    return value


def _order(value: Any) -> tuple[bool, Any]:
    # Within numbers, the text NaN is the largest.
    return isinstance(value, str), value


def _greatest(*values: Any) -> Any:
    return max((each for each in values if each is not None), key=_order, default=None)


def _least(*values: Any) -> Any:
    return min((each for each in values if each is not None), key=_order, default=None)


_STRICT: dict[str, Callable[..., Any]] = {
    # strings
    "spark_upper": str.upper,
    "spark_lower": str.lower,
    "spark_length": len,
    "spark_octets": lambda text: len(text.encode()),
    "spark_substring": texts.substring,
    "spark_left": texts.left,
    "spark_right": texts.right,
    "spark_locate": texts.locate,
    "spark_lpad": lambda text, length, filler: texts.padded(text, length, filler, True),
    "spark_rpad": lambda text, length, filler: texts.padded(text, length, filler, False),
    "spark_repeat": texts.repeat,
    "spark_replace": texts.replace,
    "spark_reverse": lambda text: text[::-1],
    "spark_initcap": texts.initcap,
    "spark_trim": texts.trimmed,
    "spark_like": texts.like,
    "spark_ilike": texts.ilike,
    "spark_starts": lambda text, part: int(text.startswith(part)),
    "spark_ends": lambda text, part: int(text.endswith(part)),
    "spark_contains": lambda text, part: int(part in text),
    "spark_ascii": lambda text: ord(text[0]) if text else 0,
    "spark_digest": texts.digest,
    "spark_sha2": texts.sha2,
    "spark_crc32": texts.crc32,
    "spark_hex": texts.hexadecimal,
    "spark_base64": lambda octets: base64.b64encode(octets).decode(),
    "spark_unbase64": _unbase64,
    "spark_bytes": lambda text: text.encode(),
    "spark_text": lambda octets: octets.decode(errors="replace"),
    # numbers
    "spark_number": _number,
    "spark_divisor": _divisor,
    "spark_boolean_text": lambda value: "true" if value else "false",
    "spark_floor_quotient": lambda number, divisor: number // divisor,
    "spark_sqrt": numbers.square_root,
    "spark_round": numbers.rounded,
    "spark_round_integer": numbers.rounded_integer,
    "spark_ceil": lambda number: numbers.whole(number, True),
    "spark_floor": lambda number: numbers.whole(number, False),
    "spark_remainder": numbers.remainder,
    "spark_pmod": numbers.positive_remainder,
    "spark_integer": numbers.to_integer,
    "spark_double": numbers.to_double,
    "spark_narrowed": numbers.narrowed,
    "spark_double_text": numbers.double_as_text,
    "spark_float_text": numbers.float_as_text,
    # decimals
    "spark_decimal": _to_decimal,
    "spark_decimal_calculate": decimals.calculate,
    "spark_decimal_round": _round_decimal,
    "spark_decimal_whole": decimals.whole_part,
    # dates and times
    "spark_date_part": moments.date_part,
    "spark_moment_part": moments.moment_part,
    "spark_add_months": moments.add_months,
    "spark_moment_add_months": moments.add_months_to_moment,
    "spark_last_day": moments.last_day,
    "spark_trunc": moments.truncated,
    "spark_trunc_date": moments.truncated_date,
    "spark_format": moments.formatted,
    "spark_parse": moments.parsed,
    "spark_must_parse": _must(moments.parsed),
    "spark_timestamp": moments.timestamp_of,
    "spark_must_timestamp": _must(moments.timestamp_of),
    "spark_date": moments.date_number,
    "spark_must_date": _must(moments.date_number),
    "spark_timestamp_text": moments.timestamp_text,
    "spark_date_text": moments.date_text,
    "spark_make_date": moments.make_date,
    # arrays, maps, JSON
    "spark_array_size": nested.array_size,
    "spark_array_element": nested.array_element,
    "spark_try_array_element": nested.try_array_element,
    "spark_array_contains": nested.array_contains,
    "spark_array_join": nested.array_join,
    "spark_map_value": nested.map_value,
    "spark_map_has_key": nested.map_has_key,
    "spark_map_keys": nested.map_keys,
    "spark_map_values": nested.map_values,
    "spark_json_path": nested.json_path,
}
_ANY: dict[str, Callable[..., Any]] = {
    "spark_fail": _fail,
    "spark_concat_ws": texts.concat_ws,
    "spark_required": _required,
    "spark_greatest": _greatest,
    "spark_least": _least,
}
_AGGREGATES: dict[str, tuple[int, Any]] = {
    "spark_decimal_sum": (3, decimals.DecimalSum),
    "spark_decimal_average": (3, decimals.DecimalAverage),
    "spark_collect_list": (1, nested.CollectedList),
    "spark_collect_set": (1, nested.CollectedSet),
}


def register(connection: sqlite3.Connection) -> None:
    """Adds the functions, aggregates and the collation to a connection."""
    for name, function in _STRICT.items():
        connection.create_function(name, -1, _strict(function), deterministic=True)
    for name, function in _ANY.items():
        connection.create_function(name, -1, function)
    for name, (count, aggregate) in _AGGREGATES.items():
        connection.create_aggregate(name, count, aggregate)
    connection.create_collation(DECIMAL_COLLATION, decimals.compare)
