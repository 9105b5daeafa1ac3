"""Decodes MySQL's binary JSON. MariaDB stores JSON as text.

A document is a type and a value. Objects and arrays have two sizes, with integers of 2 or 4 bytes:

    count, bytes of all, (place of a key, its length uint16)*, (type uint8, place or value)*

Places count from the beginning of the object or array. Numbers that fit and literals stand in
place of their place. A string has its length before it, with seven bits in a byte. An opaque value
is a value of a column: its type, its length as of a string, and its bytes.
"""

import base64
import json
import struct
from typing import Any

from headrace.connect.connectors.mysql_changes.decimals import decimal_decoder

_OBJECTS, _ARRAYS = (0, 1), (2, 3)
_LITERAL, _DOUBLE, _TEXT, _OPAQUE = 4, 11, 12, 15
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q", _DOUBLE: "<d"}
_LITERALS = {0: None, 1: True, 2: False}
_DECIMAL, _DATE, _TIME = 246, 10, 11
_TIMES = (7, 12)


def json_text(data: bytes) -> str:
    """The document as text, as SELECT has it. A document of no bytes is null."""
    found = _value(data[0], data, 1) if data else None
    return json.dumps(found, ensure_ascii=False)


def _value(kind: int, data: bytes, place: int) -> Any:
    if kind in _OBJECTS or kind in _ARRAYS:
        return _nested(kind, data, place)
    if kind == _LITERAL:
        return _LITERALS[data[place]]
    if kind in _NUMBERS:
        return struct.unpack_from(_NUMBERS[kind], data, place)[0]
    if kind == _TEXT:
        begin, length = _length(data, place)
        return data[begin : begin + length].decode("utf-8", "replace")
    if kind == _OPAQUE:
        begin, length = _length(data, place + 1)
        return _opaque(data[place], data[begin : begin + length])
    raise ValueError(f"a JSON value has the unknown type {kind}")


def _nested(kind: int, data: bytes, begin: int) -> Any:
    width = 4 if kind in (1, 3) else 2
    form = "<I" if width == 4 else "<H"
    (count,) = struct.unpack_from(form, data, begin)
    place = begin + 2 * width
    keys = []
    if kind in _OBJECTS:
        for _ in range(count):
            (at,) = struct.unpack_from(form, data, place)
            (length,) = struct.unpack_from("<H", data, place + width)
            keys.append(data[begin + at : begin + at + length].decode("utf-8", "replace"))
            place += width + 2
    values = []
    for _ in range(count):
        inner = data[place]
        if inner in (_LITERAL, 5, 6) or (inner in (7, 8) and width == 4):
            values.append(_value(inner, data, place + 1))
        else:
            (at,) = struct.unpack_from(form, data, place + 1)
            values.append(_value(inner, data, begin + at))
        place += 1 + width
    return dict(zip(keys, values, strict=True)) if kind in _OBJECTS else values


def _length(data: bytes, place: int) -> tuple[int, int]:
    """Where the bytes begin, and how many they are."""
    length = shift = 0
    while True:
        byte = data[place]
        length |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return place, length


def _opaque(kind: int, data: bytes) -> Any:
    if kind == _DECIMAL:
        return float(str(decimal_decoder(data[0], data[1])(data, 2)[0]))
    if kind in (_DATE, _TIME, *_TIMES):
        return _temporal(kind, int.from_bytes(data, "little", signed=True))
    return f"base64:type{kind}:{base64.b64encode(data).decode()}"


def _temporal(kind: int, packed: int) -> str:
    sign, packed = "-" if packed < 0 else "", abs(packed)
    micros, whole = packed & 0xFFFFFF, packed >> 24
    seconds, minutes = whole & 63, whole >> 6 & 63
    if kind == _TIME:
        return f"{sign}{whole >> 12:02}:{minutes:02}:{seconds:02}.{micros:06}"
    months = whole >> 22
    date = f"{months // 13:04}-{months % 13:02}-{whole >> 17 & 31:02}"
    if kind == _DATE:
        return date
    return f"{date} {whole >> 12 & 31:02}:{minutes:02}:{seconds:02}.{micros:06}"
