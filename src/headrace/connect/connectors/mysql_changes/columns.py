"""Decodes the values of columns in events of rows, by the column's type in the binary log.

A decoder takes the bytes of an event and a place, and returns the value and the place behind it.
Integers are little-endian; bits and the temporal types from MySQL 5.6 on are big-endian:

    DATE       3 bytes little-endian: year << 9, month << 5, day
    TIME2      3 bytes + 0x800000: hours << 12, minutes << 6, seconds; then the fraction
    DATETIME2  5 bytes + 0x8000000000: (year * 13 + month) << 22, day << 17, hours << 12,
               minutes << 6, seconds; then the fraction
    TIMESTAMP2 4 bytes: seconds since 1970; then the fraction

A fraction has a byte for every two digits.
"""

import datetime
import socket
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.connect.connectors.mysql_changes.decimals import Decoder, decimal_decoder
from headrace.connect.connectors.mysql_changes.json_binary import json_text

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = (
    10, 11, 12, 13, 15, 16, 17, 18, 19,
)  # fmt: skip
JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = (
    245, 246, 247, 248, 252, 253, 254, 255,
)  # fmt: skip
INTEGERS: Final = {TINY: "b", SHORT: "h", LONG: "i", LONGLONG: "q"}
NUMBERS: Final = {TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE, YEAR}
"""The types that have a bit in the metadata of signs."""
TEXTS: Final = {STRING, VAR_STRING, VARCHAR, BLOB}

_UNITS = (1_000_000, 10_000, 100, 1)
"""Microseconds in a unit of a fraction, by the number of its bytes."""
_EPOCH = datetime.datetime(1970, 1, 1)
_CODECS = {
    "utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii", "latin1": "cp1252",
    "latin2": "iso8859-2", "latin5": "iso8859-9", "latin7": "iso8859-13", "greek": "iso8859-7",
    "hebrew": "iso8859-8", "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le",
    "utf32": "utf-32-be", "koi8r": "koi8-r", "koi8u": "koi8-u", "cp850": "cp850", "cp852": "cp852",
    "cp866": "cp866", "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256",
    "cp1257": "cp1257", "cp932": "cp932", "sjis": "shift_jis", "ujis": "euc_jp",
    "eucjpms": "euc_jp", "euckr": "euc_kr", "gb2312": "gb2312", "gbk": "gbk",
    "gb18030": "gb18030", "big5": "big5", "tis620": "tis-620", "macroman": "mac-roman",
    "macce": "mac-latin2",
}  # fmt: skip


