"""Rows of Spark as values of JSON, for the service.

64-bit integers stay integers, decimals become text, bytes Base64, times ISO 8601 in UTC, maps and
structs objects.
"""

import base64
import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

Convert = Callable[[Any], object]


def json_rows(table: pa.Table, kind: StructType) -> Iterator[list[object]]:
    """The rows of an Arrow table that Spark has made of rows of this type."""
    columns = [
        _converted(column.to_pylist(), _converter(field.dataType))
        for column, field in zip(table.columns, kind.fields, strict=True)
    ]
    return map(list, zip(*columns, strict=True)) if columns else iter(())


def _converted(values: Sequence[Any], convert: Convert | None) -> Sequence[object]:
    if convert is None:
        return values
    return [None if each is None else convert(each) for each in values]


def _converter(kind: DataType) -> Convert | None:
    """The conversion of values that are not null; None if they are JSON's already."""
    if isinstance(kind, StructType):
        fields = [(each.name, _converter(each.dataType)) for each in kind.fields]
        return lambda value: {
            name: part if inner is None or part is None else inner(part)
            for name, inner in fields
            for part in (value[name],)
        }
    if isinstance(kind, ArrayType):
        inner = _converter(kind.elementType)
        return None if inner is None else lambda value: _converted(value, inner)
    if isinstance(kind, MapType):
        key, values = _converter(kind.keyType), _converter(kind.valueType)
        return lambda value: {
            _name(each if key is None else key(each)): part
            if values is None or part is None
            else values(part)
            for each, part in value
        }
    return next((found for types, found in _SCALARS if isinstance(kind, types)), None)


def _name(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _moment(value: datetime.datetime) -> str:
    plain = value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value
    return plain.isoformat(timespec="microseconds" if plain.microsecond % 1000 else "milliseconds")


_SCALARS: tuple[tuple[type[DataType] | tuple[type[DataType], ...], Convert], ...] = (
    (BinaryType, lambda value: base64.b64encode(value).decode()),
    (DecimalType, lambda value: f"{value:f}"),
    ((TimestampType, TimestampNTZType), _moment),
    (DateType, lambda value: value.isoformat()),
    (VariantType, str),
)
