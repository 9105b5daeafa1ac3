"""Formats records for the standard output of `consume`."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.admin import record_text
from headrace.cli import output

if TYPE_CHECKING:
    from confluent_kafka import Message

TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}


@dataclass(frozen=True, slots=True)
class Style:
    """The options of the text formats."""

    separator: str
    null_marker: str
    show_headers: bool
    to_terminal: bool


def writer(form: str, style: Style) -> Callable[["Message"], bytes]:
    """The function that prints one record in this format."""
    if form == "json":
        return _json
    if form == "raw":
        return lambda message: message.value() or b""
    if form == "table":
        return _Table(style)
    return _Lines(style, with_key=form == "key-value")


def _json(message: "Message") -> bytes:
    kind, timestamp = message.timestamp()
    record = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind in TIMESTAMP_TYPES else None,
        "timestamp_type": TIMESTAMP_TYPES.get(kind),
        **record_text.json_field("key", message.key()),
        **record_text.json_field("value", message.value()),
        "headers": record_text.json_headers(tuple(message.headers() or ())),
    }
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


class _Lines:
    """One record per line: unchanged bytes for a pipe, printable ones for a terminal."""

    def __init__(self, style: Style, *, with_key: bool) -> None:
        self._style = style
        self._with_key = with_key
        self._separator = style.separator.encode()

    def __call__(self, message: "Message") -> bytes:
        line = self._bytes(message.value())
        if self._with_key:
            line = self._bytes(message.key()) + self._separator + line
        if self._style.show_headers:
            line = _headers(message).encode() + self._separator + line
        return line + b"\n"

    def _bytes(self, value: bytes | None) -> bytes:
        if value is None:
            return self._style.null_marker.encode()
        return record_text.printable(value).encode() if self._style.to_terminal else value


def _headers(message: "Message") -> str:
    pairs = message.headers() or ()
    return ",".join(f"{name}={record_text.printable(value)}" for name, value in pairs) or "-"


class _Table:
    """Columns of fixed width, so that a line can be printed as soon as its record arrives."""

    def __init__(self, style: Style) -> None:
        self._style = style
        self._begun = False
        self._width = shutil.get_terminal_size((100, 24)).columns if style.to_terminal else 100

    def __call__(self, message: "Message") -> bytes:
        kind, timestamp = message.timestamp()
        cells = [
            f"{message.partition():>4}",
            f"{message.offset():>12}",
            f"{output.time_text(timestamp if kind in TIMESTAMP_TYPES else None):<23}",
            _fit(record_text.printable(message.key()), 16),
        ]
        if self._style.show_headers:
            cells.append(_fit(_headers(message), 20))
        line = "  ".join(cells) + "  "
        line += _fit(record_text.printable(message.value()), self._width - len(line)).rstrip()
        return (self._heading() + line + "\n").encode()

    def _heading(self) -> str:
        if self._begun:
            return ""
        self._begun = True
        names = [f"{'PART':>4}", f"{'OFFSET':>12}", f"{'TIME (UTC)':<23}", f"{'KEY':<16}"]
        if self._style.show_headers:
            names.append(f"{'HEADERS':<20}")
        line = "  ".join([*names, "VALUE"])
        return f"\x1b[1;36m{line}\x1b[0m\n" if self._style.to_terminal else f"{line}\n"


def _fit(text: str, width: int) -> str:
    width = max(width, 10)
    return f"{text:<{width}}" if len(text) <= width else text[: width - 1] + "…"
