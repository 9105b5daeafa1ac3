"""Records of a source connector: from typed keys and values to the bytes of records.

Null stays null: a record without a value is a tombstone, also in JSON with a schema.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
from headrace.connect.converters.reading import STAGE, STAGES
from headrace.connect.converters.registry_options import writing_options
from headrace.connect.plugin import PermanentError
from headrace.connect.transforms.attempts import attempted
from headrace.pipelines.typed import writing as typed
from headrace.pipelines.typed.options import ERROR, parse_typed
from headrace.schemas.errors import BadColumn, BadValue

_FIRST = ("topic", "partition", "headers")
_ENCODED = "__{}_encoded"


def write_records(rows: DataFrame, config: Mapping[str, str], topic: str = "") -> DataFrame:
    """The rows with key and value as bytes, for the Spark sink.

    `topic` names the subjects of converters that use a registry. Their schemas are registered
    now, on the driver. Columns that begin with `_` are kept. Records that cannot be encoded get an
    `_error` and a `_stage`, if the converters can fail.
    """
    others = [name for name in rows.columns if name.startswith("_")]
    parts = [part for part in PARTS if part in rows.columns]
    encoded = {
        part: _encoded(rows.schema[part], converter_of(config, part), config, topic)
        for part in parts
    }
    fallible = [part for part in parts if encoded[part].has_problems]
    made = rows.select(
        *(name for name in _FIRST if name in rows.columns),
        *(encoded[part].column.alias(_ENCODED.format(part)) for part in fallible),
        *(encoded[part].column.alias(part) for part in parts if part not in fallible),
        *others,
    )
    if not fallible:
        return made
    problems = {part: F.col(_ENCODED.format(part))["problem"] for part in fallible}
    for name in (ERROR, STAGE):
        made = made if name in made.columns else made.withColumn(name, F.lit(None).cast("string"))
    # Records that have failed before have no key and value to encode.
    stages = (F.when(why.isNotNull(), STAGES[part]) for part, why in problems.items())
    return made.select(
        *(name for name in _FIRST if name in made.columns),
        *(
            F.col(_ENCODED.format(part))["octets"].alias(part) if part in fallible else part
            for part in parts
        ),
        *(name for name in others if name not in (ERROR, STAGE)),
        F.coalesce(F.col(STAGE), *stages).alias(STAGE),
        F.coalesce(F.col(ERROR), *problems.values()).alias(ERROR),
    )


@dataclass(frozen=True, slots=True)
class Encoding:
    """The bytes of a key or value; a struct of `octets` and `problem` if records can fail."""

    column: Column
    has_problems: bool = False


def _encoded(
    field: StructField, converter: PartConverter, config: Mapping[str, str], topic: str
) -> Encoding:
    column, kind, name = F.col(field.name), field.dataType, converter.class_name
    if isinstance(kind, NullType):
        return Encoding(F.lit(None).cast("binary"))
    if name in REGISTRY_FORMATS:
        return Encoding(_registered(column, kind, field.name, config, topic), True)
    if name == JSON:
        return Encoding(_json(column, field, converter))
    if name == STRING:
        charset = ENCODINGS[str(converter.text("converter.encoding"))]
        text = java_text(column, kind)
        if charset == "UTF-8":
            return Encoding(text.cast("binary"))
        return Encoding(_in_charset(text, charset, field.name), True)
    if name == BYTES:
        _require(field, converter, BinaryType())
        return Encoding(column)
    if name == BOOLEAN:
        _require(field, converter, BooleanType())
        return Encoding(F.when(column, F.lit(b"\x01")).when(~column, F.lit(b"\x00")))
    width = WIDTHS[NUMBERS[name]]
    _require(field, converter, width.kind)
    return Encoding(width.to_bytes(column))


def _in_charset(text: Column, charset: str, part: str) -> Column:
    there = F.col(part).isNotNull()
    tried = attempted(F.encode(text, charset), there)
    why = F.lit(f"{part}: the text has characters that {charset} does not have")
    problem = F.when(there & tried.isNull(), why)
    return F.struct(tried["it"].alias("octets"), problem.alias("problem"))


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
        octets, problems = _by_halves(batch, prepared.encoder(), part)
        return pa.StructArray.from_arrays([octets, problems], ["octets", "problem"])

    return F.arrow_udf(encode, "octets binary, problem string")(column)


def _by_halves(
    batch: pa.Array, encoder: typed.TypedEncoder, part: str
) -> tuple[pa.Array, pa.Array]:
    """The bytes of the rows, and the problems of those that the schema does not permit."""
    try:
        rows = pa.RecordBatch.from_arrays([batch], [part])
        octets = encoder.encode(rows).column(0).cast(pa.binary())
        return octets, pa.nulls(len(batch), pa.string())
    except (BadValue, BadColumn, ValueError, OverflowError) as error:
        if len(batch) == 1:
            return pa.nulls(1, pa.binary()), pa.array([f"{part}: {error}"])
    half = len(batch) // 2
    found = [_by_halves(each, encoder, part) for each in (batch[:half], batch[half:])]
    octets, problems = zip(*found, strict=True)
    return pa.concat_arrays(octets), pa.concat_arrays(problems)
