"""JSON to typed columns: without a schema in the record, and as JsonConverter's envelope.

A text that does not match the type is a problem of its record. This is stricter than Kafka
Connect, whose JsonConverter reads a text in place of a number as 0.
"""

from collections.abc import Mapping
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from headrace.connect.converters.connect_schema import ConnectSchema
from headrace.connect.converters.conversion import Conversion
from headrace.connect.converters.decimal_bytes import decimal_of_bytes
from headrace.connect.converters.moments import timestamp_of_millis

NO_ENVELOPE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
    "additional fields"
)
_CORRUPT = "__corrupt"
_BODY = "__body"


def plain_json(text: str, kind: DataType | None) -> Conversion:
    """JSON without a schema in the record; without a type, the text itself if it is JSON.

    `text` is the name of the column with the document.
    """
    document = F.col(text)
    empty = F.trim(document).isin("", "null")
    if kind is None:
        return Conversion(
            F.try_parse_json(document),
            lambda parsed: F.when(~empty & parsed.isNull(), F.lit("not JSON")),
            lambda _: F.when(~empty, document),
        )
    is_struct = isinstance(kind, StructType)
    fields = kind.fields if isinstance(kind, StructType) else [StructField(_BODY, kind)]
    whole = document if is_struct else F.concat(F.lit(_prefix()), document, F.lit("}"))
    why = F.lit(f"not JSON of the type {kind.simpleString()}")
    return Conversion(
        _parsed(whole, fields),
        lambda parsed: F.when(~empty & (parsed.isNull() | parsed[_CORRUPT].isNotNull()), why),
        lambda parsed: F.when(~empty, parsed.dropFields(_CORRUPT) if is_struct else parsed[_BODY]),
    )


def _prefix() -> str:
    return f'{{"{_BODY}":'


def _parsed(text: Column, fields: list[StructField]) -> Column:
    schema = StructType([*fields, StructField(_CORRUPT, StringType())])
    return F.from_json(text, schema, {"columnNameOfCorruptRecord": _CORRUPT})


def declared_schema(part: str, text: Column, known: Mapping[str, str]) -> Column:
    """The text of the schema in an envelope; null if there is none.

    `known` has the texts before payloads, by schemas. `text` is the part as text.
    """
    octets = F.col(part).cast("string")
    found = F.get_json_object(text, "$.schema")
    for schema, prefix in known.items():
        found = F.when(F.startswith(octets, F.lit(prefix)), F.lit(schema)).otherwise(found)
    return found


def enveloped_json(
    text: str, schema: ConnectSchema, with_defaults: bool, prefix: str | None = None
) -> Conversion:
    """The payload of JsonConverter's envelopes with this schema.

    Of a text with this prefix only the payload is parsed, as the only item of an array: whatever
    follows it in the envelope is an error there.
    """
    keys = F.array_sort(F.json_object_keys(F.col(text)))
    is_envelope = keys.eqNullSafe(F.array(F.lit("payload"), F.lit("schema")))
    kind = _payload_type(schema)
    is_known = F.lit(False) if prefix is None else _is_known(F.col(text), prefix)
    payload = F.lit(None).cast("string") if prefix is None else _payload(F.col(text), prefix)

    def problem(parsed: Column) -> Column:
        one, whole, known = parsed["one"], parsed["whole"], parsed["is_known"]
        alone = one[_CORRUPT].isNull() & (F.size(one["payload"]) == 1)
        matches = whole.isNotNull() & whole[_CORRUPT].isNull()
        mismatch = F.when(known, ~alone).otherwise(~matches)
        wrong = [
            # Texts that begin as others do are looked at closely only if they do not match.
            ((~known | mismatch) & ~is_envelope, NO_ENVELOPE),
            (mismatch, "the payload does not match its schema"),
            *_problems(_found(parsed), schema, "payload", with_defaults),
        ]
        return F.coalesce(*(F.when(condition, F.lit(message)) for condition, message in wrong))

    return Conversion(
        F.struct(
            is_known.alias("is_known"),
            F.when(is_known, _parsed(payload, [StructField("payload", ArrayType(kind))])).alias(
                "one"
            ),
            F.when(~is_known, _parsed(F.col(text), [StructField("payload", kind)])).alias("whole"),
        ),
        problem,
        lambda parsed: _value(_found(parsed), schema, with_defaults),
    )


def _found(parsed: Column) -> Column:
    return F.coalesce(F.get(parsed["one"]["payload"], F.lit(0)), parsed["whole"]["payload"])


def _is_known(text: Column, prefix: str) -> Column:
    known = F.startswith(text, F.lit(prefix)) & F.endswith(text, F.lit("}"))
    return F.coalesce(known, F.lit(False))


def _payload(text: Column, prefix: str) -> Column:
    """The text of a payload as the only item of an array."""
    length = F.char_length(text) - F.lit(len(prefix) + 1)
    payload = F.substr(text, F.lit(len(prefix) + 1), length)
    return F.concat(F.lit('{"payload":['), payload, F.lit("]}"))


def _has_pairs(schema: ConnectSchema) -> bool:
    """Whether a map is written as pairs, because its keys are no texts."""
    return schema.keys is not None and schema.keys.kind != "string"


