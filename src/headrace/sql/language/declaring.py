"""Streams and tables out of statements: CREATE STREAM|TABLE over a topic, and AS SELECT.

Everything is checked that can be without the topic: formats, keys, types, the timestamp, windows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.sql.language.datatypes import SIMPLE_TYPES
from headrace.sql.language.errors import SqlError, did_you_mean
from headrace.sql.language.grammar.reading import DURATIONS_MS
from headrace.sql.language.statements import CreateAs, CreateSource
from headrace.sql.plans import PSEUDO_COLUMNS, QueryPlan
from headrace.sql.sources import REGISTERED, ColumnRole, Format, SqlColumn, SqlSource, Window

KAFKA_TYPES = ("int", "bigint", "double", "string", "binary")
"""Types that Kafka's own serializers have."""
DELIMITERS = {"SPACE": " ", "TAB": "\t"}
NOT_SUPPORTED = {
    "key_schema_full_name": "the schema has the name that the registry's client gives it",
    "value_schema_full_name": "the schema has the name that the registry's client gives it",
    "value_avro_schema_full_name": "the schema has the name that the registry's client gives it",
    "key_protobuf_nullable_representation": "fields of Protobuf are always optional",
    "value_protobuf_nullable_representation": "fields of Protobuf are always optional",
}
RESERVED_PREFIX = "__"


@dataclass(frozen=True, slots=True)
class FormatDefaults:
    """Formats of statements that name none; None: they must."""

    key: Format = Format.KAFKA
    value: Format | None = None


@dataclass(frozen=True, slots=True)
class TopicRequest:
    """What a statement says about its topic; None: nothing."""

    partitions: int | None
    replicas: int | None
    retention_ms: int | None
    cleanup_policy: str | None


def requested_topic(properties: Mapping[str, str]) -> TopicRequest:
    """The topic that a statement asks for. A new one is only made if it has partitions."""
    policy = properties.get("cleanup_policy")
    if policy is not None:
        policy = policy.lower().replace(" ", "")
        if not set(policy.split(",")) <= {"compact", "delete"}:
            raise SqlError("cleanup_policy is 'compact', 'delete' or 'compact,delete'.")
    return TopicRequest(
        _whole(properties, "partitions", 1),
        _whole(properties, "replicas", 1),
        _whole(properties, "retention_ms", -1),
        policy,
    )


def columns_to_look_up(statement: CreateSource, defaults: FormatDefaults) -> tuple[ColumnRole, ...]:
    """Whether the columns of the key, of the value, or of both are in the schema registry."""
    key, value = _formats(statement.properties, defaults)
    named = {column.role for column in statement.columns}
    return tuple(
        role
        for role, encoding in ((ColumnRole.KEY, key), (ColumnRole.VALUE, value))
        if encoding in REGISTERED and role not in named
    )


def declared_source(
    statement: CreateSource,
    registry_columns: Iterable[SqlColumn] = (),
    defaults: FormatDefaults = FormatDefaults(),  # noqa: B008 - it is immutable
) -> SqlSource:
    """The stream or table of CREATE STREAM|TABLE.

    `registry_columns` are those that `columns_to_look_up` asks for. Raises SqlError.
    """
    properties = statement.properties
    what = f"The {'table' if statement.is_table else 'stream'} {statement.name}"
    topic = properties.get("kafka_topic")
    if not topic:
        raise SqlError(f"{what} needs a topic: WITH (kafka_topic='...').")
    key_format, value_format = _formats(properties, defaults)
    looked_up = tuple(registry_columns)
    columns = (
        *(column for column in looked_up if column.role is ColumnRole.KEY),
        *statement.columns,
        *(column for column in looked_up if column.role is not ColumnRole.KEY),
    )
    source = SqlSource(
        name=statement.name,
        is_table=statement.is_table,
        topic=topic,
        columns=columns,
        key_format=key_format,
        value_format=value_format,
        timestamp=_timestamp(properties, columns),
        timestamp_format=properties.get("timestamp_format"),
        window=_declared_window(properties),
        wrap_single_value=_flag(properties, "wrap_single_value", default=True),
        delimiter=_delimiter(properties, key_format, value_format),
        key_schema_id=_schema_id(properties, "key_schema_id", key_format),
        value_schema_id=_schema_id(properties, "value_schema_id", value_format),
        read_only=statement.read_only,
    )
    if source.is_table and not source.keys:
        raise SqlError(
            f"{what} needs a PRIMARY KEY: add it to a column, as in (id VARCHAR PRIMARY KEY, ...)."
        )
    if source.window and not source.keys:
        raise SqlError(f"{what} has window_type, so it needs a key column.")
    _check_names(columns)
    _check(source, what)
    return source


