"""JSON of ksqlDB: columns from documents, and documents from columns.

Timestamps are milliseconds and dates days since 1970, bytes are Base64 and decimals are numbers.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.connect.converters.json_writing import json_text

CORRUPT = "__corrupt"
_ONLY = "__only"


def parsed_json(text: Column, kind: DataType) -> Column:
    """The document as a struct: with the fields of the type, or with the value as its only field.

    The field `__corrupt` is not null if the document is not of the type.
    """
    wrapped = isinstance(kind, StructType)
    fields = kind.fields if isinstance(kind, StructType) else [StructField(_ONLY, kind)]
    found = [StructField(each.name, _as_written(each.dataType)) for each in fields]
    schema = StructType([*found, StructField(CORRUPT, StringType())])
    whole = text if wrapped else F.concat(F.lit(f'{{"{_ONLY}":'), text, F.lit("}"))
    return F.from_json(whole, schema, {"columnNameOfCorruptRecord": CORRUPT})


def field_values(parsed: Column, kind: DataType) -> dict[str, Column]:
    """The columns of a parsed document by their names; `""` for a value that is no struct."""
    if not isinstance(kind, StructType):
        return {"": _restored(parsed[_ONLY], kind)}
    return {each.name: _restored(parsed[each.name], each.dataType) for each in kind.fields}


def field_problem(parsed: Column, kind: DataType) -> Column:
    """Whether a document is not of the type; documents without anything are null."""
    fields = kind.fields if isinstance(kind, StructType) else [StructField(_ONLY, kind)]
    wrong = parsed.isNull() | parsed[CORRUPT].isNotNull()
    for each in fields:
        if _is_moment(each.dataType):
            there = parsed[each.name]
            wrong = wrong | (there.isNotNull() & _restored(there, each.dataType).isNull())
    return wrong


def document(column: Column, kind: DataType) -> Column:
    """The column as JSON; null stays null."""
    return json_text(column, kind, numeric_decimals=True)


def _is_moment(kind: DataType) -> bool:
    return isinstance(kind, TimestampType | TimestampNTZType | DateType)


def _as_written(kind: DataType) -> DataType:
    """The type with which Spark parses; moments are parsed as texts, whatever they are."""
    if isinstance(kind, StructType):
        return StructType(
            [StructField(each.name, _as_written(each.dataType)) for each in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(_as_written(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _as_written(kind.valueType))
    return StringType() if _is_moment(kind) else kind


def _restored(column: Column, kind: DataType) -> Column:
    if _as_written(kind) == kind:
        return column
    if isinstance(kind, StructType):
        fields = [
            _restored(column[each.name], each.dataType).alias(each.name) for each in kind.fields
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(column, lambda item: _restored(item, element))
    if isinstance(kind, MapType):
        values = kind.valueType
        return F.transform_values(column, lambda _, item: _restored(item, values))
    return moment_of_text(column, kind)


def moment_of_text(text: Column, kind: DataType) -> Column:
    """A timestamp or date from a number or from ISO 8601; null if it is neither."""
    number = text.try_cast("bigint")
    if isinstance(kind, DateType):
        days = F.date_from_unix_date(number.try_cast("int"))
        return F.coalesce(days, text.try_cast("date"))
    # timestamp_millis fails if the number is too large.
    small = F.when(F.abs(number) < F.lit(1 << 53), number)
    return F.coalesce(F.timestamp_millis(small), text.try_cast("timestamp")).cast(kind)