def _payload_type(schema: ConnectSchema) -> DataType:
    """The type with which Spark parses a payload, before the conversion of logical types."""
    if schema.kind == "struct":
        return StructType(
            [
                StructField(name, _payload_type(field), True, field.metadata())
                for name, field in schema.fields
            ]
        )
    if schema.kind == "array":
        assert schema.values is not None, "an array has a schema of its items"
        return ArrayType(_payload_type(schema.values))
    if schema.kind == "map":
        assert schema.values is not None, "a map has a schema of its values"
        if _has_pairs(schema):
            return ArrayType(ArrayType(StringType()))
        return MapType(StringType(), _payload_type(schema.values))
    if schema.is_decimal:
        return VariantType()
    if schema.is_date:
        return IntegerType()
    if schema.is_timestamp:
        return LongType()
    return schema.spark_type()


def _is_same(schema: ConnectSchema, with_defaults: bool) -> bool:
    """Whether the parsed column is the value already."""
    if with_defaults and schema.default is not None:
        return False
    if schema.kind == "struct":
        return all(_is_same(field, with_defaults) for _, field in schema.fields)
    if schema.kind in ("array", "map"):
        assert schema.values is not None, "an array or map has a schema of its values"
        return not _has_pairs(schema) and _is_same(schema.values, with_defaults)
    return not (schema.is_decimal or schema.is_date or schema.is_timestamp)


def _value(column: Column, schema: ConnectSchema, with_defaults: bool) -> Column:
    if _is_same(schema, with_defaults):
        return column
    found = _without_default(column, schema, with_defaults)
    if with_defaults and schema.default is not None:
        document = F.lit(f"{_prefix()}{schema.default}}}")
        parsed = _parsed(document, [StructField(_BODY, _payload_type(schema))])[_BODY]
        return F.coalesce(found, _without_default(parsed, schema, with_defaults))
    return found


def _without_default(column: Column, schema: ConnectSchema, with_defaults: bool) -> Column:
    if schema.kind == "struct":
        fields = [
            _value(column[name], field, with_defaults).alias(name, metadata=field.metadata())
            for name, field in schema.fields
        ]
        return F.when(column.isNotNull(), F.struct(*fields))
    if schema.values is not None:
        values = schema.values
        if schema.kind == "array":
            return F.transform(column, lambda item: _value(item, values, with_defaults))
        if not _has_pairs(schema):
            return F.transform_values(column, lambda _, item: _value(item, values, with_defaults))
        assert schema.keys is not None, "a map has a schema of its keys"
        return _map_of_pairs(column, schema.keys, values, with_defaults)
    if schema.is_decimal:
        return _decimal(column, schema)
    if schema.is_date:
        return F.date_from_unix_date(column)
    if schema.is_timestamp:
        return timestamp_of_millis(column)
    return column


def _map_of_pairs(
    column: Column, keys: ConnectSchema, values: ConnectSchema, with_defaults: bool
) -> Column:
    return F.map_from_entries(
        F.transform(
            column,
            lambda pair: F.struct(
                _of_text(pair[0], keys, with_defaults), _of_text(pair[1], values, with_defaults)
            ),
        )
    )


def _of_text(text: Column, schema: ConnectSchema, with_defaults: bool) -> Column:
    """The value of a part that was parsed as text."""
    if schema.kind == "string":
        return text
    document = F.concat(F.lit(_prefix()), text, F.lit("}"))
    parsed = _parsed(document, [StructField(_BODY, _payload_type(schema))])[_BODY]
    return _value(parsed, schema, with_defaults)


def _decimal(column: Column, schema: ConnectSchema) -> Column:
    kind = schema.spark_type()
    assert isinstance(kind, DecimalType), "a decimal has a decimal type"
    text = F.try_variant_get(column, "$", "string")
    octets = F.try_to_binary(text, F.lit("base64"))
    return F.when(
        F.schema_of_variant(column) == "STRING",
        decimal_of_bytes(octets, kind.precision, kind.scale),
    ).otherwise(F.try_variant_get(column, "$", kind.simpleString()))


def _problems(
    column: Column, schema: ConnectSchema, path: str, with_defaults: bool
) -> list[tuple[Column, str]]:
    """What is wrong with a payload that Spark could parse."""
    found: list[tuple[Column, str]] = []
    is_null = column.isNull()
    if schema.is_decimal:
        is_null = is_null | F.is_variant_null(column)
        wrong = ~is_null & _decimal(column, schema).isNull()
        found.append((wrong, f"{path} is not a decimal of at most 38 digits"))
    if schema.is_timestamp:
        wrong = ~is_null & timestamp_of_millis(column).isNull()
        found.append((wrong, f"{path} is too large for a timestamp"))
    has_default = with_defaults and schema.default is not None
    if not schema.optional and not has_default:
        found.append((is_null, f"{path}: Invalid null value for required {schema.kind} field"))
    if schema.kind == "struct":
        for name, field in schema.fields:
            for condition, message in _problems(
                column[name], field, f"{path}.{name}", with_defaults
            ):
                found.append((column.isNotNull() & condition, message))
    elif schema.values is not None and not _has_pairs(schema):
        values = schema.values
        items = F.map_values(column) if schema.kind == "map" else column
        inside = _problems(F.lit(None), values, f"{path}[]", with_defaults)
        for place, (_, message) in enumerate(inside):
            is_wrong = partial(_nth_problem, values, with_defaults, place)
            wrong = F.exists(items, is_wrong)
            found.append((column.isNotNull() & wrong, message))
    return found


def _nth_problem(values: ConnectSchema, with_defaults: bool, place: int, item: Column) -> Column:
    return _problems(item, values, "", with_defaults)[place][0]
