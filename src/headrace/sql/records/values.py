"""Values of JSON, or of Python, as values of a column's type; others are refused.

The same for JSON records, for the values of an INSERT, and for the conditions of a query. A text is
not a number here, as in Spark.
"""

import base64
import binascii
import datetime
import math
import re
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

from headrace.sql.records.errors import WrongValue
from headrace.sql.records.java_numbers import to_float
from headrace.sql.records.json_texts import any_text
from headrace.sql.records.moments import date_of_text, timestamp_of_text
from headrace.sql.records.types import INTEGERS, ColumnType, Convert

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
LOCAL_EPOCH = datetime.datetime(1970, 1, 1)
EPOCH_DAY = datetime.date(1970, 1, 1)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_DAY_MICROS = 86_400_000_000
_NAMES_OF_DOUBLES = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "INF": math.inf,
    "+INF": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}
DIGITS = Context(prec=100, rounding=ROUND_HALF_UP)
"""Arithmetic without a loss of digits."""


def converter(kind: ColumnType, path: str) -> Convert:
    """A function that converts values which are not null; it raises WrongValue.

    `path` names the value in messages.
    """
    if kind.kind in INTEGERS:
        return _integer(kind, path)
    if kind.kind == "struct":
        return _struct(kind, path)
    if kind.kind == "array":
        return _array(kind, path)
    if kind.kind == "map":
        return _map(kind, path)
    if kind.kind == "decimal":
        return _decimal(kind, path)
    return _SCALARS[kind.kind](kind, path)


def milliseconds(moment: datetime.datetime) -> int:
    """Since 1970; a fraction is cut off towards the past."""
    return (moment - (EPOCH if moment.tzinfo else LOCAL_EPOCH)) // _MILLISECOND


def microseconds(moment: datetime.datetime) -> int:
    """Since 1970."""
    return (moment - (EPOCH if moment.tzinfo else LOCAL_EPOCH)) // _MICROSECOND


def moment_of(micros: int) -> datetime.datetime:
    """The time so many microseconds after 1970; OverflowError outside the years 1 to 9999."""
    return EPOCH + datetime.timedelta(microseconds=micros)


def days(date: datetime.date) -> int:
    """Since 1970."""
    return (date - EPOCH_DAY).days


def time_micros(time: datetime.time) -> int:
    """Since midnight."""
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1_000_000 + time.microsecond


def time_of(micros: int) -> datetime.time:
    """The time of a day so many microseconds after midnight; OverflowError outside the day."""
    if not 0 <= micros < _DAY_MICROS:
        raise OverflowError("not within a day")
    return (LOCAL_EPOCH + datetime.timedelta(microseconds=micros)).time()


def date_of(number: int) -> datetime.date:
    """The date so many days after 1970; OverflowError outside the years 1 to 9999."""
    return EPOCH_DAY + datetime.timedelta(days=number)


def fitting(number: Decimal, kind: ColumnType) -> Decimal | None:
    """The number with the scale of the type, rounded; None if it has too many digits."""
    rounded = number.quantize(Decimal(1).scaleb(-kind.scale), context=DIGITS)
    # Java has no negative zero.
    rounded = rounded or rounded.copy_abs()
    return rounded if len(rounded.as_tuple().digits) <= kind.precision else None


def _wrong(path: str, kind: ColumnType, value: object) -> WrongValue:
    shown = repr(value)
    shown = shown if len(shown) <= 100 else f"{shown[:100]}..."
    return WrongValue(f"{path} is not of the type {kind}: {shown}")


def _integer(kind: ColumnType, path: str) -> Convert:
    limit = 1 << (8 * INTEGERS[kind.kind] - 1)

    def convert(value: object) -> object:
        if type(value) is int and -limit <= value < limit:
            return value
        raise _wrong(path, kind, value)

    return convert


def _boolean(kind: ColumnType, path: str) -> Convert:
    def convert(value: object) -> object:
        if value is True or value is False:
            return value
        raise _wrong(path, kind, value)

    return convert


def _double(kind: ColumnType, path: str) -> Convert:
    narrow = to_float if kind.kind == "float" else float

    def convert(value: object) -> object:
        if type(value) is float and narrow is float:
            return value
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            try:
                return narrow(float(value))
            except OverflowError:
                return math.copysign(math.inf, value)
        if isinstance(value, str) and value in _NAMES_OF_DOUBLES:
            return _NAMES_OF_DOUBLES[value]
        raise _wrong(path, kind, value)

    return convert


