"""Records of a sink connector: from the columns of the Spark source to typed keys and values.

A record that cannot be converted does not fail the query: `_error` has the reason, `_stage` the
step, and `_raw` the original bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from headrace.connect.converters.connect_schema import SchemaError, parse_schema
from headrace.connect.converters.conversion import Conversion
from headrace.connect.converters.envelopes import KnownEnvelopes
from headrace.connect.converters.fixed_width import WIDTHS
from headrace.connect.converters.json_reading import (
    NO_ENVELOPE,
    declared_schema,
    enveloped_json,
    plain_json,
)
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
from headrace.connect.converters.registry_options import reading_options
from headrace.connect.plugin import OptionError
from headrace.pipelines.typed.options import ERROR, RAW

STAGE = "_stage"
_TEXT, _PARSED, _PROBLEM, _VALUE = "__{}_text", "__{}_parsed", "__{}_problem", "__{}_value"
STAGES = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER"}


@dataclass(frozen=True, slots=True)
class DeclaredSchemas:
    """The schemas that records declare themselves, as JSON; null if none does."""

    key: str | None = None
    value: str | None = None
    known: KnownEnvelopes = field(default_factory=KnownEnvelopes, compare=False)
    """The beginnings of records."""


def source_options(config: Mapping[str, str]) -> dict[str, str]:
    """The options of the Spark source that the converters need."""
    return {"includeHeaders": "true", **reading_options(config)}


def read_records(
    rows: DataFrame,
    config: Mapping[str, str],
    schema: Callable[[str], str | None],
    declared: DeclaredSchemas | None = None,
) -> DataFrame:
    """The source's rows as records with typed keys and values, `_error`, `_stage` and `_raw`.

    `schema` gives the columns of the target for a topic, as DDL. `declared` is from `by_schema`
    and is required for converters with schemas.enable=true.
    """
    for part in PARTS:
        rows = _with_part(rows, converter_of(config, part), config, schema, declared)
    problems = [(F.lit(STAGES[part]), F.col(_PROBLEM.format(part))) for part in PARTS]
    if ERROR in rows.columns:
        of_key = F.startswith(F.col(ERROR), F.lit("key:"))
        failed = F.when(of_key, STAGES["key"]).otherwise(STAGES["value"])
        problems.insert(0, (failed, F.col(ERROR)))
    error = F.coalesce(*(problem for _, problem in problems))
    stage = F.coalesce(*(F.when(problem.isNotNull(), name) for name, problem in problems))
    raw = F.struct(_bytes_of(rows, "key"), _bytes_of(rows, "value"))
    if RAW in rows.columns:
        raw = F.coalesce(F.col(RAW), raw)
    others = [
        name
        for name in rows.columns
        if name.startswith("_") and not name.startswith("__") and name not in (ERROR, RAW)
    ]
    headers = F.col("headers") if "headers" in rows.columns else _no_headers()
    return rows.select(
        *("topic", "partition", "offset", "timestamp"),
        *(F.col(_VALUE.format(part)).alias(part) for part in PARTS),
        headers.alias("headers"),
        error.alias(ERROR),
        stage.alias(STAGE),
        raw.alias(RAW),
        *others,
    )


def by_schema(
    batch: DataFrame, config: Mapping[str, str], known: KnownEnvelopes | None = None
) -> list[tuple[DeclaredSchemas, DataFrame]]:
    """The rows of a batch by the schemas that they declare, to be read one after the other.

    Records with the same key stay in order. Tombstones and records without a schema go with the
    records before them. `known` has what earlier batches of the query have shown.
    """
    known = known or KnownEnvelopes()
    parts = [part for part in PARTS if converter_of(config, part).has_declared_schemas]
    if not parts:
        return [(DeclaredSchemas(), batch)]
    with_texts = batch
    for part in parts:
        known.learn(part, partial(_sample, batch, part))
        schema = declared_schema(part, _text(part), known.of(part))
        with_texts = with_texts.withColumn(_text_column(part), schema)
    found = with_texts.select(*map(_text_column, parts)).distinct().collect()
    texts = {part: sorted({row[_text_column(part)] for row in found} - {None}) for part in parts}
    if all(len(of_part) <= 1 for of_part in texts.values()):
        single = {part: of_part[0] if of_part else None for part, of_part in texts.items()}
        return [(DeclaredSchemas(**single, known=known), batch)]
    return _in_order(with_texts, batch.columns, texts, known)


def _sample(batch: DataFrame, part: str) -> str | None:
    """The text of one record of the batch."""
    there = F.col(part).isNotNull()
    found = batch.where(there).select(_text(part).alias("text")).head(1)
    return found[0]["text"] if found else None


def _in_order(
    rows: DataFrame,
    columns: Sequence[str],
    texts: Mapping[str, Sequence[str]],
    known: KnownEnvelopes,
) -> list[tuple[DeclaredSchemas, DataFrame]]:
    """One group for each schema and each change of schema in the sequence of a key."""
    same_key = Window.partitionBy("topic", "partition", "key").orderBy("offset")
    before = same_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    after = same_key.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    names = [_text_column(part) for part in texts]
    for of_part, name in zip(texts.values(), names, strict=True):
        text = F.col(name)
        found = F.coalesce(
            F.last(text, ignorenulls=True).over(before),
            F.first(text, ignorenulls=True).over(after),
            F.lit(of_part[0] if of_part else None),
        )
        rows = rows.withColumn(name, found)
    pair = F.struct(*names)
    changed = F.lag(pair).over(same_key) != pair
    # Records without a key have no order among each other.
    turn = F.when(F.col("key").isNotNull(), F.sum(changed.cast("int")).over(before))
    rows = rows.withColumn("__turn", F.coalesce(turn, F.lit(0)))
    groups = rows.select("__turn", *names).distinct().orderBy("__turn", *names).collect()
    result = []
    for group in groups:
        condition = F.col("__turn") == group["__turn"]
        for name in names:
            condition = condition & F.col(name).eqNullSafe(F.lit(group[name]))
        of_group = {part: group[_text_column(part)] for part in texts}
        declared = DeclaredSchemas(**of_group, known=known)
        result.append((declared, rows.where(condition).select(*columns)))
    return result


def _text_column(part: str) -> str:
    return f"__{part}_schema"


def _text(part: str) -> Column:
    """The part as text; null if it is not UTF-8."""
    return F.try_validate_utf8(F.col(part).cast("string"))


def _bytes_of(rows: DataFrame, part: str) -> Column:
    """The original bytes, if the source did not decode them."""
    is_binary = rows.schema[part].dataType.typeName() == "binary"
    octets = F.col(part) if is_binary else F.lit(None).cast("binary")
    return octets.alias(part)


def _no_headers() -> Column:
    return F.lit(None).cast("array<struct<key:string,value:binary>>")


def _with_part(
    rows: DataFrame,
    converter: PartConverter,
    config: Mapping[str, str],
    schema: Callable[[str], str | None],
    declared: DeclaredSchemas | None,
) -> DataFrame:
    """The rows with the converted part and its problem in columns of their own."""
    part, name = converter.part, converter.class_name
    value, problem, parsed = (each.format(part) for each in (_VALUE, _PROBLEM, _PARSED))
    if name == JSON:
        rows = rows.withColumn(_TEXT.format(part), _text(part))
        conversion = _of_json(rows, converter, config, schema, declared)
    else:
        conversion = _of_bytes(converter)
    rows = rows.withColumn(parsed, conversion.parsed)
    if conversion.problem is None:
        none = F.lit(None).cast("string")
        return rows.withColumns({value: conversion.value(F.col(parsed)), problem: none})
    why = conversion.problem(F.col(parsed))
    if name == JSON:
        not_text = F.when(F.col(_TEXT.format(part)).isNull(), F.lit("not UTF-8"))
        why = F.coalesce(not_text, why)
    whole = F.when(F.col(part).isNotNull(), F.concat(F.lit(f"{part}: "), why))
    rows = rows.withColumn(problem, whole)
    if_good = F.when(F.col(problem).isNull(), conversion.value(F.col(parsed)))
    return rows.withColumn(value, if_good)


def _of_bytes(converter: PartConverter) -> Conversion:
    octets, name = F.col(converter.part), converter.class_name
    if name in REGISTRY_FORMATS or name == BYTES:
        return Conversion(octets, None, _same)
    if name == STRING:
        encoding = str(converter.text("converter.encoding"))
        return Conversion(_decoded(octets, encoding), None, _same)
    if name == BOOLEAN:
        parsed = F.when(octets == F.lit(b"\x01"), True).when(octets == F.lit(b"\x00"), False)
        why = "a boolean is one byte, 0 or 1"
    else:
        width = WIDTHS[NUMBERS[name]]
        parsed = width.of_bytes(octets)
        why = f"Size of data received by {NUMBERS[name]}Deserializer is not {width.size}"
    return Conversion(parsed, lambda column: F.when(column.isNull(), F.lit(why)), _same)


def _same(column: Column) -> Column:
    return column


def _decoded(octets: Column, encoding: str) -> Column:
    charset = ENCODINGS[encoding]
    if charset == "UTF-8":
        return F.make_valid_utf8(octets.cast("string"))
    return F.decode(octets, charset)


def _of_json(
    rows: DataFrame,
    converter: PartConverter,
    config: Mapping[str, str],
    schema: Callable[[str], str | None],
    declared: DeclaredSchemas | None,
) -> Conversion:
    text = _TEXT.format(converter.part)
    if not converter.has_declared_schemas:
        return plain_json(text, _json_type(rows, converter.part, config, schema))
    assert declared is not None, "schemas.enable=true: call by_schema for each batch first"
    schema_text = declared.key if converter.part == "key" else declared.value
    if schema_text is None:
        return _unreadable(NO_ENVELOPE)
    try:
        parsed = parse_schema(schema_text)
    except SchemaError as error:
        return _unreadable(str(error))
    prefix = declared.known.of(converter.part).get(schema_text)
    return enveloped_json(text, parsed, converter.flag("replace.null.with.default"), prefix)


def _unreadable(why: str) -> Conversion:
    nothing = F.lit(None).cast("string")
    return Conversion(nothing, lambda _: F.lit(why), _same)


def _json_type(
    rows: DataFrame, part: str, config: Mapping[str, str], schema: Callable[[str], str | None]
) -> DataType | None:
    """The type of JSON without a schema; None if neither an option nor the target has it."""
    text = config.get(f"{part}.schema")
    if text is None and part == "value":
        topics = [topic.strip() for topic in config.get("topics", "").split(",") if topic.strip()]
        found = {schema(topic) for topic in topics}
        if len(found) > 1:
            raise OptionError(
                "topics",
                "the topics have targets with different columns; set value.schema, or use a "
                "connector for each topic",
            )
        text = next(iter(found), None)
    return None if text is None else parse_ddl(rows, f"{part}.schema", text)


def parse_ddl(rows: DataFrame, option: str, text: str) -> DataType:
    """The type of a DDL: columns, or a single type such as `int`."""
    reason = ""
    for given in (f"struct<{text}>", text):
        try:
            empty = rows.sparkSession.sql(f"select cast(null as {given}) as one")
            found: DataType = empty.schema["one"].dataType
        except AnalysisException as error:
            reason = str(error).splitlines()[0]
        else:
            return found
    raise OptionError(option, f"Invalid value {text} for configuration {option}: {reason}")
