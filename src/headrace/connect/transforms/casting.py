"""Cast: with the conversions of Java, which wrap and truncate numbers instead of failing."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from headrace.connect.converters.connect_schema import SchemaError, schema_of
from headrace.connect.converters.java_text import date_text
from headrace.connect.transforms.change import (
    Change,
    RecordFailure,
    RecordView,
    kept,
    not_a_struct,
    rebuilt,
)
from headrace.connect.transforms.options import CAST_TYPES, cast_spec

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_FROM = "[INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING, BYTES]"


def cast(records: RecordView) -> Change:
    part = records.part
    spec = cast_spec(records.options)
    if None in spec:
        kind = records.type(part)
        target = spec[None]
        failure = _failure(F.col(part), kind, target)
        return Change(
            {part: converted(F.col(part), kind, target)}, {part: {}}, failures=_some(failure)
        )
    fields = records.fields(part)
    if fields is None:
        return not_a_struct(records, part, "cast types")
    new, failures = [], []
    for each in fields:
        if each.name not in spec:
            new.append(kept(part, each))
            continue
        old, target = F.col(part)[each.name], spec[each.name]
        new.append(converted(old, each.dataType, target).alias(each.name))
        failures += _some(_failure(old, each.dataType, target))
    metadata = records.schema[part].metadata
    return Change({part: rebuilt(part, new)}, {part: metadata}, failures=failures)


def _some(failure: RecordFailure | None) -> list[RecordFailure]:
    return [] if failure is None else [failure]


def _failure(column: Column, kind: DataType, target: str) -> RecordFailure | None:
    """The values that cannot be cast."""
    if _is_scalar(kind):
        if target == "string" or not isinstance(kind, StringType | BinaryType):
            return None
        if isinstance(kind, BinaryType):
            message = F.lit("Unexpected type in Cast transformation: class [B")
            return RecordFailure(column.isNotNull(), message)
        wrong = column.isNotNull() & converted(column, kind, target).isNull()
        start, end = F.lit("Value ("), F.lit(") was out of range for requested data type")
        return RecordFailure(wrong, F.concat(start, column, end))
    try:
        name = schema_of(kind).kind.upper()
    except SchemaError:
        name = kind.simpleString()
    message = F.lit(
        f"Cast transformation does not support casting from {name}; supported types are {_FROM}"
    )
    return RecordFailure(column.isNotNull(), message)


def _is_scalar(kind: DataType) -> bool:
    return isinstance(
        kind,
        IntegralType
        | FloatType
        | DoubleType
        | DecimalType
        | BooleanType
        | StringType
        | BinaryType
        | DateType
        | TimestampType
        | TimestampNTZType,
    )


def converted(column: Column, kind: DataType, target: str) -> Column:
    """The value in the other type; null if it cannot be."""
    nothing = F.lit(None).cast(CAST_TYPES[target])
    if not _is_scalar(kind):
        return nothing
    if target == "string":
        return _text(column, kind)
    if isinstance(kind, BinaryType):
        return nothing
    if isinstance(kind, StringType):
        return _parsed(column, target)
    if isinstance(kind, BooleanType):
        return column.cast("int").cast(CAST_TYPES[target])
    if isinstance(kind, DateType):
        column, kind = F.unix_date(column), IntegerType()
    elif isinstance(kind, TimestampType | TimestampNTZType):
        column, kind = F.unix_millis(column.cast("timestamp")), LongType()
    if target in ("float32", "float64"):
        return column.cast(CAST_TYPES[target])
    if target == "boolean":
        return _whole(column, kind, 64) != 0
    return wrapped(_whole(column, kind, _BITS[target]), _BITS[target]).cast(CAST_TYPES[target])


def _text(column: Column, kind: DataType) -> Column:
    if isinstance(kind, BinaryType):
        return F.base64(column)
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return date_text(column, kind)
    return column.cast("string")


def _parsed(column: Column, target: str) -> Column:
    if target == "boolean":
        return F.lower(column) == "true"
    if target in ("float32", "float64"):
        return column.try_cast(CAST_TYPES[target])
    # Spark would also accept spaces.
    return F.when(F.rlike(column, F.lit(r"\A[+-]?[0-9]+\z")), column.try_cast(CAST_TYPES[target]))


def _whole(column: Column, kind: DataType, bits: int) -> Column:
    """The number without its fraction as bigint, as Java's intValue() and longValue() give it."""
    if isinstance(kind, IntegralType):
        return column.cast("bigint")
    if isinstance(kind, DecimalType):
        truncated = F.when(column >= 0, F.floor(column)).otherwise(F.ceil(column))
        two_64 = F.lit(str(1 << 64)).cast("decimal(20,0)")
        low = F.pmod(truncated.cast("decimal(38,0)"), two_64).cast("decimal(20,0)")
        signed = F.when(low >= F.lit(str(1 << 63)).cast("decimal(20,0)"), low - two_64)
        return F.coalesce(signed, low).cast("bigint")
    # Java converts to int first, and to long only for long; both end at their limits.
    limit = 1 << (63 if bits == 64 else 31)
    number = column.cast("double")
    return (
        F.when(F.isnan(number), F.lit(0).cast("bigint"))
        .when(number >= float(limit), F.lit(limit - 1))
        .when(number <= float(-limit), F.lit(-limit))
        .otherwise(number.cast("bigint"))
    )


def wrapped(number: Column, bits: int) -> Column:
    """The low bits of a bigint, with a sign."""
    if bits == 64:
        return number
    sign = 1 << (bits - 1)
    low = number.bitwiseAND(F.lit((1 << bits) - 1).cast("bigint"))
    return low.bitwiseXOR(F.lit(sign).cast("bigint")) - F.lit(sign)