def derived_source(
    statement: CreateAs, plan: QueryPlan, types: Sequence[str], first: SqlSource
) -> SqlSource:
    """The stream or table of CREATE STREAM|TABLE AS SELECT.

    `types` are those of the plan's columns, in order, as Spark finds them. `first` is the first
    source of the SELECT: formats that the statement does not name are the same as there.
    """
    properties = statement.properties
    inherited = FormatDefaults(
        first.key_format if first.key_format is not Format.NONE else Format.KAFKA,
        first.value_format,
    )
    key_format, value_format = _formats(properties, inherited)
    if not plan.keys:
        key_format = Format.NONE
    keys = {name.casefold() for name in plan.keys}
    found = [
        SqlColumn(name, kind, ColumnRole.KEY if name.casefold() in keys else ColumnRole.VALUE)
        for name, kind in zip(plan.columns, types, strict=True)
    ]
    columns = tuple(sorted(found, key=lambda column: column.role is not ColumnRole.KEY))
    delimited = {"value_delimiter": first.delimiter} if first.delimiter != "," else {}
    source = SqlSource(
        name=statement.name,
        is_table=plan.makes_table,
        topic=properties.get("kafka_topic") or statement.name,
        columns=columns,
        key_format=key_format,
        value_format=value_format,
        timestamp=_timestamp(properties, columns),
        timestamp_format=properties.get("timestamp_format"),
        window=plan.window,
        wrap_single_value=_flag(properties, "wrap_single_value", default=True),
        delimiter=_delimiter({**delimited, **properties}, key_format, value_format, inherited=True),
        key_schema_id=_schema_id(properties, "key_schema_id", key_format),
        value_schema_id=_schema_id(properties, "value_schema_id", value_format),
    )
    what = f"The {'table' if source.is_table else 'stream'} {statement.name}"
    for column in columns:
        if "void" in column.type:
            raise SqlError(
                f"The column {column.name} is NULL and has no type: write CAST(NULL AS VARCHAR)."
            )
    _check_names(columns)
    _check(source, what)
    return source


def _formats(properties: Mapping[str, str], defaults: FormatDefaults) -> tuple[Format, Format]:
    both = properties.get("format")
    if both is not None and ("key_format" in properties or "value_format" in properties):
        raise SqlError("FORMAT is for key and value; leave it out, or key_format and value_format.")
    for name in properties:
        if name in NOT_SUPPORTED:
            raise SqlError(f"The property {name} is not supported: {NOT_SUPPORTED[name]}.")
    key = _format(properties.get("key_format", both), "key_format") or defaults.key
    value = _format(properties.get("value_format", both), "value_format") or defaults.value
    if value is None:
        raise SqlError(f"WITH needs value_format: one of {_names_of_formats()}.")
    if value is Format.NONE:
        raise SqlError("The value_format NONE is not possible: it is for keys.")
    return key, value


def _names_of_formats() -> str:
    return ", ".join(each.value for each in Format if each is not Format.NONE)


def _format(name: str | None, property_name: str) -> Format | None:
    if name is None:
        return None
    try:
        return Format(name.upper())
    except ValueError:
        raise SqlError(
            f"Unknown {property_name} {name}. It is one of {_names_of_formats()}"
            f"{' and NONE' if property_name == 'key_format' else ''}."
            + did_you_mean(name, [each.value for each in Format])
        ) from None


def _whole(properties: Mapping[str, str], name: str, least: int) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    try:
        found = int(text)
    except ValueError:
        raise SqlError(f"The property {name} is a whole number, not {text!r}.") from None
    if found < least:
        raise SqlError(f"The property {name} is at least {least}.")
    return found


