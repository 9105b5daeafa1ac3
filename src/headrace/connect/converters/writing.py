"""Records of a source connector: from typed keys and values to the bytes of records.

Null stays null: a record without a value is a tombstone, also in JSON with a schema.
"""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    NullType,
    StructField,
    StructType,
)

from headrace.connect.converters.connect_schema import SchemaError
from headrace.connect.converters.fixed_width import WIDTHS
from headrace.connect.converters.java_text import java_text
from headrace.connect.converters.json_writing import enveloped_text, json_text
from headrace.connect.converters.options import (
    BOOLEAN,
    BYTES,
    ENCODINGS,
    JSON,
    NUMBERS,
    PARTS,
    REGISTRY_FORMATS,
    STRING,
    PartConverter,
    converter_of,
)
from headrace.connect.converters.registry_options import writing_options
from headrace.connect.plugin import PermanentError
from headrace.pipelines.typed import writing as typed
from headrace.pipelines.typed.options import parse_typed

_FIRST = ("topic", "partition", "headers")


def write_records(rows: DataFrame, config: Mapping[str, str], topic: str = "") -> DataFrame:
    """The rows with key and value as bytes, for the Spark sink.

    `topic` names the subjects of converters that use a registry. Their schemas are registered
    now, on the driver. Columns that begin with `_` are kept.
    """
    others = [name for name in rows.columns if name.startswith("_")]
    return rows.select(
        *(name for name in _FIRST if name in rows.columns),
        *(
            _encoded(rows.schema[part], converter_of(config, part), config, topic).alias(part)
            for part in PARTS
            if part in rows.columns
        ),
        *others,
    )


def _encoded(
    field: StructField, converter: PartConverter, config: Mapping[str, str], topic: str
) -> Column:
    column, kind, name = F.col(field.name), field.dataType, converter.class_name
    if isinstance(kind, NullType):
        return F.lit(None).cast("binary")
    if name in REGISTRY_FORMATS:
        return _registered(column, kind, field.name, config, topic)
    if name == JSON:
        return _json(column, field, converter)
    if name == STRING:
        charset = ENCODINGS[str(converter.text("converter.encoding"))]
        text = java_text(column, kind)
        return text.cast("binary") if charset == "UTF-8" else F.encode(text, charset)
    if name == BYTES:
        _require(field, converter, BinaryType())
        return column
    if name == BOOLEAN:
        _require(field, converter, BooleanType())
        return F.when(column, F.lit(b"\x01")).when(~column, F.lit(b"\x00"))
    width = WIDTHS[NUMBERS[name]]
    _require(field, converter, width.kind)
    return width.to_bytes(column)


def _require(field: StructField, converter: PartConverter, kind: DataType) -> None:
    if field.dataType != kind:
        raise PermanentError(
            f"{converter.class_name} writes {kind.simpleString()}, but the {field.name} is "
            f"{field.dataType.simpleString()}; use another {field.name}.converter, or a transform "
            "such as Cast or ExtractField"
        )


def _json(column: Column, field: StructField, converter: PartConverter) -> Column:
    numeric = str(converter.text("decimal.format")).upper() == "NUMERIC"
    try:
        if converter.has_declared_schemas:
            text = enveloped_text(column, field.dataType, field.metadata, field.nullable, numeric)
        else:
            text = json_text(column, field.dataType, numeric)
    except SchemaError as error:
        raise PermanentError(f"the {field.name} cannot be written as JSON: {error}") from None
    return text.cast("binary")


def _registered(
    column: Column, kind: DataType, part: str, config: Mapping[str, str], topic: str
) -> Column:
    """Encoded by whole Arrow batches in Spark's Python processes."""
    options = parse_typed(writing_options(config, part, topic), topic)
    assert options is not None, "a converter of a registry has a format"
    prepared = typed.prepare(options, StructType([StructField(part, kind)]))

    def encode(batch: pa.Array) -> pa.Array:
        rows = pa.RecordBatch.from_arrays([batch], [part])
        return prepared.encoder().encode(rows).column(0).cast(pa.binary())

    return F.arrow_udf(encode, "binary")(column)
