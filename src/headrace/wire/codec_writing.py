"""Encodes responses: writers for kio's classes, created once for each class.

Every writer exists twice: one writes at once, the other in steps (`wire/steps.py`), for responses
that take long.
"""

import datetime
import struct
import typing
import uuid
from collections.abc import Callable, Iterable
from functools import cache
from typing import TypeAlias

from headrace.wire.codec_fields import (
    EPOCH,
    INT16,
    INT32,
    INT64,
    NUMBERS,
    Class,
    MessageField,
    arrays,
    fields,
)
from headrace.wire.steps import Steps

Write: TypeAlias = Callable[["ResponseWriter", object], None]
WriteSteps: TypeAlias = Callable[["ResponseWriter", object], Steps[None]]

THROTTLE_TIME = "throttle_time"
"""The field of responses that handlers do not fill in."""

STRIDE = 16
"""Array elements between two yields."""


class ResponseWriter(bytearray):
    """A partly encoded response, and the position of each array of messages in it.

    Handlers use the same tuple in many places, such as the default configs of a thousand topics:
    from the second time on, its bytes are copied.
    """

    __slots__ = ("arrays", "throttle_ms")

    def __init__(self, throttle_ms: int = 0) -> None:
        super().__init__()
        self.throttle_ms = throttle_ms
        self.arrays: dict[tuple[int, str, Class | None], slice] = {}

    def copy_array(self, values: object, field: MessageField) -> bool:
        """Write an array as it was written before; False if it was not."""
        known = self.arrays.get((id(values), field.name, field.entity))
        if known is not None:
            self += self[known]
        return known is not None


@cache
def entity_writer(target: Class) -> Write:
    """Writes the fields of `target` from any object that has attributes of their names."""
    flexible: bool = target.__flexible__  # type: ignore[attr-defined]
    plain = [(field.name, _field_writer(field, flexible)) for field in fields(target)
             if field.tag is None]  # fmt: skip
    tagged = _tagged_writer(target)

    def write_entity(out: ResponseWriter, entity: object) -> None:
        for name, write in plain:
            write(out, getattr(entity, name))
        if flexible:
            tagged(out, entity)

    return write_entity


@cache
def entity_write_steps(target: Class) -> WriteSteps:
    """As `entity_writer`, in steps."""
    flexible: bool = target.__flexible__  # type: ignore[attr-defined]
    plain: list[tuple[str, Write | None, WriteSteps | None]] = []
    for field in fields(target):
        if field.tag is None:
            steps = _array_write_steps(field, flexible)
            plain.append((field.name, None if steps else _field_writer(field, flexible), steps))
    tagged = _tagged_writer(target)

    def write_entity(out: ResponseWriter, entity: object) -> Steps[None]:
        for name, write, steps in plain:
            if write is not None:
                write(out, getattr(entity, name))
            elif steps is not None:
                yield from steps(out, getattr(entity, name))
        if flexible:
            tagged(out, entity)

    return write_entity


@cache
def _tagged_writer(target: Class) -> Write:
    """Writes the tagged fields that are not at their defaults."""
    tagged = sorted(
        [
            (field.tag, field.name, field.default, _field_writer(field, True))
            for field in fields(target)
            if field.tag is not None
        ],
        key=lambda row: row[0],
    )

    def write_tagged(out: ResponseWriter, entity: object) -> None:
        set_tags = [row for row in tagged if getattr(entity, row[1]) != row[2]]
        _write_varint(out, len(set_tags))
        for tag, name, _, write in set_tags:
            body = ResponseWriter()
            write(body, getattr(entity, name))
            _write_varint(out, tag)
            _write_varint(out, len(body))
            out += body

    return write_tagged


def _write_throttle_time(out: ResponseWriter, _value: object) -> None:
    out += INT32.pack(out.throttle_ms)


def _field_writer(field: MessageField, flexible: bool) -> Write:
    if field.name == THROTTLE_TIME:
        return _write_throttle_time
    one = (
        entity_writer(field.entity)
        if field.entity is not None
        else _scalar_writer(field.kind, flexible, field.nullable and not field.array)
    )
    if field.array:
        return _array_writer(field, one, flexible)
    if field.entity is None or not field.nullable or field.tag is not None:
        return one

    def write_nullable(out: ResponseWriter, entity: object) -> None:
        out += b"\xff" if entity is None else b"\x01"
        if entity is not None:
            one(out, entity)

    return write_nullable


