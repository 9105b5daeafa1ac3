"""What a transform sees of the records, and what it changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType, StructField, StructType

from headrace.connect.converters.connect_schema import SchemaError, schema_of
from headrace.connect.transforms.options import Configured

_JAVA_CLASSES = {
    "string": "java.lang.String",
    "boolean": "java.lang.Boolean",
    "int8": "java.lang.Byte",
    "int16": "java.lang.Short",
    "int32": "java.lang.Integer",
    "int64": "java.lang.Long",
    "float": "java.lang.Float",
    "double": "java.lang.Double",
    "bytes": "[B",
    "array": "java.util.ArrayList",
    "map": "java.util.HashMap",
    "struct": "org.apache.kafka.connect.data.Struct",
}
"""By Connect's types without a name."""


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """Records that a transform cannot change, and why."""

    condition: Column
    message: Column


@dataclass(frozen=True, slots=True)
class Change:
    """The new columns of records, which of them are dropped, and which fail."""

    columns: Mapping[str, Column] = field(default_factory=dict)
    metadata: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """New metadata of columns; the others keep theirs, or have none if their type changes."""
    failures: Sequence[RecordFailure] = ()
    dropped: Column | None = None


@dataclass(frozen=True, slots=True)
class RecordView:
    """The records before a transform. `options` are those of the transform."""

    schema: StructType
    options: Configured

    @property
    def part(self) -> str:
        """`key` or `value`, by the name of the class."""
        return "key" if self.options.class_name.endswith("$Key") else "value"

    def type(self, column: str) -> DataType:
        return self.schema[column].dataType

    def fields(self, column: str) -> list[StructField] | None:
        """The fields of a key or value; None if it has none."""
        kind = self.type(column)
        return list(kind.fields) if isinstance(kind, StructType) else None


def fail(condition: Column, message: str) -> RecordFailure:
    return RecordFailure(condition, F.lit(message))


def not_a_struct(records: RecordView, part: str, purpose: str) -> Change:
    """The change of records whose key or value has no fields: those that are not null fail."""
    found = java_class(records.type(part))
    message = f"Only Struct objects supported for [{purpose}], found: {found}"
    return Change(failures=[fail(F.col(part).isNotNull(), message)])


def null_fails(part: str, purpose: str) -> RecordFailure:
    """For transforms that do not accept tombstones."""
    message = f"Only Map objects supported in absence of schema for [{purpose}], found: null"
    return fail(F.col(part).isNull(), message)


def java_class(kind: DataType) -> str:
    """The class that Kafka Connect has for values of a type."""
    if isinstance(kind, NullType):
        return "null"
    try:
        schema = schema_of(kind)
    except SchemaError:
        return "unknown"
    if schema.is_decimal:
        return "java.math.BigDecimal"
    if schema.is_date or schema.is_timestamp:
        return "java.util.Date"
    return _JAVA_CLASSES[schema.kind]


def rebuilt(part: str, fields: Sequence[Column]) -> Column:
    """A struct of these fields where the key or value is not null."""
    return F.when(F.col(part).isNotNull(), F.struct(*fields))


def kept(part: str, each: StructField) -> Column:
    """A field as it is."""
    return F.col(part)[each.name].alias(each.name, metadata=each.metadata)


def merged(old: DataType, new: DataType) -> DataType | None:
    """A type for both; None if there is none. Structs have the fields of both."""
    if old == new or isinstance(new, NullType):
        return old
    if isinstance(old, NullType):
        return new
    if not (isinstance(old, StructType) and isinstance(new, StructType)):
        return None
    fields = {each.name: each for each in old.fields}
    for each in new.fields:
        both = merged(fields[each.name].dataType, each.dataType) if each.name in fields else None
        if both is None and each.name in fields:
            return None
        fields[each.name] = StructField(each.name, both or each.dataType, True, each.metadata)
    return StructType(
        [StructField(each.name, each.dataType, True, each.metadata) for each in fields.values()]
    )


def fitted(column: Column, have: DataType, want: DataType) -> Column:
    """The column in a merged type: missing fields are null."""
    if have == want:
        return column
    if not (isinstance(have, StructType) and isinstance(want, StructType)):
        return column.cast(want)
    present = {each.name: each.dataType for each in have.fields}
    fields = [
        (
            fitted(column[each.name], present[each.name], each.dataType)
            if each.name in present
            else F.lit(None).cast(each.dataType)
        ).alias(each.name, metadata=each.metadata)
        for each in want.fields
    ]
    return F.when(column.isNotNull(), F.struct(*fields))


def type_of(rows: DataFrame, column: Column) -> StructField:
    """The field that a column would be in these rows."""
    return rows.select(column.alias("it")).schema["it"]