class UnknownType(Exception):
    """A type that cannot be decoded; the message names it."""


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """How a column is in the events of its table."""

    type: int
    meta: bytes
    name: str
    is_unsigned: bool
    charset: str
    """As the server calls it; `binary` for bytes."""
    choices: Sequence[str]
    """Of ENUM and SET."""
    declared: str
    """The type in SQL, or nothing if the table does not have the column any more."""

    def decoder(self) -> Decoder:
        kind, meta = self.type, self.meta
        if kind in INTEGERS:
            letter = INTEGERS[kind]
            return _number(f"<{letter.upper() if self.is_unsigned else letter}")
        simple = _SIMPLE.get(kind)
        if simple is not None:
            return simple
        if kind == INT24:
            return _medium(self.is_unsigned)
        if kind == NEWDECIMAL:
            return decimal_decoder(meta[0], meta[1])
        if kind in (TIMESTAMP2, DATETIME2, TIME2):
            return {TIMESTAMP2: _timestamp, DATETIME2: _datetime, TIME2: _time}[kind](meta[0])
        if kind == BIT:
            return _bytes_of((meta[0] + meta[1] * 8 + 7) // 8)
        if kind == ENUM:
            return _enum(meta[1], self.choices)
        if kind == SET:
            return _set(meta[1], self.choices)
        if kind in (STRING, VAR_STRING, VARCHAR, BLOB, JSON, GEOMETRY):
            return self._prefixed()
        raise UnknownType(f"the column {self.name} has the type {kind}, which is not decoded")

    def _prefixed(self) -> Decoder:
        """Bytes after their length."""
        kind, meta = self.type, self.meta
        if kind in (BLOB, JSON, GEOMETRY):
            size = meta[0]
        elif kind == STRING:
            size = 1 if _longest(meta) < 256 else 2
        else:
            size = 1 if int.from_bytes(meta, "little") < 256 else 2
        if kind == JSON:
            return _converted(size, json_text)
        if kind == STRING and self.declared in _ADDRESSES:
            return _converted(size, _ADDRESSES[self.declared])
        if kind == GEOMETRY or self.charset == "binary":
            # The log has BINARY without the zeros at the end.
            width = _longest(meta) if kind == STRING else 0
            return _converted(size, lambda data: data.ljust(width, b"\0"))
        codec = codec_of(self.charset)
        if codec is None:
            raise UnknownType(
                f"the column {self.name} has the character set {self.charset}, which is not decoded"
            )
        return _text(size, codec)


def codec_of(charset: str) -> str | None:
    """Python's name of a character set."""
    return _CODECS.get(charset)


def real_type(kind: int, meta: bytes) -> int:
    """ENUM and SET are hidden behind STRING, whose length has two bits in the type's byte."""
    if kind != STRING:
        return kind
    return meta[0] if meta[0] & 0x30 == 0x30 else meta[0] | 0x30


def meta_size(kind: int) -> int:
    """How many bytes of metadata a type has."""
    if kind in (VARCHAR, BIT, NEWDECIMAL, ENUM, SET, VAR_STRING, STRING, 141):
        return 2
    return int(kind in (FLOAT, DOUBLE, TIMESTAMP2, DATETIME2, TIME2, JSON, GEOMETRY, 140)
               or BLOB - 3 <= kind <= BLOB)  # fmt: skip


def _longest(meta: bytes) -> int:
    """The bytes that a STRING may have."""
    return meta[1] | ((meta[0] & 0x30 ^ 0x30) << 4)


def _number(letters: str) -> Decoder:
    form = struct.Struct(letters)
    size, unpack = form.size, form.unpack_from
    return lambda data, place: (unpack(data, place)[0], place + size)


def _medium(is_unsigned: bool) -> Decoder:
    def decode(data: bytes, place: int) -> tuple[object, int]:
        end = place + 3
        return int.from_bytes(data[place:end], "little", signed=not is_unsigned), end

    return decode


def _bytes_of(size: int) -> Decoder:
    return lambda data, place: (data[place : place + size], place + size)


def _converted(size: int, convert: Callable[[bytes], object]) -> Decoder:
    def decode(data: bytes, place: int) -> tuple[object, int]:
        begin = place + size
        end = begin + int.from_bytes(data[place:begin], "little")
        return convert(data[begin:end]), end

    return decode


def _text(size: int, codec: str) -> Decoder:
    if codec == "cp1252":
        return _converted(size, _latin)

    def decode(data: bytes, place: int) -> tuple[object, int]:
        begin = place + size
        end = begin + (data[place] if size == 1 else int.from_bytes(data[place:begin], "little"))
        return data[begin:end].decode(codec, "replace"), end

    return decode


def _latin(data: bytes) -> str:
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        # MySQL's latin1 has control characters for the five bytes that cp1252 leaves out.
        each = (data[place : place + 1] for place in range(len(data)))
        return "".join(
            byte.decode("latin-1" if byte in b"\x81\x8d\x8f\x90\x9d" else "cp1252") for byte in each
        )


def _enum(size: int, choices: Sequence[str]) -> Decoder:
    def decode(data: bytes, place: int) -> tuple[object, int]:
        number = int.from_bytes(data[place : place + size], "little")
        # 0 is what MySQL stores for an invalid value when it is not strict.
        return choices[number - 1] if number else "", place + size

    return decode


def _set(size: int, choices: Sequence[str]) -> Decoder:
    def decode(data: bytes, place: int) -> tuple[object, int]:
        bits = int.from_bytes(data[place : place + size], "little")
        found = [choice for number, choice in enumerate(choices) if bits >> number & 1]
        return ",".join(found), place + size

    return decode


def _fraction(data: bytes, place: int, size: int) -> int:
    """Microseconds."""
    return int.from_bytes(data[place : place + size], "big") * _UNITS[size]


def _timestamp(digits: int) -> Decoder:
    size = (digits + 1) // 2

    def decode(data: bytes, place: int) -> tuple[object, int]:
        seconds = int.from_bytes(data[place : place + 4], "big")
        micros = _fraction(data, place + 4, size) if size else 0
        return _instant(seconds, micros), place + 4 + size

    return decode


def _instant(seconds: int, micros: int) -> datetime.datetime | None:
    if not seconds and not micros:
        return None  # 0000-00-00 00:00:00
    return _EPOCH + datetime.timedelta(0, seconds, micros)


def _datetime(digits: int) -> Decoder:
    size = (digits + 1) // 2

    def decode(data: bytes, place: int) -> tuple[object, int]:
        packed = int.from_bytes(data[place : place + 5], "big") - 0x8000000000
        micros = _fraction(data, place + 5, size) if size else 0
        months = packed >> 22
        found = _moment(months // 13, months % 13, packed >> 17 & 31, packed >> 12 & 31,
                        packed >> 6 & 63, packed & 63, micros)  # fmt: skip
        return found, place + 5 + size

    return decode


def _moment(
    year: int, month: int, day: int, hour: int, minute: int, second: int, micros: int
) -> datetime.datetime | None:
    try:
        return datetime.datetime(year, month, day, hour, minute, second, micros)
    except ValueError:
        return None  # dates with zeros


def _time(digits: int) -> Decoder:
    size = (digits + 1) // 2

    def decode(data: bytes, place: int) -> tuple[object, int]:
        end = place + 3 + size
        packed = int.from_bytes(data[place:end], "big") - (0x800000 << 8 * size)
        sign = "-" if packed < 0 else ""
        packed = abs(packed)
        whole, part = packed >> 8 * size, packed & (1 << 8 * size) - 1
        text = f"{sign}{whole >> 12:02}:{whole >> 6 & 63:02}:{whole & 63:02}"
        if digits:
            text += f".{part * _UNITS[size]:06}"[: digits + 1]
        return text, end

    return decode


def _date(data: bytes, place: int) -> tuple[object, int]:
    packed = int.from_bytes(data[place : place + 3], "little")
    moment = _moment(packed >> 9, packed >> 5 & 15, packed & 31, 0, 0, 0, 0)
    return moment and moment.date(), place + 3


def _year(data: bytes, place: int) -> tuple[object, int]:
    return data[place] + 1900 if data[place] else 0, place + 1


def _old_timestamp(data: bytes, place: int) -> tuple[object, int]:
    return _instant(int.from_bytes(data[place : place + 4], "little"), 0), place + 4


def _old_datetime(data: bytes, place: int) -> tuple[object, int]:
    text = f"{int.from_bytes(data[place : place + 8], 'little'):014}"
    parts = [int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))]
    return _moment(parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], 0), place + 8


def _old_time(data: bytes, place: int) -> tuple[object, int]:
    packed = int.from_bytes(data[place : place + 3], "little", signed=True)
    sign, packed = "-" if packed < 0 else "", abs(packed)
    return f"{sign}{packed // 10000:02}:{packed // 100 % 100:02}:{packed % 100:02}", place + 3


_SIMPLE: dict[int, Decoder] = {
    FLOAT: _number("<f"),
    DOUBLE: _number("<d"),
    DATE: _date,
    YEAR: _year,
    TIMESTAMP: _old_timestamp,
    DATETIME: _old_datetime,
    TIME: _old_time,
}


_ADDRESSES: dict[str, Callable[[bytes], object]] = {
    "uuid": lambda data: str(uuid.UUID(bytes=data.ljust(16, b"\0"))),
    "inet6": lambda data: socket.inet_ntop(socket.AF_INET6, data.ljust(16, b"\0")),
    "inet4": lambda data: socket.inet_ntop(socket.AF_INET, data.ljust(4, b"\0")),
}
