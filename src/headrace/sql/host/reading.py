"""Records of a topic as the rows of a stream or table.

A record that cannot be read does not fail the query: the column `__problem` has the reason, and all
others are null or meaningless. The Python form of the same is `sql/records/decoding.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.connect.converters.fixed_width import WIDTHS, FixedWidth
from headrace.pipelines.typed.options import ERROR
from headrace.sql.host.json_columns import (
    CORRUPT,
    field_problem,
    field_values,
    moment_of_text,
    parsed_json,
)
from headrace.sql.host.types import adapted, field_of, type_of
from headrace.sql.hosting import QueryRefused
from headrace.sql.plans import (
    DELETED,
    ROWOFFSET,
    ROWPARTITION,
    ROWTIME,
    TIME,
    WINDOWEND,
    WINDOWSTART,
)
from headrace.sql.sources import REGISTERED, ColumnRole, Format, SqlColumn, SqlSource

PROBLEM = "__problem"
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_EMPTY_FIELD = "\x01"
"""Stands for an empty string in quotes while a line is parsed: Spark's parser has one value for it
and for nothing between two delimiters."""


def source_columns(source: SqlSource) -> list[str]:
    """The columns of the Spark source that `read_rows` needs."""
    found = ["key", "value", "partition", "offset", "timestamp"]
    if source.of_role(ColumnRole.HEADER):
        found.append("headers")
    if {source.key_format, source.value_format} & REGISTERED:
        found.append(ERROR)
    return found


def read_rows(records: DataFrame, source: SqlSource) -> DataFrame:
    """The records with the columns of a view (`plans.py`) and `__problem`.

    Rows that no view has are left out: records of streams without a value, and of tables without a
    key.
    """
    needed = "key" if source.is_table else "value"
    if source.value_format in REGISTERED and not source.is_table and ERROR in records.columns:
        # A value that cannot be decoded is null as well.
        records = records.where(F.col("value").isNotNull() | F.col(ERROR).isNotNull())
    elif source.is_table or source.values:
        records = records.where(F.col(needed).isNotNull())
    columns: dict[str, Column] = {}
    problems: list[Column] = []
    if ERROR in records.columns:
        problems.append(F.col(ERROR))
    if source.window is not None:
        records = _with_window(records, source)
        columns[WINDOWSTART], columns[WINDOWEND] = F.col("__start"), F.col("__end")
        short = F.col("key").isNull() & F.col("__whole").isNotNull()
        problems.append(F.when(short, F.lit("key: too few bytes for a window")))
    for part in _parts(source):
        reading = _read(part, source, records)
        records = reading.records
        columns |= reading.columns
        if reading.problem is not None:
            problems.append(reading.problem)
    for column in source.of_role(ColumnRole.HEADER):
        columns[column.name] = _header(column)
    return _view(records, source, columns, problems)


def _view(
    records: DataFrame, source: SqlSource, columns: dict[str, Column], problems: list[Column]
) -> DataFrame:
    deleted = F.col("value").isNull()
    windows = [name for name in (WINDOWSTART, WINDOWEND) if name in columns]
    # Kinds by column, as the rows have them after the first step.
    named = {each.name: columns[each.name].alias(each.name) for each in source.columns}
    step = records.select(
        *named.values(),
        *(columns[name].alias(name) for name in windows),
        F.col("timestamp").alias("__timestamp"),
        F.col("partition").alias(ROWPARTITION),
        F.col("offset").alias(ROWOFFSET),
        deleted.alias(DELETED),
        F.coalesce(*problems, F.lit(None).cast("string")).alias(PROBLEM),
    )
    recorded = F.unix_millis("__timestamp")
    if source.timestamp is None:
        moment, row_time, problem = F.col("__timestamp"), recorded, F.col(PROBLEM)
    else:
        found, name = _row_time(source)
        row_time = F.when(F.col(DELETED), recorded).otherwise(found)
        moment = F.timestamp_millis(row_time)
        why = F.lit(f"value: the timestamp column {name} is no time")
        problem = F.coalesce(F.col(PROBLEM), F.when(~F.col(DELETED) & found.isNull(), why))
    return step.select(
        *(f"`{name}`" for name in named),
        row_time.alias(ROWTIME),
        ROWPARTITION,
        ROWOFFSET,
        *windows,
        moment.alias(TIME),
        *([DELETED] if source.is_table else []),
        problem.alias(PROBLEM),
    )


def view_schema(source: SqlSource) -> StructType:
    """The columns of a view."""
    fields = [StructField(each.name, type_of(each.type)) for each in source.columns]
    fields += [StructField(ROWTIME, type_of("bigint")), StructField(ROWPARTITION, type_of("int"))]
    fields.append(StructField(ROWOFFSET, type_of("bigint")))
    if source.window is not None:
        fields += [StructField(name, type_of("bigint")) for name in (WINDOWSTART, WINDOWEND)]
    fields.append(StructField(TIME, TimestampType()))
    if source.is_table:
        fields.append(StructField(DELETED, BooleanType()))
    return StructType(fields)


# ------------------------------------------------------------------------------ keys and values


@dataclass(frozen=True, slots=True)
class _Part:
    """The key or the value of records."""

    name: str
    format: Format
    columns: tuple[SqlColumn, ...]
    wrapped: bool

    @property
    def kind(self) -> DataType:
        """The type of the whole part."""
        types = [(each.name, type_of(each.type)) for each in self.columns]
        if not self.wrapped:
            return types[0][1]
        return StructType([StructField(name, kind) for name, kind in types])


@dataclass(frozen=True, slots=True)
class _Reading:
    """The records with columns for parsed parts, and the columns of the row over these."""

    records: DataFrame
    columns: dict[str, Column]
    problem: Column | None = None


def _parts(source: SqlSource) -> Sequence[_Part]:
    keys, values = source.keys, source.values
    key_wrapped = len(keys) > 1 or source.key_format is Format.PROTOBUF
    value_wrapped = (
        len(values) != 1 or source.wrap_single_value or source.value_format is Format.PROTOBUF
    )
    return (
        _Part("key", source.key_format, keys, key_wrapped),
        _Part("value", source.value_format, values, value_wrapped),
    )


def _read(part: _Part, source: SqlSource, records: DataFrame) -> _Reading:
    if not part.columns or part.format is Format.NONE:
        nothing = {each.name: F.lit(None).cast(type_of(each.type)) for each in part.columns}
        return _Reading(records, nothing)
    if part.format in REGISTERED:
        return _registered(part, records)
    if part.format is Format.KAFKA:
        return _kafka(part, records)
    text = f"__{part.name}_text"
    records = records.withColumn(text, F.try_validate_utf8(F.col(part.name).cast("string")))
    not_text = F.when(F.col(part.name).isNotNull() & F.col(text).isNull(), "not UTF-8")
    if part.format is Format.DELIMITED:
        return _delimited(part, source.delimiter, records, text, not_text)
    return _json(part, records, text, not_text)


def _reason(part: _Part, *reasons: Column) -> Column:
    why = F.coalesce(*reasons)
    return F.when(why.isNotNull(), F.concat(F.lit(f"{part.name}: "), why))


def _kafka(part: _Part, records: DataFrame) -> _Reading:
    if len(part.columns) > 1:
        names = ", ".join(each.name for each in part.columns)
        raise QueryRefused(
            f"the {part.name} has the columns {names}, but the format KAFKA is for one column; "
            f"use {part.name}_format JSON or DELIMITED"
        )
    (column,) = part.columns
    octets, kind, parsed = F.col(part.name), type_of(column.type), f"__{part.name}"
    if isinstance(kind, BinaryType):
        return _Reading(records, {column.name: octets})
    if isinstance(kind, StringType):
        return _Reading(records, {column.name: F.make_valid_utf8(octets.cast("string"))})
    if isinstance(kind, BooleanType):
        found = F.when(octets == F.lit(b"\x01"), True).when(octets == F.lit(b"\x00"), False)
    else:
        found = kafka_number(column, kind).of_bytes(octets)
    records = records.withColumn(parsed, found)
    bad = octets.isNotNull() & F.col(parsed).isNull()
    why = F.lit(f"{column.name} has another number of bytes than {column.type} has")
    return _Reading(records, {column.name: F.col(parsed)}, _reason(part, F.when(bad, why)))


def kafka_number(column: SqlColumn, kind: DataType) -> FixedWidth:
    """How the format KAFKA writes a number; QueryRefused for types that it does not have."""
    found = next((each for each in WIDTHS.values() if each.kind == kind), None)
    if found is None:
        raise QueryRefused(
            f"{column.name} is {column.type}, which the format KAFKA does not have; its types are "
            "string, int, bigint, double and binary"
        )
    return found


def _json(part: _Part, records: DataFrame, text: str, not_text: Column) -> _Reading:
    kind, parsed = part.kind, f"__{part.name}"
    records = records.withColumn(parsed, parsed_json(F.col(text), kind))
    empty = F.trim(F.col(text)).isin("", "null")
    wrong = F.col(text).isNotNull() & ~empty & field_problem(F.col(parsed), kind)
    why = F.lit(f"not JSON of the type {kind.simpleString()}")
    values = field_values(F.col(parsed), kind)
    if not part.wrapped:
        values = {part.columns[0].name: values[""]}
    columns = {name: F.when(~empty, value) for name, value in values.items()}
    return _Reading(records, columns, _reason(part, not_text, F.when(wrong, why)))


def _delimited(
    part: _Part, delimiter: str, records: DataFrame, text: str, not_text: Column
) -> _Reading:
    parsed = f"__{part.name}"
    texts = [StructField(each.name, StringType()) for each in part.columns]
    schema = StructType([*texts, StructField(CORRUPT, StringType())]).toDDL()
    options = {
        "sep": delimiter,
        "quote": '"',
        "escape": '"',
        "emptyValue": _EMPTY_FIELD,
        "columnNameOfCorruptRecord": CORRUPT,
    }
    records = records.withColumn(parsed, F.from_csv(F.col(text), schema, options))
    found = F.col(parsed)
    columns: dict[str, Column] = {}
    wrong = found.isNull() | found[CORRUPT].isNotNull()
    reasons = [F.when(F.col(text).isNotNull() & wrong, f"{len(texts)} fields are expected")]
    for each in part.columns:
        kind, raw = type_of(each.type), found[each.name]
        column = columns[each.name] = _of_field(raw, kind, each)
        if not isinstance(kind, StringType):
            bad = raw.isNotNull() & column.isNull()
            reasons.append(F.when(bad, f"{each.name} is not of the type {each.type}"))
    return _Reading(records, columns, _reason(part, not_text, *reasons))


def _of_field(text: Column, kind: DataType, column: SqlColumn) -> Column:
    if isinstance(kind, StringType):
        return F.when(text == _EMPTY_FIELD, "").otherwise(text)
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return moment_of_text(text, kind)
    if isinstance(kind, BinaryType):
        octets = F.try_to_binary(text, F.lit("base64"))
        return F.when(text == _EMPTY_FIELD, F.lit(b"")).otherwise(octets)
    if kind.simpleString().partition("<")[0] in ("array", "map", "struct"):
        raise QueryRefused(
            f"{column.name} is {column.type}, which the format DELIMITED does not have"
        )
    return text.try_cast(kind)


def _registered(part: _Part, records: DataFrame) -> _Reading:
    """Columns of a part that the Spark source has decoded; `_error` has its problem."""
    kind = records.schema[part.name].dataType
    whole = F.col(part.name)
    wrapped = isinstance(kind, StructType) and (
        len(part.columns) > 1
        or field_of(kind, part.columns[0].name) is not None
        or not isinstance(type_of(part.columns[0].type), StructType)
    )
    if not wrapped:
        (column,) = part.columns
        return _Reading(
            records, {column.name: adapted(whole, kind, type_of(column.type), _declared)}
        )
    assert isinstance(kind, StructType), "a wrapped part is a struct"
    columns: dict[str, Column] = {}
    for each in part.columns:
        name, wanted = field_of(kind, each.name), type_of(each.type)
        columns[each.name] = (
            F.lit(None).cast(wanted)
            if name is None
            else adapted(whole[name], kind[name].dataType, wanted, _declared)
        )
    return _Reading(records, columns)


def _declared(column: Column, kind: DataType, wanted: DataType) -> Column:
    """The type of a column from that of a schema; JSON Schema has texts for bytes and times."""
    if isinstance(kind, StringType):
        if isinstance(wanted, BinaryType):
            return F.try_to_binary(column, F.lit("base64"))
        if isinstance(wanted, TimestampType | TimestampNTZType | DateType):
            return moment_of_text(column, wanted)
    return column.try_cast(wanted)


# ------------------------------------------------------------------------ windows, headers, time


def _with_window(records: DataFrame, source: SqlSource) -> DataFrame:
    """The records with the key as it is without its window, and the bounds of the window.

    The key is followed by the start of the window, of a session by its end and its start.
    """
    assert source.window is not None, "a source with windowed keys"
    if source.key_format in REGISTERED:
        raise QueryRefused(
            f"{source.name} has windowed keys of the format {source.key_format}, which cannot be "
            "read; use key_format KAFKA, JSON or DELIMITED"
        )
    is_session = source.window.kind == "SESSION"
    size = 16 if is_session else 8
    number = WIDTHS["Long"]
    long_enough = F.length("key") >= size
    start = number.of_bytes(F.expr("substring(key, -8, 8)"))
    if is_session:
        end = number.of_bytes(F.expr("substring(key, -16, 8)"))
    elif source.window.size_ms is not None:
        end = start + F.lit(source.window.size_ms).cast("bigint")
    else:
        end = F.lit(None).cast("bigint")
    return records.withColumns(
        {
            "__whole": F.col("key"),
            "__start": F.when(long_enough, start),
            "__end": F.when(long_enough, end),
        }
    ).withColumn("key", F.when(long_enough, F.expr(f"substring(key, 1, length(key) - {size})")))


def _header(column: SqlColumn) -> Column:
    if column.header is None:
        return F.coalesce(F.col("headers"), F.array().cast(HEADERS_TYPE))
    wanted = F.filter(F.col("headers"), lambda each: each["key"] == column.header)
    return F.try_element_at(wanted, F.lit(-1))["value"]


def _row_time(source: SqlSource) -> tuple[Column, str]:
    """The milliseconds of the timestamp column, and its name."""
    assert source.timestamp is not None, "a source with a timestamp column"
    column = source.column(source.timestamp)
    if column is None:
        raise QueryRefused(
            f"{source.name} has no column {source.timestamp}, which its property timestamp names"
        )
    found, kind = F.col(f"`{column.name}`"), type_of(column.type)
    if isinstance(kind, StringType):
        pattern = source.timestamp_format
        moment = (
            found.try_cast("timestamp")
            if pattern is None
            else F.try_to_timestamp(found, F.lit(pattern))
        )
        return F.unix_millis(moment), column.name
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return F.unix_millis(found.cast("timestamp")), column.name
    return found.cast("bigint"), column.name