def _array_writer(field: MessageField, one: Write, flexible: bool) -> Write:
    number = NUMBERS.get(field.kind)
    code = number.format[1:] if number else ""

    def write_array(out: ResponseWriter, values: object) -> None:
        elements = _write_length(out, values, field, flexible)
        if not elements:
            return
        if number:
            out += struct.pack(f">{len(elements)}{code}", *elements)
            return
        if out.copy_array(elements, field):
            return
        start = len(out)
        for value in elements:
            one(out, value)
        out.arrays[id(elements), field.name, field.entity] = slice(start, len(out))

    return write_array


def _array_write_steps(field: MessageField, flexible: bool) -> WriteSteps | None:
    """As `_array_writer`, in steps; None unless it is an array of messages or strings."""
    if not field.array or field.kind in NUMBERS:
        return None
    steps: WriteSteps | None = None
    if field.entity is None:
        one = _scalar_writer(field.kind, flexible, False)
    else:
        one = entity_writer(field.entity)
        if arrays(field.entity):
            steps = entity_write_steps(field.entity)

    def write_array(out: ResponseWriter, values: object) -> Steps[None]:
        elements = _write_length(out, values, field, flexible)
        if not elements or out.copy_array(elements, field):
            return
        start = len(out)
        for number, value in enumerate(elements):
            if steps is None:
                one(out, value)
            else:
                yield from steps(out, value)
            if not number % STRIDE:
                yield
        out.arrays[id(elements), field.name, field.entity] = slice(start, len(out))

    return write_array


def _write_length(
    out: "ResponseWriter", values: object, field: MessageField, flexible: bool
) -> tuple[object, ...] | list[object]:
    """Write the number of elements, and return them."""
    if values is None:
        if field.nullable:
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return ()
        values = ()
    assert isinstance(values, tuple | list), field.name
    if flexible:
        _write_varint(out, len(values) + 1)
    else:
        out += INT32.pack(len(values))
    return values


def _scalar_writer(kind: str, flexible: bool, nullable: bool) -> Write:
    number = NUMBERS.get(kind)
    if number is not None:
        pack = number.pack

        def write_number(out: ResponseWriter, value: object) -> None:
            out += pack(value)

        return write_number
    match kind:
        case "string" | "bytes" | "records":
            width = INT16 if kind == "string" else INT32
            return _compact_writer(nullable) if flexible else _sized_writer(width, nullable)
        case "uuid":
            return _write_uuid
        case "timedelta_i32" | "timedelta_i64":
            return _timedelta_writer(INT32 if kind.endswith("32") else INT64)
        case "datetime_i64":
            return _write_datetime
    raise NotImplementedError(f"no writer for Kafka's type {kind}")


def _write_varint(out: ResponseWriter, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _raw(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    # A version without null here gets the empty value, the default of Kafka's messages.
    return b"" if value is None else bytes(typing.cast(Iterable[int], value))


def _compact_writer(nullable: bool) -> Write:
    def write_compact(out: ResponseWriter, value: object) -> None:
        if value is None and nullable:
            out.append(0)
            return
        raw = _raw(value)
        _write_varint(out, len(raw) + 1)
        out += raw

    return write_compact


def _sized_writer(width: struct.Struct, nullable: bool) -> Write:
    def write_sized(out: ResponseWriter, value: object) -> None:
        if value is None and nullable:
            out += width.pack(-1)
            return
        raw = _raw(value)
        out += width.pack(len(raw))
        out += raw

    return write_sized


def _write_uuid(out: ResponseWriter, value: object) -> None:
    out += value.bytes if isinstance(value, uuid.UUID) else bytes(16)


def _timedelta_writer(width: struct.Struct) -> Write:
    def write_timedelta(out: ResponseWriter, value: object) -> None:
        assert isinstance(value, datetime.timedelta)
        out += width.pack(value // datetime.timedelta(milliseconds=1))

    return write_timedelta


def _write_datetime(out: ResponseWriter, value: object) -> None:
    if value is None:
        out += INT64.pack(-1)
        return
    assert isinstance(value, datetime.datetime)
    out += INT64.pack((value - EPOCH) // datetime.timedelta(milliseconds=1))
