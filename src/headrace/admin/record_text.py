"""Records as text: lines that become records, and records that become lines.

`produce --format json` writes the output of `consume --format json` again byte for byte. Bytes that
are not UTF-8 become base64, with a marker.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class BadLine(ValueError):
    """A line of input that is not a record."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write; None where the producer may choose."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The form of the input lines."""

    kind: str
    separator: bytes = b"\t"
    null_marker: bytes | None = None
    headers: Headers = ()
    partition: int | None = None


def parse_line(line: bytes, form: LineFormat) -> NewRecord:
    """The record on one line (without its line end)."""
    if form.kind == "json":
        return _from_json(line, form)
    key: bytes | None = None
    value: bytes | None = line
    if form.kind == "key-value":
        key, found, value = line.partition(form.separator)
        if not found:
            shown = form.separator.decode("utf-8", "replace")
            raise BadLine(f"no key separator {shown!r} in {preview(line)}")
    if form.null_marker is not None:
        key = None if key == form.null_marker else key
        value = None if value == form.null_marker else value
    return NewRecord(key, value, form.headers, form.partition)


def _from_json(line: bytes, form: LineFormat) -> NewRecord:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise BadLine(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadLine("not a JSON object with key, value, headers, partition or timestamp")
    if strange := found.keys() - KNOWN_FIELDS:
        raise BadLine(f"unknown field {sorted(strange)[0]!r}; known: {', '.join(WRITABLE_FIELDS)}")
    partition = _whole(found, "partition")
    return NewRecord(
        key=_bytes(found.get("key"), found.get("key_encoding")),
        value=_bytes(found.get("value"), found.get("value_encoding")),
        headers=form.headers + _headers(found.get("headers")),
        partition=form.partition if form.partition is not None else partition,
        timestamp_ms=_whole(found, "timestamp"),
    )


WRITABLE_FIELDS = ("key", "value", "headers", "partition", "timestamp")
KNOWN_FIELDS = {
    *WRITABLE_FIELDS,
    "key_encoding",
    "value_encoding",
    # Fields that `consume` prints and that a new record cannot have.
    "topic",
    "offset",
    "timestamp_type",
    "leader_epoch",
}


def _whole(found: dict[str, object], name: str) -> int | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadLine(f"{name} must be a whole number, not {value!r}")
    return value


def _bytes(value: object, encoding: object) -> bytes | None:
    """Text unchanged, other JSON values as JSON text, base64 decoded if it is marked."""
    if value is None:
        return None
    if encoding == "base64":
        try:
            return base64.b64decode(str(value), validate=True)
        except binascii.Error as error:
            raise BadLine(f"not base64: {error}") from None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _headers(value: object) -> Headers:
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple((str(name), _bytes(each, None)) for name, each in value.items())
    if not isinstance(value, list):
        raise BadLine("headers must be an object or a list")
    found = []
    for each in value:
        if isinstance(each, dict) and "key" in each:
            found.append((str(each["key"]), _bytes(each.get("value"), each.get("value_encoding"))))
        elif isinstance(each, list) and len(each) == 2:
            found.append((str(each[0]), _bytes(each[1], None)))
        else:
            raise BadLine(f"no header: {json.dumps(each)}")
    return tuple(found)


def json_field(name: str, value: bytes | None) -> dict[str, object]:
    """A key or value for JSON: text, null, or base64 with `<name>_encoding` beside it."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode(), f"{name}_encoding": "base64"}


def json_headers(headers: Headers) -> list[dict[str, object]]:
    """Headers in order; a name may occur more than once."""
    return [{"key": name, **json_field("value", value)} for name, value in headers]


def printable(value: bytes | None, null: str = "null") -> str:
    """Bytes for a terminal: control characters are escaped."""
    if value is None:
        return null
    text = value.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def preview(value: bytes, limit: int = 60) -> str:
    """The beginning of a line, for a message."""
    shown = printable(value[:limit])
    return f"{shown!r}" + ("..." if len(value) > limit else "")
