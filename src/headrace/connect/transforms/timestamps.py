"""TimestampConverter: texts, numbers since 1970, and the types Date, Time and Timestamp.

Texts are parsed strictly, other than by Java's SimpleDateFormat, which accepts month 13. The
session's time zone has to be UTC.
"""

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from headrace.connect.converters.connect_schema import NAME, TIME, SchemaError, schema_of
from headrace.connect.converters.moments import timestamp_of_millis
from headrace.connect.transforms.change import (
    Change,
    RecordFailure,
    RecordView,
    kept,
    not_a_struct,
    rebuilt,
)

_DAY_MS = 86_400_000
_OF_MS = {"seconds": -1000, "milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}
"""How many of a unit are a millisecond; negative: how many milliseconds are one."""


@dataclass(frozen=True, slots=True)
class _Target:
    kind: str
    format: str
    unit: int


def timestamp_converter(records: RecordView) -> Change:
    part, options = records.part, records.options
    target = _Target(
        options.text("target.type"),
        options.text("format"),
        _OF_MS[options.text("unix.precision")],
    )
    wanted = options.text("field")
    if not wanted:
        whole = records.schema[part]
        new, metadata, failure = _convert(F.col(part), whole, target, F.col(part).isNotNull())
        return Change({part: new}, {part: metadata}, failures=[failure] if failure else [])
    fields = records.fields(part)
    if fields is None:
        return not_a_struct(records, part, "converting timestamp formats")
    columns, failures = [], []
    for each in fields:
        if each.name != wanted:
            columns.append(kept(part, each))
            continue
        new, metadata, failure = _convert(
            F.col(part)[each.name], each, target, F.col(part).isNotNull()
        )
        columns.append(new.alias(each.name, metadata=metadata))
        failures += [failure] if failure else []
    return Change(
        {part: rebuilt(part, columns)}, {part: records.schema[part].metadata}, failures=failures
    )


def _convert(
    column: Column, field: StructField, target: _Target, has_schema: Column
) -> tuple[Column, dict[str, object], RecordFailure | None]:
    """The column in its new form, its metadata, and the values that cannot be converted."""
    kind = field.dataType
    metadata: dict[str, object] = {NAME: TIME} if target.kind == "Time" else {}
    failure = None
    if field.metadata.get(NAME) == TIME:
        moment = F.timestamp_millis(column.cast("bigint"))
    elif isinstance(kind, TimestampType | TimestampNTZType | DateType):
        moment = column.cast("timestamp")
    elif isinstance(kind, LongType):
        moment = timestamp_of_millis(_scaled(column, -target.unit))
        out_of_range = F.lit("the number is too large for a timestamp")
        failure = RecordFailure(column.isNotNull() & moment.isNull(), out_of_range)
    elif isinstance(kind, StringType) and target.format:
        moment = F.try_to_timestamp(column, F.lit(target.format))
        message = F.concat(
            F.lit("Could not parse timestamp: value ("),
            column,
            F.lit(f") does not match pattern ({target.format})"),
        )
        failure = RecordFailure(column.isNotNull() & moment.isNull(), message)
    else:
        moment = F.lit(None).cast("timestamp")
        failure = RecordFailure(has_schema, F.lit(_unknown(kind)))
    return _in_form(moment, target), metadata, failure


def _unknown(kind: DataType) -> str:
    if isinstance(kind, StringType):
        return "TimestampConverter needs the option format for texts"
    try:
        name = schema_of(kind).kind.upper()
    except SchemaError:
        name = kind.simpleString()
    return f"Schema Schema{{{name}}} does not correspond to a known timestamp type format"


def _in_form(moment: Column, target: _Target) -> Column:
    if target.kind == "Timestamp":
        return moment
    if target.kind == "Date":
        return moment.cast("date")
    if target.kind == "Time":
        return F.pmod(F.unix_millis(moment), F.lit(_DAY_MS)).cast("int")
    if target.kind == "unix":
        return _scaled(F.unix_millis(moment), target.unit)
    return F.date_format(moment, target.format)


def _scaled(number: Column, factor: int) -> Column:
    """The number times the factor; a negative factor divides, without the remainder.

    A product that is too large is the largest number, as with Java's TimeUnit.
    """
    if factor < -1:
        return F.call_function("div", number, F.lit(-factor).cast("bigint"))
    if abs(factor) == 1:
        return number
    largest = F.when(number > 0, F.lit((1 << 63) - 1)).when(number < 0, F.lit(-(1 << 63)))
    return F.coalesce(F.try_multiply(number, F.lit(factor).cast("bigint")), largest)
