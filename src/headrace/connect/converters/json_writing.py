"""Typed columns to JSON, as JsonConverter writes it."""

import json
from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.connect.converters.connect_schema import schema_of
from headrace.connect.converters.decimal_bytes import bytes_of_decimal

_WITH_NULLS = {"ignoreNullFields": "false"}
_BEFORE, _AFTER = '{"v":', "}"


def json_text(column: Column, kind: DataType, numeric_decimals: bool = False) -> Column:
    """The value as JSON; null stays null."""
    ready = _ready(column, kind, numeric_decimals)
    if isinstance(kind, StructType):
        text = F.to_json(ready, _WITH_NULLS)
    else:
        # Spark writes no bare texts and numbers.
        wrapped = F.to_json(F.struct(ready.alias("v")), _WITH_NULLS)
        inner = F.length(wrapped) - F.lit(len(_BEFORE) + len(_AFTER))
        text = F.substr(wrapped, F.lit(len(_BEFORE) + 1), inner)
    return F.when(column.isNotNull(), text)


def enveloped_text(
    column: Column,
    kind: DataType,
    metadata: Mapping[str, object],
    nullable: bool,
    numeric_decimals: bool = False,
) -> Column:
    """The value with its schema in JsonConverter's envelope; null stays null."""
    schema = json.dumps(
        schema_of(kind, nullable, metadata).to_json(), ensure_ascii=False, separators=(",", ":")
    )
    payload = json_text(column, kind, numeric_decimals)
    return F.concat(F.lit(f'{{"schema":{schema},"payload":'), payload, F.lit("}"))


def _is_plain(kind: DataType, numeric_decimals: bool) -> bool:
    """Whether Spark writes the type as JsonConverter does."""
    if isinstance(kind, StructType):
        return all(_is_plain(field.dataType, numeric_decimals) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType, numeric_decimals)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and _is_plain(kind.valueType, numeric_decimals)
    if isinstance(kind, DecimalType):
        return numeric_decimals
    return not isinstance(kind, TimestampType | TimestampNTZType | DateType)


def _ready(column: Column, kind: DataType, numeric: bool) -> Column:
    if _is_plain(kind, numeric):
        return column
    if isinstance(kind, StructType):
        fields = [
            _ready(column[field.name], field.dataType, numeric).alias(field.name)
            for field in kind.fields
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(column, lambda item: _ready(item, element, numeric))
    if isinstance(kind, MapType):
        keys, values = kind.keyType, kind.valueType
        if isinstance(keys, StringType):
            return F.transform_values(column, lambda _, item: _ready(item, values, numeric))
        pairs = F.transform(
            F.map_entries(column),
            lambda pair: F.concat(
                F.lit("["),
                json_text(pair["key"], keys, numeric),
                F.lit(","),
                F.coalesce(json_text(pair["value"], values, numeric), F.lit("null")),
                F.lit("]"),
            ),
        )
        return F.parse_json(F.concat(F.lit("["), F.array_join(pairs, ","), F.lit("]")))
    if isinstance(kind, DecimalType):
        return F.base64(bytes_of_decimal(column))
    if isinstance(kind, DateType):
        return F.unix_date(column)
    return F.unix_millis(column.cast("timestamp"))