def _decimal(kind: ColumnType, path: str) -> Convert:
    def convert(value: object) -> object:
        try:
            number = Decimal(value if isinstance(value, str | int | Decimal) else repr(value))
            found = fitting(number, kind) if number.is_finite() else None
        except (InvalidOperation, ValueError):
            found = None
        if found is None or isinstance(value, bool):
            raise _wrong(path, kind, value)
        return found

    return convert


def _string(kind: ColumnType, path: str) -> Convert:
    def convert(value: object) -> object:
        if isinstance(value, str):
            return value
        if isinstance(value, bool | int | float | Decimal | list | dict):
            return any_text(value)
        raise _wrong(path, kind, value)

    return convert


def _binary(kind: ColumnType, path: str) -> Convert:
    def convert(value: object) -> object:
        if isinstance(value, bytes):
            return value
        try:
            if isinstance(value, str):
                return base64.b64decode(value, validate=True)
        except binascii.Error:
            pass
        raise _wrong(path, kind, value)

    return convert


def _whole(value: object) -> int | None:
    """A number, which may be written as a text."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else None


def _date(kind: ColumnType, path: str) -> Convert:
    def convert(value: object) -> object:
        try:
            number = _whole(value)
            if number is not None:
                return date_of(number)
            if isinstance(value, str) and (date := date_of_text(value)) is not None:
                return date
            if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
                return value
        except (OverflowError, ValueError):
            pass
        raise _wrong(path, kind, value)

    return convert


def _timestamp(kind: ColumnType, path: str) -> Convert:
    zone = None if kind.kind == "timestamp_ntz" else UTC

    def convert(value: object) -> object:
        try:
            number = _whole(value)
            if number is not None:
                return moment_of(number * 1000).replace(tzinfo=zone)
            moment = timestamp_of_text(value) if isinstance(value, str) else value
            if isinstance(moment, datetime.datetime):
                moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                return moment.astimezone(UTC).replace(tzinfo=zone)
        except (OverflowError, ValueError):
            pass
        raise _wrong(path, kind, value)

    return convert


def _time(kind: ColumnType, path: str) -> Convert:
    def convert(value: object) -> object:
        try:
            if type(value) is int:
                return time_of(value * 1000)
            found = datetime.time.fromisoformat(value) if isinstance(value, str) else value
            if isinstance(found, datetime.time):
                return found
        except (OverflowError, ValueError):
            pass
        raise _wrong(path, kind, value)

    return convert


def _variant(kind: ColumnType, path: str) -> Convert:
    return lambda value: value


def _void(kind: ColumnType, path: str) -> Convert:
    def convert(value: object) -> object:
        raise _wrong(path, kind, value)

    return convert


def _struct(kind: ColumnType, path: str) -> Convert:
    parts = [(name, converter(each, f"{path}.{name}")) for name, each in kind.fields]

    def convert(value: object) -> object:
        if not isinstance(value, dict):
            raise _wrong(path, kind, value)
        get = value.get
        return {name: None if (part := get(name)) is None else inner(part) for name, inner in parts}

    return convert


def _array(kind: ColumnType, path: str) -> Convert:
    inner = converter(kind.items, f"{path}[]")

    def convert(value: object) -> object:
        if not isinstance(value, list | tuple):
            raise _wrong(path, kind, value)
        return [None if each is None else inner(each) for each in value]

    return convert


def _map(kind: ColumnType, path: str) -> Convert:
    key = converter(kind.keys, f"{path} (key)")
    inner = converter(kind.items, f"{path}{{}}")

    has_names = kind.keys.kind == "string"

    def convert(value: object) -> object:
        # Maps with other keys than strings are lists of pairs in JSON.
        if isinstance(value, dict):
            pairs: Iterable[Any] = value.items()
        elif isinstance(value, list) and not has_names:
            pairs = value
        else:
            raise _wrong(path, kind, value)
        try:
            return {key(name): None if each is None else inner(each) for name, each in pairs}
        except (TypeError, ValueError) as error:
            if isinstance(error, WrongValue):
                raise
            raise _wrong(path, kind, value) from None

    return convert


_SCALARS: dict[str, Callable[[ColumnType, str], Convert]] = {
    "boolean": _boolean,
    "float": _double,
    "double": _double,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp,
    "variant": _variant,
    "void": _void,
}
