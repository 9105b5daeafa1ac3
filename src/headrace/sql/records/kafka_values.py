"""Single values as Kafka's serializers write them; numbers are big-endian."""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.sql.records.errors import WrongValue
from headrace.sql.records.types import ColumnType

ReadBytes: TypeAlias = Callable[[bytes], object]
WriteBytes: TypeAlias = Callable[[Any], bytes]

_NUMBERS = {
    "smallint": struct.Struct(">h"),
    "int": struct.Struct(">i"),
    "bigint": struct.Struct(">q"),
    "float": struct.Struct(">f"),
    "double": struct.Struct(">d"),
}


def bytes_reader(kind: ColumnType, path: str) -> ReadBytes:
    """A function that reads the bytes; it raises WrongValue."""
    number = _NUMBERS.get(kind.kind)
    if number is not None:
        return _number_reader(number, kind, path)
    if kind.kind == "string":
        return lambda octets: octets.decode(errors="replace")
    if kind.kind == "boolean":
        return _boolean_reader(path)
    if kind.kind == "binary":
        return lambda octets: octets
    raise _unsupported(kind, path)


def bytes_writer(kind: ColumnType, path: str) -> WriteBytes:
    """A function that writes values of this type."""
    number = _NUMBERS.get(kind.kind)
    if number is not None:
        return number.pack
    if kind.kind == "string":
        return lambda text: str(text).encode()
    if kind.kind == "boolean":
        return lambda value: b"\x01" if value else b"\x00"
    if kind.kind == "binary":
        return bytes
    raise _unsupported(kind, path)


def _number_reader(number: struct.Struct, kind: ColumnType, path: str) -> ReadBytes:
    def read(octets: bytes) -> object:
        if len(octets) != number.size:
            raise WrongValue(
                f"{path} has {len(octets)} bytes; {kind} in the format KAFKA has {number.size}"
            )
        found: object = number.unpack(octets)[0]
        return found

    return read


def _boolean_reader(path: str) -> ReadBytes:
    def read(octets: bytes) -> object:
        if octets not in (b"\x00", b"\x01"):
            raise WrongValue(f"{path} is not a boolean, which is one byte, 0 or 1")
        return octets == b"\x01"

    return read


def _unsupported(kind: ColumnType, path: str) -> WrongValue:
    return WrongValue(
        f"{path} is {kind}, which the format KAFKA does not have; its types are string, int, "
        "bigint, double and binary"
    )
