"""CREATE STREAM and CREATE TABLE over a topic, and ALTER ... ADD COLUMN."""

import time
from collections.abc import Mapping
from dataclasses import replace

from headrace.sql.commands.records import TYPE, StoredSource, key_of
from headrace.sql.errors import StatementRefused
from headrace.sql.execution.entities import Entity, done, warning, with_warnings
from headrace.sql.execution.registry_columns import registry_columns
from headrace.sql.execution.topics import WantedTopic, ensure_topic
from headrace.sql.language.declaring import (
    FormatDefaults,
    columns_to_look_up,
    declared_source,
    requested_topic,
)
from headrace.sql.language.statements import AlterSource, CreateAs, CreateSource
from headrace.sql.server import SqlServer
from headrace.sql.sources import ColumnRole, Format, SqlColumn, SqlSource

DEFAULTS = FormatDefaults()


def now_ms() -> int:
    return int(time.time() * 1000)


async def create_source(server: SqlServer, statement: CreateSource) -> Entity:
    """Nothing runs yet: the first query that reads it does."""
    what = "TABLE" if statement.is_table else "STREAM"
    found = server.catalog.source(statement.name)
    if found is not None and not statement.or_replace:
        return existing(statement, found)
    statement = _with_topic(server, statement)
    source = declared_source(statement, await _looked_up(server, statement), DEFAULTS)
    if found is not None:
        _check_replacement(found, source)
    wanted = wanted_topic(server, source, statement.properties, None)
    if not statement.read_only:
        await ensure_topic(server.cluster, wanted, what)
    else:
        await ensure_topic(server.cluster, replace(wanted, partitions=None), what)
    stored = StoredSource(
        statement.name,
        statement.text,
        now_ms(),
        source,
        needs=tuple(key_of(TYPE, each.name) for each in server.catalog.types()),
    )
    sequence = await server.change([stored])
    message = f"{what.capitalize()} {'replaced' if found else 'created'}"
    return done(statement.text, f"{what.lower()}/{statement.name}/create", message, sequence)


def existing(statement: CreateSource | CreateAs, found: StoredSource) -> Entity:
    """The answer to a statement whose name is taken, without OR REPLACE."""
    what = "table" if statement.is_table else "stream"
    actual = "table" if found.source.is_table else "stream"
    message = f"Cannot add {what} {statement.name}: A {actual} with the same name already exists"
    if statement.if_not_exists:
        return warning(statement.text, message)
    raise StatementRefused(f"{message}. CREATE OR REPLACE {what.upper()} changes it")


def _with_topic(server: SqlServer, statement: CreateSource) -> CreateSource:
    """The statement with the name of its topic, which is that of the stream unless it says it."""
    if statement.properties.get("kafka_topic"):
        return statement
    topic = server.options.topic_prefix + statement.name
    return replace(statement, properties={**statement.properties, "kafka_topic": topic})


async def _looked_up(server: SqlServer, statement: CreateSource) -> list[SqlColumn]:
    """The columns that the statement leaves to the schema registry."""
    properties = statement.properties
    columns: list[SqlColumn] = []
    for role in columns_to_look_up(statement, DEFAULTS):
        part = role.value.lower()
        encoding = Format((properties.get(f"{part}_format") or properties["format"]).upper())
        schema_id = properties.get(f"{part}_schema_id")
        columns += await registry_columns(
            server.options.registry,
            properties["kafka_topic"],
            role,
            encoding,
            int(schema_id) if schema_id and schema_id.isdecimal() else None,
        )
    return columns


def _check_replacement(found: StoredSource, source: SqlSource) -> None:
    what = "table" if found.source.is_table else "stream"
    if found.source.is_table != source.is_table:
        raise StatementRefused(f"{found.name} is a {what}, which OR REPLACE cannot change")
    if found.is_derived and found.query is not None:
        raise StatementRefused(
            f"{found.name} is written by query {found.query.spec.id}. Replace it with CREATE OR "
            f"REPLACE {what.upper()} {found.name} AS SELECT ..., or TERMINATE the query first"
        )
    if found.source.topic != source.topic:
        raise StatementRefused(
            f"{found.name} is over topic {found.source.topic}, which OR REPLACE cannot change to "
            f"{source.topic}. DROP {what.upper()} {found.name} first"
        )


def wanted_topic(
    server: SqlServer,
    source: SqlSource,
    properties: Mapping[str, str],
    partitions: int | None,
) -> WantedTopic:
    """The topic of a stream or table; `partitions` unless the statement says it."""
    request = requested_topic(properties)
    configs: dict[str, str] = {}
    if request.cleanup_policy is not None:
        configs["cleanup.policy"] = request.cleanup_policy
    elif source.is_table:
        configs["cleanup.policy"] = "compact" if source.window is None else "compact,delete"
    if request.retention_ms is not None:
        configs["retention.ms"] = str(request.retention_ms)
    elif source.is_table and source.window is not None and source.window.retention_ms is not None:
        configs["retention.ms"] = str(source.window.retention_ms)
    return WantedTopic(
        source.topic,
        request.partitions or partitions,
        request.replicas or server.options.replication_factor,
        configs,
    )


async def alter_source(server: SqlServer, statement: AlterSource) -> Entity:
    """ADD COLUMN: queries that run keep the columns that they were created with."""
    what = "table" if statement.is_table else "stream"
    found = server.catalog.source(statement.name)
    if found is None or found.source.is_table != statement.is_table:
        raise StatementRefused(f"There is no {what} {statement.name}")
    if found.is_derived:
        raise StatementRefused(
            f"The columns of {found.name} are those of its SELECT. Change them with CREATE OR "
            f"REPLACE {what.upper()} {found.name} AS SELECT ..."
        )
    for column in statement.columns:
        if found.source.column(column.name) is not None:
            raise StatementRefused(f"{found.name} has a column {column.name} already")
    added = tuple(replace(each, role=ColumnRole.VALUE) for each in statement.columns)
    source = replace(found.source, columns=(*found.source.columns, *added))
    # The statement has all columns now, so that the record is whole in itself.
    stored = replace(found, source=source, sql=f"{found.sql};\n{statement.text}")
    sequence = await server.change([stored])
    command = f"{what}/{found.name}/alter"
    answer = done(statement.text, command, f"{what.capitalize()} altered.", sequence)
    readers = [each.id for each in server.catalog.readers(found.name)]
    return with_warnings(
        answer,
        [f"The queries {', '.join(readers)} do not read the new columns"] if readers else [],
    )
