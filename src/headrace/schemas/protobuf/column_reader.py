"""Reads Protobuf values into columns.

message indexes | the message

A message is parsed with the reader's descriptor, as usual in Protobuf: by field numbers, ignoring
unknown fields. The writer's schema determines which message of its file it is.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from pyspark.sql.pandas.types import to_arrow_type

from headrace.schemas.columns.cursors import Reasons, Values, scattered
from headrace.schemas.columns.decoded import Decoded, decode_in_parts, without_bad
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.interface import RegisteredSchema
from headrace.schemas.protobuf.column_types import (
    TIMESTAMP,
    WRAPPERS,
    is_map,
    spark_type,
)
from headrace.schemas.protobuf.flat_columns import is_flat, read_flat
from headrace.schemas.protobuf.messages import (
    descriptor_of,
    message_at,
    message_indexes,
    message_named,
)


class ProtobufColumnReader:
    """Reads messages with one reader's descriptor."""

    def __init__(self, reader: RegisteredSchema, name: str | None) -> None:
        self._message = message_named(descriptor_of(reader), name)
        self.spark_type = spark_type(self._message)
        self._type = to_arrow_type(self.spark_type, timezone="UTC")
        self._class = message_factory.GetMessageClass(self._message)
        self._flat = is_flat(self._message)
        self._files: dict[int, FileDescriptor] = {}
        self._names: dict[tuple[int, tuple[int, ...]], str] = {}

    def decode(self, values: Values, writer: RegisteredSchema) -> Decoded:
        if not self._flat:
            return self._decode_singly(values, writer)
        return decode_in_parts(
            values,
            lambda part: self._decode_all(part, writer),
            lambda part: self._decode_singly(part, writer),
        )

    def _decode_all(self, values: Values, writer: RegisteredSchema) -> Decoded | None:
        """Decode all messages at once, if all are the file's first message and regular."""
        if not len(values) or (values.length == 0).any() or values.octets[values.at].any():
            return None
        try:
            self._check(writer, (0,))
        except (ValueError, InvalidSchema):
            return None
        bodies = Values(values.octets, values.at + 1, values.length - 1)
        array = read_flat(self._message, self._type, bodies)
        return None if array is None else Decoded(array, {})

    def _decode_singly(self, values: Values, writer: RegisteredSchema) -> Decoded:
        reasons = Reasons(len(values))
        found: list[Any] = []
        good: list[int] = []
        parse_one = self._class.FromString
        for row, piece in enumerate(values.pieces()):
            try:
                indexes, start = message_indexes(piece)
                self._check(writer, indexes)
                found.append(parse_one(piece[start:]))
                good.append(row)
            except Exception as error:
                # Decoders raise many kinds of exceptions for malformed bytes.
                reasons.add(np.array([row]), f"not of its schema: {type(error).__name__} {error}")
        rows = np.array(good, np.int64)
        array = scattered([(rows, self._columns(found, rows, reasons))], len(values), self._type)
        return without_bad(array, reasons)

    def _columns(self, messages: list[Any], rows: np.ndarray[Any, Any], reasons: Reasons) -> Any:
        try:
            return structs(self._message, messages, self._type)
        except (UnicodeDecodeError, OverflowError, pa.ArrowException):
            pass
        kept = []
        for row, message in zip(rows.tolist(), messages, strict=True):
            try:
                structs(self._message, [message], self._type)
                kept.append(message)
            except (UnicodeDecodeError, OverflowError, pa.ArrowException) as error:
                reasons.add(np.array([row]), f"not of its schema: {error}")
                kept.append(self._class())
        return structs(self._message, kept, self._type)

    def _check(self, writer: RegisteredSchema, indexes: tuple[int, ...]) -> None:
        """ValueError unless the value is of the expected message."""
        name = self._names.get((writer.id, indexes))
        if name is None:
            if writer.id not in self._files:
                self._files[writer.id] = descriptor_of(writer)
            try:
                name = str(message_at(self._files[writer.id], indexes).full_name)
            except IndexError:
                raise ValueError(f"the schema has no message at {list(indexes)}") from None
            self._names[writer.id, indexes] = name
        if name != self._message.full_name:
            raise ValueError(f"a message {name}, not {self._message.full_name}")


def structs(message: Descriptor, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Messages as structs; None is null."""
    null = [each is None for each in values]
    if message.full_name == TIMESTAMP:
        numbers = [None if v is None else v.seconds * 1_000_000 + v.nanos // 1000 for v in values]
        return pa.array(numbers, pa.int64()).view(kind)
    if message.full_name in WRAPPERS:
        return singles(
            message.fields_by_name["value"], [None if v is None else v.value for v in values], kind
        )
    columns = [
        _field(each, values, inner.type) for each, inner in zip(message.fields, kind, strict=True)
    ]
    if not columns:
        return pa.array([None if each else {} for each in null], kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pa.array(null, pa.bool_()))


def _field(field: FieldDescriptor, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    name = field.name
    if field.is_repeated:
        return _repeated(field, [None if v is None else getattr(v, name) for v in values], kind)
    if field.has_presence:
        found = [getattr(v, name) if v is not None and v.HasField(name) else None for v in values]
    else:
        found = [None if v is None else getattr(v, name) for v in values]
    return singles(field, found, kind)


def _repeated(field: FieldDescriptor, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    counts = np.array([0 if each is None else len(each) for each in values], np.int64)
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    null = np.array([*(each is None for each in values), False], np.bool_)
    bounds = pa.array(ends, mask=null if null.any() else None)
    there = [each for each in values if each is not None]
    if not is_map(field):
        items = singles(field, [item for each in there for item in each], kind.value_type)
        return pa.ListArray.from_arrays(bounds, items, type=kind)
    parts = field.message_type.fields_by_name
    keys = singles(parts["key"], [key for each in there for key in each], kind.key_type)
    items = singles(parts["value"], [each[key] for each in there for key in each], kind.item_type)
    return pa.MapArray.from_arrays(bounds, keys, items).cast(kind)


def singles(field: FieldDescriptor, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Single values of a field; None is null."""
    if field.message_type is not None:
        return structs(field.message_type, values, kind)
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return pa.array([None if v is None else names.get(v, str(v)) for v in values], kind)
    return pa.array(values, kind)
