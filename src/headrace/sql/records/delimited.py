"""Columns as one line of text with a delimiter, quoted where necessary (RFC 4180).

Nothing between two delimiters is null; an empty string is written as "".
"""

import base64
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from headrace.sql.records.errors import WrongValue
from headrace.sql.records.java_numbers import double_text, float_text
from headrace.sql.records.types import INTEGERS, ColumnType, Convert
from headrace.sql.records.values import converter, days, milliseconds, time_micros

_NUMERIC = frozenset({*INTEGERS, "date", "time", "timestamp", "timestamp_ntz"})
_FLOATING = frozenset({"float", "double"})


def fields_reader(
    columns: Sequence[tuple[str, ColumnType]], delimiter: str
) -> Callable[[str], list[object]]:
    """A function that reads lines into the values of the columns; it raises WrongValue."""
    parts = [_field_reader(kind, name) for name, kind in columns]

    def read(line: str) -> list[object]:
        if not line:
            return [None] * len(parts)
        fields = split(line, delimiter)
        if len(fields) != len(parts):
            raise WrongValue(f"{len(fields)} fields instead of {len(parts)}")
        return [
            None if text is None else part(text) for text, part in zip(fields, parts, strict=True)
        ]

    return read


def line_writer(
    columns: Sequence[tuple[str, ColumnType]], delimiter: str
) -> Callable[[Sequence[object]], str]:
    """A function that writes the values of the columns."""
    parts = [_field_writer(kind, name, delimiter) for name, kind in columns]

    def write(values: Sequence[object]) -> str:
        return delimiter.join(
            "" if value is None else part(value) for value, part in zip(values, parts, strict=True)
        )

    return write


def split(line: str, delimiter: str) -> list[str | None]:
    """The fields of a line; None for those without any text, not even quotes."""
    if '"' not in line:
        return [text or None for text in line.split(delimiter)]
    fields: list[str | None] = []
    at, size = 0, len(line)
    while True:
        if line.startswith('"', at):
            text, at = _quoted(line, at + 1)
            fields.append(text)
        else:
            end = line.find(delimiter, at)
            end = size if end < 0 else end
            fields.append(line[at:end] or None)
            at = end
        if at == size:
            return fields
        if not line.startswith(delimiter, at):
            raise WrongValue("text follows the closing quote of a field")
        at += len(delimiter)


def _quoted(line: str, at: int) -> tuple[str, int]:
    """The text of a quoted field that begins here, and where it ends."""
    parts: list[str] = []
    while (end := line.find('"', at)) >= 0:
        parts.append(line[at:end])
        if not line.startswith('"', end + 1):
            return "".join(parts), end + 1
        parts.append('"')
        at = end + 2
    raise WrongValue("a quote without an end")


def _field_reader(kind: ColumnType, name: str) -> Callable[[str], object]:
    convert: Convert = converter(kind, name)
    if kind.kind == "string":
        return lambda text: text
    if kind.kind in _NUMERIC:
        return lambda text: convert(_number(int, text))
    if kind.kind in _FLOATING:
        return lambda text: convert(_number(float, text))
    if kind.kind == "decimal":
        return lambda text: convert(_number(Decimal, text))
    if kind.kind == "boolean":
        return lambda text: convert({"true": True, "false": False}.get(text.lower(), text))
    if kind.kind == "binary":
        return convert
    raise _unsupported(kind, name)


def _number(parse: Callable[[str], Any], text: str) -> object:
    """The number; the text itself if it is none, which no type of numbers takes."""
    try:
        found: object = parse(text)
    except (ValueError, ArithmeticError):
        return text
    return found


def _field_writer(kind: ColumnType, name: str, delimiter: str) -> Callable[[Any], str]:
    if kind.kind == "string":
        return lambda value: _escaped(value, delimiter)
    if kind.kind in INTEGERS:
        return str
    found = _WRITERS.get(kind.kind)
    if found is None:
        raise _unsupported(kind, name)
    return found


def _escaped(text: str, delimiter: str) -> str:
    if text and not any(sign in text for sign in (delimiter, '"', "\n", "\r")):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


_WRITERS: dict[str, Callable[[Any], str]] = {
    "boolean": lambda value: "true" if value else "false",
    "float": float_text,
    "double": double_text,
    "decimal": lambda value: f"{value:f}",
    "binary": lambda value: base64.b64encode(value).decode() or '""',
    "date": lambda value: str(days(value)),
    "time": lambda value: str(time_micros(value) // 1000),
    "timestamp": lambda value: str(milliseconds(value)),
    "timestamp_ntz": lambda value: str(milliseconds(value)),
}


def _unsupported(kind: ColumnType, name: str) -> WrongValue:
    return WrongValue(f"{name} is {kind}, which the format DELIMITED does not have")
