"""The Spark type of a Protobuf message.

Fields without presence have their default if they are not set; all others are null. Unsigned
numbers get a wider type, a Timestamp is a timestamp, a wrapper is its value.
"""

from google.protobuf.descriptor import Descriptor, FieldDescriptor
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

from headrace.schemas.errors import InvalidSchema

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


def is_map(field: FieldDescriptor) -> bool:
    return (
        field.type == F.TYPE_MESSAGE
        and field.message_type.has_options
        and bool(field.message_type.GetOptions().map_entry)
    )


def spark_type(message: Descriptor, above: tuple[str, ...] = ()) -> DataType:
    """The Spark type of a message."""
    if message.full_name == TIMESTAMP:
        return TimestampType()
    if message.full_name in WRAPPERS:
        return field_type(message.fields_by_name["value"], above)
    if message.full_name in above:
        raise InvalidSchema(
            f"the message {message.full_name} is recursive, which has no columns in Spark. Read "
            "the topic without value.format, or select a version of the schema without it"
        )
    inner = (*above, message.full_name)
    return StructType(
        [StructField(each.name, repeated_type(each, inner)) for each in message.fields]
    )


def repeated_type(field: FieldDescriptor, above: tuple[str, ...]) -> DataType:
    """The type of a field with all its values."""
    if is_map(field):
        parts = field.message_type.fields_by_name
        return MapType(field_type(parts["key"], above), field_type(parts["value"], above))
    single = field_type(field, above)
    return ArrayType(single) if field.is_repeated else single


def field_type(field: FieldDescriptor, above: tuple[str, ...]) -> DataType:
    """The type of one value of a field."""
    if field.message_type is not None:
        return spark_type(field.message_type, above)
    return SCALARS[field.type]
