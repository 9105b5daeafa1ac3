"""Types of columns in Spark, and columns of one type as another."""

from collections.abc import Callable
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headrace.sql.records.registered import spark_type
from headrace.sql.records.types import parse_type


def type_of(ddl: str) -> DataType:
    """The type that a column's DDL names."""
    return spark_type(parse_type(ddl))


def field_of(kind: StructType, name: str) -> str | None:
    """The field with this name, or with this name in another case."""
    names: list[str] = kind.fieldNames()
    if name in names:
        return name
    return next((each for each in names if each.casefold() == name.casefold()), None)


Leaf: TypeAlias = Callable[[Column, DataType, DataType], Column]
"""Converts a column that is neither a struct, an array nor a map."""


def cast_leaf(column: Column, kind: DataType, wanted: DataType) -> Column:
    """A cast; values that the type does not have are null."""
    return column.try_cast(wanted)


def adapted(column: Column, kind: DataType, wanted: DataType, leaf: Leaf = cast_leaf) -> Column:
    """The column as another type: structs by the names of their fields."""
    if kind.simpleString() == wanted.simpleString():
        return column
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        fields = []
        for each in wanted.fields:
            name = field_of(kind, each.name)
            inner = (
                F.lit(None).cast(each.dataType)
                if name is None
                else adapted(column[name], kind[name].dataType, each.dataType, leaf)
            )
            fields.append(inner.alias(each.name))
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        element, of_wanted = kind.elementType, wanted.elementType
        return F.transform(column, lambda item: adapted(item, element, of_wanted, leaf))
    if isinstance(kind, MapType) and isinstance(wanted, MapType) and kind.keyType == wanted.keyType:
        values, of_values = kind.valueType, wanted.valueType
        return F.transform_values(column, lambda _, item: adapted(item, values, of_values, leaf))
    return leaf(column, kind, wanted)
