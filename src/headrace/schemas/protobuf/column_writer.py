"""Encodes rows as Protobuf messages, and derives the file of a Spark type."""

import base64
import datetime
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.schemas.errors import BadColumn
from headrace.schemas.interface import RegisteredSchema
from headrace.schemas.protobuf.column_types import (
    TIMESTAMP,
    WRAPPERS,
    is_map,
)
from headrace.schemas.protobuf.messages import descriptor_of, indexes_of, message_named

F = FieldDescriptorProto
SIMPLE: dict[type[DataType], int] = {
    BooleanType: F.TYPE_BOOL, ByteType: F.TYPE_INT32, ShortType: F.TYPE_INT32,
    IntegerType: F.TYPE_INT32, LongType: F.TYPE_INT64, FloatType: F.TYPE_FLOAT,
    DoubleType: F.TYPE_DOUBLE, StringType: F.TYPE_STRING, BinaryType: F.TYPE_BYTES,
}  # fmt: skip
KEYS = (BooleanType, ByteType, ShortType, IntegerType, LongType, StringType)


def derived(kind: DataType, name: str, before: RegisteredSchema | None) -> str:
    """The file of a column, as a descriptor in base64. Fields keep their earlier numbers."""
    if not isinstance(kind, StructType):
        raise BadColumn(f"a Protobuf column must be a struct, but this is {kind.simpleString()}")
    known = None if before is None else message_named(descriptor_of(before), None)
    file = FileDescriptorProto(name=f"{name}.proto", syntax="proto3")
    message = file.message_type.add(name=known.name if known is not None else name)
    _fill(message, kind, f".{message.name}", known)
    if _names_type(message, f".{TIMESTAMP}"):
        file.dependency.append("google/protobuf/timestamp.proto")
    return base64.b64encode(file.SerializeToString()).decode()


def _names_type(message: DescriptorProto, name: str) -> bool:
    return any(field.type_name == name for field in message.field) or any(
        _names_type(inner, name) for inner in message.nested_type
    )


def _fill(message: DescriptorProto, kind: StructType, path: str, known: Descriptor | None) -> None:
    numbers: Mapping[str, FieldDescriptor] = {} if known is None else known.fields_by_name
    taken = {field.number for field in numbers.values()}
    if known is not None:
        proto = DescriptorProto()
        known.CopyToProto(proto)
        for gone in proto.reserved_range:
            taken |= set(range(gone.start, min(gone.end, gone.start + 10_000)))
    free = iter(number for number in range(1, 1 << 29) if number not in taken)
    for each in kind.fields:
        before = numbers.get(each.name)
        number = next(free) if before is None else before.number
        field = message.field.add(name=each.name, number=number, label=F.LABEL_OPTIONAL)
        inner = None if before is None else before.message_type
        _type(message, field, each.dataType, path, inner)
        if field.label == F.LABEL_OPTIONAL and field.type != F.TYPE_MESSAGE:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{each.name}")


def _type(
    message: DescriptorProto,
    field: FieldDescriptorProto,
    kind: DataType,
    path: str,
    known: Descriptor | None,
) -> None:
    if isinstance(kind, ArrayType) and not isinstance(kind.elementType, ArrayType | MapType):
        field.label = F.LABEL_REPEATED
        _type(message, field, kind.elementType, path, known)
    elif isinstance(kind, MapType) and isinstance(kind.keyType, KEYS):
        words = [part[:1].upper() + part[1:] for part in field.name.split("_")]
        entry = message.nested_type.add(name=f"{''.join(words)}Entry")
        entry.options.map_entry = True
        field.label, field.type = F.LABEL_REPEATED, F.TYPE_MESSAGE
        field.type_name = f"{path}.{entry.name}"
        below = None if known is None else known.fields_by_name["value"].message_type
        for number, (name, inner) in enumerate([("key", kind.keyType), ("value", kind.valueType)]):
            part = entry.field.add(name=name, number=number + 1, label=F.LABEL_OPTIONAL)
            _type(message, part, inner, path, below)
    elif isinstance(kind, StructType):
        name = f"{field.name}_message" if known is None else known.name
        nested = message.nested_type.add(name=name)
        field.type, field.type_name = F.TYPE_MESSAGE, f"{path}.{name}"
        _fill(nested, kind, f"{path}.{name}", known)
    elif isinstance(kind, TimestampType):
        field.type, field.type_name = F.TYPE_MESSAGE, f".{TIMESTAMP}"
    elif type(kind) in SIMPLE:
        field.type = SIMPLE[type(kind)]
    else:
        where = f"{path}.{field.name}".lstrip(".")
        raise BadColumn(f"{where} is {kind.simpleString()}, which has no Protobuf type; convert it")


class ProtobufColumnWriter:
    """Rows as messages of one file, each after its message indexes."""

    def __init__(self, schema: RegisteredSchema, name: str | None, column: str) -> None:
        file = descriptor_of(schema)
        self._message = message_named(file, name)
        self._class = message_factory.GetMessageClass(self._message)
        self._prefix = indexes_of(self._message)
        self._column = column

    def encode(self, array: pa.Array) -> pa.Array:
        """A message for each row that is not null."""
        check_fields(self._message, array.type, self._column)
        made: list[bytes | None] = []
        for row in array.to_pylist():
            if row is None:
                made.append(None)
                continue
            message = self._class()
            try:
                fill(message, self._message, row)
            except (TypeError, ValueError) as error:
                raise BadColumn(
                    f"a row of {self._column} is not a {self._message.full_name}: {error}"
                ) from None
            made.append(self._prefix + message.SerializeToString())
        return pa.array(made, pa.binary())


def check_fields(message: Descriptor, kind: pa.DataType, path: str) -> None:
    """BadColumn if a struct has a field that the message does not have."""
    if not pa.types.is_struct(kind):
        raise BadColumn(f"{path} is {kind}, but its schema is the message {message.full_name}")
    for inner in kind:
        field = message.fields_by_name.get(inner.name)
        if field is None:
            raise BadColumn(
                f"{path} has the field {inner.name}, which {message.full_name} does not have"
            )
        below = field.message_type
        if below is not None and not is_map(field) and pa.types.is_struct(inner.type):
            check_fields(below, inner.type, f"{path}.{inner.name}")


def fill(message: Any, about: Descriptor, row: Mapping[str, Any]) -> None:
    """Set the fields of a message; null fields stay unset."""
    for name, value in row.items():
        if value is None:
            continue
        field = about.fields_by_name[name]
        if is_map(field):
            inner = field.message_type.fields_by_name["value"]
            for key, each in value:
                if inner.message_type is None:
                    getattr(message, name)[key] = _scalar(inner, each)
                else:
                    _set(getattr(message, name)[key], inner.message_type, each)
        elif field.is_repeated:
            for each in value:
                if field.message_type is None:
                    getattr(message, name).append(_scalar(field, each))
                else:
                    _set(getattr(message, name).add(), field.message_type, each)
        elif field.message_type is not None:
            getattr(message, name).SetInParent()
            _set(getattr(message, name), field.message_type, value)
        else:
            setattr(message, name, _scalar(field, value))


def _set(message: Any, about: Descriptor, value: Any) -> None:
    if about.full_name == TIMESTAMP:
        since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        message.seconds = since.days * 86400 + since.seconds
        message.nanos = since.microseconds * 1000
    elif about.full_name in WRAPPERS:
        message.value = value
    else:
        fill(message, about, value)


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        found = field.enum_type.values_by_name.get(value)
        if found is None:
            raise ValueError(f"{value!r} is not a value of the enum {field.enum_type.full_name}")
        return found.number
    if field.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        return int(value)
    return value
