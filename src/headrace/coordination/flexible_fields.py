"""Reads and writes the flexible encoding of Kafka's coordinator records.

Lengths are unsigned varints plus one, and every structure ends with tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from headrace.wire.varint import read_uvarint, skip_tagged_fields, uvarint

T = TypeVar("T")

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class FieldWriter(bytearray):
    """Writes the fields of a value one after the other."""

    def int8(self, value: int) -> FieldWriter:
        self.append(value & 0xFF)
        return self

    def int16(self, value: int) -> FieldWriter:
        self += _INT16.pack(value)
        return self

    def uint16(self, value: int) -> FieldWriter:
        self += value.to_bytes(2, "big")
        return self

    def int32(self, value: int) -> FieldWriter:
        self += _INT32.pack(value)
        return self

    def int64(self, value: int) -> FieldWriter:
        self += _INT64.pack(value)
        return self

    def text(self, value: str | None) -> FieldWriter:
        """A string, or None."""
        if value is None:
            self.append(0)
            return self
        raw = value.encode()
        self += uvarint(len(raw) + 1)
        self += raw
        return self

    def each(self, values: Iterable[T], write: Callable[[FieldWriter, T], object]) -> FieldWriter:
        """An array; `write` writes an element."""
        elements = list(values)
        self += uvarint(len(elements) + 1)
        for element in elements:
            write(self, element)
        return self

    def tags(self, fields: Mapping[int, bytes] | None = None) -> FieldWriter:
        """The tagged fields at the end of a structure."""
        found = fields or {}
        self += uvarint(len(found))
        for tag, raw in sorted(found.items()):
            self += uvarint(tag) + uvarint(len(raw)) + raw
        return self


class FieldReader:
    """Reads the fields of a value one after the other; ValueError or struct.error if it is bad."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, count: int) -> bytes:
        raw = self._data[self._at : self._at + count]
        if len(raw) != count:
            raise ValueError(f"a field of {count} bytes exceeds its record")
        self._at += count
        return raw

    def int8(self) -> int:
        return self._take(1)[0]

    def int16(self) -> int:
        value: int = _INT16.unpack(self._take(2))[0]
        return value

    def uint16(self) -> int:
        return int.from_bytes(self._take(2), "big")

    def int32(self) -> int:
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def int64(self) -> int:
        value: int = _INT64.unpack(self._take(8))[0]
        return value

    def nullable_text(self) -> str | None:
        """A string, or None."""
        size, self._at = read_uvarint(self._data, self._at)
        return None if size == 0 else self._take(size - 1).decode()

    def text(self) -> str:
        """A string; "" for None."""
        return self.nullable_text() or ""

    def each(self, read: Callable[[FieldReader], T]) -> tuple[T, ...]:
        """An array; `read` reads an element."""
        count, self._at = read_uvarint(self._data, self._at)
        return tuple(read(self) for _ in range(max(count - 1, 0)))

    def tags(self) -> dict[int, bytes]:
        """The tagged fields at the end of a structure."""
        found: dict[int, bytes] = {}
        count, self._at = read_uvarint(self._data, self._at)
        for _ in range(count):
            tag, self._at = read_uvarint(self._data, self._at)
            size, self._at = read_uvarint(self._data, self._at)
            found[tag] = self._take(size)
        return found

    def skip_tags(self) -> None:
        """Skip the tagged fields at the end of a structure."""
        self._at = skip_tagged_fields(self._data, self._at)
