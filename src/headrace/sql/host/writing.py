"""Rows of a plan as records of its target: keys, values and timestamps.

The Python form of the same is `sql/records/encoding.py`. Keys and values with a schema stay typed
columns here, which the Spark sink encodes.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.connect.converters.fixed_width import WIDTHS
from headrace.sql.host.json_columns import document
from headrace.sql.host.reading import kafka_number
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.types import adapted, type_of
from headrace.sql.host.views import registered_options
from headrace.sql.hosting import QueryRefused
from headrace.sql.plans import DELETED, TIME, WINDOWEND, WINDOWSTART, QueryPlan
from headrace.sql.sources import REGISTERED, Format, SqlColumn, SqlSource, Window

KEY, VALUE, TIMESTAMP = "key", "value", "record_timestamp"
"""Columns of the Spark sink."""
TRANSACTIONS = "sql-sink"
"""Prefix of transactional ids and ledgers, for ACLs."""


def written_rows(rows: DataFrame, plan: QueryPlan, target: SqlSource) -> DataFrame:
    """The records for the topic of the target.

    Rows of tables without a key are left out: they could not be replaced or deleted.
    """
    columns = _columns(rows, plan, target)
    keys = {each.name: columns[each.name] for each in target.keys}
    values = {each.name: columns[each.name] for each in target.values}
    key = _key(rows, target, keys)
    value = _value(target, values)
    if DELETED in rows.columns:
        value = F.when(~F.col(DELETED), value)
    written = [key.alias(KEY), value.alias(VALUE)]
    if TIME in rows.columns:
        written.append(_timestamp().alias(TIMESTAMP))
    made = rows.select(*written)
    return made.where(F.col(KEY).isNotNull()) if plan.makes_table else made


def _timestamp() -> Column:
    """The time of a row, within the limits that brokers have for timestamps of records.

    They refuse times of more than an hour in the future (message.timestamp.after.max.ms).
    """
    time = F.col(TIME).cast("timestamp")
    latest = F.current_timestamp() + F.expr("INTERVAL 50 MINUTES")
    bounded = F.greatest(F.least(time, latest), F.timestamp_seconds(F.lit(0)))
    return F.when(time.isNotNull(), bounded)


def sink_options(target: SqlSource, settings: SqlDriverSettings) -> dict[str, str]:
    """The options of the sink for records of a target."""
    return {
        **settings.kafka_options(),
        **registered_options(target, settings),
        "topic": target.topic,
        "delivery": "exactly-once",
        "transactionalIdPrefix": TRANSACTIONS,
    }


def _columns(rows: DataFrame, plan: QueryPlan, target: SqlSource) -> Mapping[str, Column]:
    """The columns of the target, as their types."""
    types = {each.name: each.dataType for each in rows.schema.fields}
    given = {name.casefold(): name for name in plan.columns}
    unknown = sorted(set(given) - {each.name.casefold() for each in target.columns})
    if unknown:
        names = ", ".join(given[name] for name in unknown)
        raise QueryRefused(f"{target.name} has no column {names}")
    found: dict[str, Column] = {}
    for each in target.columns:
        name, wanted = given.get(each.name.casefold()), type_of(each.type)
        found[each.name] = (
            F.lit(None).cast(wanted)
            if name is None
            else adapted(F.col(f"`{name}`"), types[name], wanted)
        )
    return found


def _struct(columns: Mapping[str, Column]) -> Column:
    return F.struct(*(column.alias(name) for name, column in columns.items()))


def _types(columns: Sequence[SqlColumn]) -> StructType:
    made = StructType()
    for each in columns:
        made = made.add(each.name, type_of(each.type))
    return made


def _key(rows: DataFrame, target: SqlSource, keys: Mapping[str, Column]) -> Column:
    if not keys or target.key_format is Format.NONE:
        return F.lit(None).cast("binary")
    wrapped = len(keys) > 1 or target.key_format is Format.PROTOBUF
    octets = _part(target, target.key_format, target.keys, keys, wrapped)
    # A key of which nothing is known is no key.
    there = F.coalesce(*(column.isNotNull() for column in keys.values()), F.lit(False))
    if len(keys) > 1:
        there = F.greatest(*(column.isNotNull() for column in keys.values()), F.lit(False))
    octets = F.when(there, octets)
    if target.window is None:
        return octets
    if target.key_format in REGISTERED:
        raise QueryRefused(
            f"{target.name} has windowed keys, which the format {target.key_format} does not have; "
            "use key_format KAFKA, JSON or DELIMITED"
        )
    if WINDOWSTART not in rows.columns:
        raise QueryRefused(f"{target.name} has windowed keys, but its rows have no window")
    return F.concat(octets, _window(target.window))


def _window(window: Window) -> Column:
    number = WIDTHS["Long"]
    start, end = number.to_bytes(F.col(WINDOWSTART)), number.to_bytes(F.col(WINDOWEND))
    return F.concat(end, start) if window.kind == "SESSION" else start


def _value(target: SqlSource, values: Mapping[str, Column]) -> Column:
    if not values:
        # Rows of a table without a value would be tombstones.
        return F.lit(b"")
    wrapped = len(values) != 1 or target.wrap_single_value or target.value_format is Format.PROTOBUF
    return _part(target, target.value_format, target.values, values, wrapped)


def _part(
    target: SqlSource,
    form: Format,
    columns: Sequence[SqlColumn],
    found: Mapping[str, Column],
    wrapped: bool,
) -> Column:
    """The bytes of a key or value; typed, if the sink encodes it."""
    only, kind = next(iter(found.values())), type_of(columns[0].type)
    if form in REGISTERED:
        return _struct(found) if wrapped else only
    if form is Format.KAFKA:
        return _kafka(target, columns, only, kind)
    if form is Format.DELIMITED:
        return _line(target, columns, found).cast("binary")
    if wrapped:
        return document(_struct(found), _types(columns)).cast("binary")
    return F.coalesce(document(only, kind), F.lit("null")).cast("binary")


def _kafka(
    target: SqlSource, columns: Sequence[SqlColumn], column: Column, kind: DataType
) -> Column:
    if len(columns) > 1:
        names = ", ".join(each.name for each in columns)
        raise QueryRefused(
            f"the format KAFKA is for one column, and {target.name} has {names}; use JSON or "
            "DELIMITED"
        )
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StringType):
        return column.cast("binary")
    if isinstance(kind, BooleanType):
        return F.when(column, F.lit(b"\x01")).when(~column, F.lit(b"\x00"))
    return kafka_number(columns[0], kind).to_bytes(column)


def _line(target: SqlSource, columns: Sequence[SqlColumn], found: Mapping[str, Column]) -> Column:
    fields = [_field(found[each.name], each).alias(each.name) for each in columns]
    options = {
        "sep": target.delimiter,
        "quote": '"',
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
        "emptyValue": '""',
    }
    return F.to_csv(F.struct(*fields), options)


def _field(column: Column, declared: SqlColumn) -> Column:
    kind = type_of(declared.type)
    if isinstance(kind, TimestampType | TimestampNTZType):
        return F.unix_millis(column.cast("timestamp"))
    if isinstance(kind, DateType):
        return F.unix_date(column)
    if isinstance(kind, BinaryType):
        return F.base64(column)
    if isinstance(kind, DecimalType):
        # A cast without ANSI mode writes 0.0000000001 as 1E-10; this one never does.
        return column.try_cast("string")
    if kind.simpleString().partition("<")[0] in ("array", "map", "struct"):
        raise QueryRefused(
            f"{declared.name} is {declared.type}, which the format DELIMITED does not have"
        )
    return column