def _flag(properties: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = properties.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise SqlError(f"The property {name} is true or false.")
    return text == "true"


def _schema_id(properties: Mapping[str, str], name: str, encoding: Format) -> int | None:
    found = _whole(properties, name, 0)
    if found is not None and encoding not in REGISTERED:
        raise SqlError(f"{name} needs a format of the schema registry: AVRO, JSON_SR or PROTOBUF.")
    return found


def _delimiter(
    properties: Mapping[str, str], key: Format, value: Format, *, inherited: bool = False
) -> str:
    found = {}
    for name, encoding in (("key_delimiter", key), ("value_delimiter", value)):
        if name not in properties:
            continue
        if encoding is not Format.DELIMITED:
            if inherited:
                continue
            raise SqlError(f"{name} is only for the format DELIMITED.")
        text = DELIMITERS.get(properties[name].upper(), properties[name])
        if len(text) != 1:
            raise SqlError(f"{name} is one character, SPACE or TAB.")
        found[name] = text
    if len(set(found.values())) > 1:
        raise SqlError("key_delimiter and value_delimiter have to be the same.")
    return next(iter(found.values()), ",")


def _timestamp(properties: Mapping[str, str], columns: Iterable[SqlColumn]) -> str | None:
    """The column with the time of a row, with the name that the column has."""
    name = properties.get("timestamp")
    pattern = properties.get("timestamp_format")
    if name is None:
        if pattern is not None:
            raise SqlError("timestamp_format needs the property timestamp: the column it is for.")
        return None
    by_name = {column.name.casefold(): column for column in columns}
    column = by_name.get(name.casefold())
    if column is None or column.role is ColumnRole.HEADER:
        known = [each.name for each in by_name.values()]
        raise SqlError(f"The timestamp column {name} is not a column.{did_you_mean(name, known)}")
    expected = ("string",) if pattern is not None else ("bigint", "timestamp")
    if column.type not in expected:
        hint = (
            " Add timestamp_format, as in timestamp_format='yyyy-MM-dd HH:mm:ss'."
            if column.type == "string"
            else ""
        )
        raise SqlError(
            f"The timestamp column {name} has the type {column.type}; it needs to be BIGINT"
            f" (milliseconds) or TIMESTAMP, or VARCHAR with timestamp_format.{hint}"
        )
    return column.name


def _declared_window(properties: Mapping[str, str]) -> Window | None:
    kind = properties.get("window_type")
    size = properties.get("window_size")
    if kind is None:
        if size is not None:
            raise SqlError("window_size needs window_type: TUMBLING or HOPPING.")
        return None
    kind = kind.upper()
    if kind not in ("TUMBLING", "HOPPING", "SESSION"):
        raise SqlError(f"window_type is TUMBLING, HOPPING or SESSION, not {kind}.")
    if kind == "SESSION":
        if size is not None:
            raise SqlError("window_size is not for SESSION: the keys of sessions have their ends.")
        return Window(kind, None)
    if size is None:
        raise SqlError(f"window_type {kind} needs window_size, as in window_size='1 HOUR'.")
    return Window(kind, duration_ms(size, "window_size"))


def duration_ms(text: str, of: str) -> int:
    """A duration in a string: `10 SECONDS`."""
    count, _, unit = text.strip().partition(" ")
    size = DURATIONS_MS.get(unit.strip().upper().removesuffix("S"))
    if size is None or not count.isdecimal() or int(count) == 0:
        raise SqlError(
            f"{of} is a number and a unit (DAYS, HOURS, MINUTES, SECONDS, MILLISECONDS), as in"
            f" '1 HOUR', not {text!r}."
        )
    return int(count) * size


def _check_names(columns: Iterable[SqlColumn]) -> None:
    for column in columns:
        if column.name.upper() in PSEUDO_COLUMNS or column.name.startswith(RESERVED_PREFIX):
            raise SqlError(
                f"The name {column.name} is reserved: every row has {', '.join(PSEUDO_COLUMNS[:3])}"
                f" already, and names that begin with {RESERVED_PREFIX} are internal."
            )


def _check(source: SqlSource, what: str) -> None:
    """Whether the formats can have these columns."""
    keys, values = source.keys, source.values
    if not values:
        if source.columns:
            raise SqlError(f"{what} has no value columns: all columns are in the key.")
        raise SqlError(
            f"{what} needs columns: name them, or use a format of the schema registry (AVRO,"
            " JSON_SR, PROTOBUF)."
        )
    if keys and source.key_format is Format.NONE:
        raise SqlError(f"{what} has key columns, so its key_format cannot be NONE.")
    if any("map<" in column.type for column in keys):
        raise SqlError(f"{what} has a MAP in its key: maps have no order, so keys cannot be equal.")
    _check_format(what, "key", source.key_format, keys)
    _check_format(what, "value", source.value_format, values)
    if not source.wrap_single_value and (
        len(values) != 1 or source.value_format not in (Format.JSON, Format.AVRO, Format.JSON_SR)
    ):
        raise SqlError(
            "wrap_single_value is for values of a single column in JSON, JSON_SR or AVRO."
        )


def _check_format(what: str, part: str, encoding: Format, columns: Sequence[SqlColumn]) -> None:
    if encoding is Format.KAFKA:
        if len(columns) > 1:
            names = ", ".join(column.name for column in columns)
            raise SqlError(
                f"{what} has several columns in its {part} ({names}), and the format KAFKA has only"
                f" one. Choose another one, as in WITH ({part}_format='JSON')."
            )
        for column in columns:
            if column.type not in KAFKA_TYPES:
                raise SqlError(
                    f"The format KAFKA has no type {column.type} (column {column.name}): it has"
                    f" INT, BIGINT, DOUBLE, VARCHAR and BYTES. Choose another one, as in"
                    f" WITH ({part}_format='JSON')."
                )
    if encoding is Format.DELIMITED:
        simple = set(SIMPLE_TYPES.values())
        for column in columns:
            if column.type not in simple and not column.type.startswith("decimal"):
                raise SqlError(
                    f"The format DELIMITED has no type {column.type} (column {column.name})."
                )
