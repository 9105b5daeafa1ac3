"""Protobuf files as descriptors, and the Spark type in which a message is shown.

Fields without presence have their default where they are not set; all others are null then.
Numbers without a sign get a wider type, a Timestamp is a timestamp, a wrapper is its value.
"""

import base64
import importlib

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.pipelines.typed.failures import BadSchema
from headrace.pipelines.typed.registry import Schema
from headrace.registry.formats.proto_known import known_imports

WELL_KNOWN = (
    "any",
    "descriptor",
    "duration",
    "empty",
    "field_mask",
    "struct",
    "timestamp",
    "wrappers",
)
MAIN = "headrace-main.proto"
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
F = FieldDescriptor
SCALARS: dict[int, DataType] = {
    F.TYPE_DOUBLE: DoubleType(), F.TYPE_FLOAT: FloatType(), F.TYPE_BOOL: BooleanType(),
    F.TYPE_STRING: StringType(), F.TYPE_BYTES: BinaryType(), F.TYPE_ENUM: StringType(),
    F.TYPE_INT32: IntegerType(), F.TYPE_SINT32: IntegerType(), F.TYPE_SFIXED32: IntegerType(),
    F.TYPE_INT64: LongType(), F.TYPE_SINT64: LongType(), F.TYPE_SFIXED64: LongType(),
    F.TYPE_UINT32: LongType(), F.TYPE_FIXED32: LongType(),
    F.TYPE_UINT64: DecimalType(20, 0), F.TYPE_FIXED64: DecimalType(20, 0),
}  # fmt: skip


def parse(schema: Schema) -> FileDescriptor:
    """The file of a registered schema, which comes as a descriptor in base64."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for name in WELL_KNOWN:
            module = importlib.import_module(f"google.protobuf.{name}_pb2")
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        files = [_file(each.text, each.name) for each in schema.dependencies]
        files.append(_file(schema.text, MAIN))
        given = {file.name for file in files}
        imports = {path for file in files for path in file.dependency} - given
        for file in (*known_imports(sorted(imports)), *files):
            pool.Add(file)
        return pool.FindFileByName(MAIN)
    except (TypeError, KeyError, ValueError) as error:
        raise BadSchema(f"schema {schema.id} is no Protobuf schema: {error}") from None


def _file(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    file.ParseFromString(base64.b64decode(text))
    file.name = name
    return file


def message_named(file: FileDescriptor, name: str | None) -> Descriptor:
    """The message that records are read as: the first, or the one with this full or last name."""
    found = list(file.message_types_by_name.values())
    if name is None and found:
        return found[0]
    known = []
    while found:
        message = found.pop(0)
        if name in (message.full_name, message.name):
            return message
        known.append(message.full_name)
        found += message.nested_types
    raise BadSchema(
        f"the Protobuf schema has no message {name}; it has {', '.join(known)}"
        if known
        else "the Protobuf schema has no message"
    )


def message_at(file: FileDescriptor, indexes: tuple[int, ...]) -> Descriptor:
    """The message that a value says it is: an index, then indexes of messages within it."""
    found = list(file.message_types_by_name.values())[indexes[0]]
    for index in indexes[1:]:
        found = found.nested_types[index]
    return found


def is_map(field: FieldDescriptor) -> bool:
    return (
        field.type == F.TYPE_MESSAGE
        and field.message_type.has_options
        and bool(field.message_type.GetOptions().map_entry)
    )


def spark_type(message: Descriptor, above: tuple[str, ...] = ()) -> DataType:
    """As what Spark shows a message."""
    if message.full_name == TIMESTAMP:
        return TimestampType()
    if message.full_name in WRAPPERS:
        return field_type(message.fields_by_name["value"], above)
    if message.full_name in above:
        raise BadSchema(
            f"the message {message.full_name} contains itself: that has no columns in Spark. Read "
            "the topic without value.format, or give a version of the schema without it"
        )
    inner = (*above, message.full_name)
    return StructType(
        [StructField(each.name, repeated_type(each, inner)) for each in message.fields]
    )


def repeated_type(field: FieldDescriptor, above: tuple[str, ...]) -> DataType:
    """Of a field with all its values."""
    if is_map(field):
        parts = field.message_type.fields_by_name
        return MapType(field_type(parts["key"], above), field_type(parts["value"], above))
    single = field_type(field, above)
    return ArrayType(single) if field.is_repeated else single


def field_type(field: FieldDescriptor, above: tuple[str, ...]) -> DataType:
    """Of one value of a field."""
    if field.message_type is not None:
        return spark_type(field.message_type, above)
    return SCALARS[field.type]
