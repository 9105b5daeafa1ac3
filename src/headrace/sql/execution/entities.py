"""The objects of responses to statements, with ksqlDB's fields.

Fields that ksqlDB does not have are in objects named `headrace`; its clients skip what they do not
know.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headrace.sql.catalog import CatalogQuery, FailedRecord
from headrace.sql.commands.records import QueryTarget, StoredSource
from headrace.sql.hosting import HostedState, QueryStatus, ResultColumn
from headrace.sql.sources import ColumnRole, SqlColumn, SqlSource
from headrace.sql.type_names import quoted, type_schema, type_text

Entity = dict[str, Any]

_KSQL_STATES = {
    HostedState.RUNNING: "RUNNING",
    HostedState.STARTING: "UNRESPONSIVE",
    HostedState.UNKNOWN: "UNRESPONSIVE",
    HostedState.RESTARTING: "ERROR",
    HostedState.FAILED: "ERROR",
}
"""ksqlDB has no other states than these and PAUSED."""


def entity(kind: str, text: str, **fields: object) -> Entity:
    """One object of a response."""
    return {"@type": kind, "statementText": _statement(text), **fields, "warnings": []}


def _statement(text: str) -> str:
    return text if text.endswith(";") else f"{text};"


def with_warnings(found: Entity, messages: Iterable[str]) -> Entity:
    return {**found, "warnings": [{"message": each} for each in messages]}


def done(text: str, command: str, message: str, sequence: int, query: str | None = None) -> Entity:
    """The result of a statement that changed something."""
    status = {"status": "SUCCESS", "message": message, "queryId": query}
    return entity(
        "currentStatus",
        text,
        commandId=command,
        commandStatus=status,
        commandSequenceNumber=sequence,
    )


def warning(text: str, message: str) -> Entity:
    """The result of a statement that had nothing to do."""
    return entity("warning_entity", text, message=message)


def failed_records(failed: Iterable[FailedRecord]) -> list[str]:
    """Warnings about statements that cannot be read."""
    return [
        f"The statement {each.key} at offset {each.offset} of the command topic cannot be read: "
        f"{each.reason}. DROP removes it"
        for each in failed
    ]


# ---------------------------------------------------------------------------- streams and tables


def source_info(stored: StoredSource) -> Entity:
    source = stored.source
    return {
        "type": "TABLE" if source.is_table else "STREAM",
        "name": stored.name,
        "topic": source.topic,
        "keyFormat": source.key_format.value,
        "valueFormat": source.value_format.value,
        "isWindowed": source.window is not None,
    }


def field(column: SqlColumn) -> Entity:
    found: Entity = {"name": column.name, "schema": type_schema(column.type)}
    if column.role is not ColumnRole.VALUE:
        found["type"] = column.role.value
    if column.header is not None:
        found["headerKey"] = column.header
    return found


def result_field(column: ResultColumn, keys: Sequence[str]) -> Entity:
    found: Entity = {"name": column.name, "schema": type_schema(column.type)}
    if column.name in keys:
        found["type"] = "KEY"
    return found


def schema_text(columns: Iterable[ResultColumn], keys: Sequence[str] = ()) -> str:
    """The columns of a result, as the header of `/query` has them."""
    return ", ".join(
        f"{quoted(each.name)} {type_text(each.type)}{' KEY' if each.name in keys else ''}"
        for each in columns
    )


def window_type(source: SqlSource) -> str | None:
    return None if source.window is None else source.window.kind


# ---------------------------------------------------------------------------------------- queries


def state_name(query: CatalogQuery, status: QueryStatus) -> str:
    """The state of a query, for people."""
    if query.query.target is QueryTarget.PAUSED and status.state is HostedState.UNKNOWN:
        return "PAUSED"
    return status.state.value.upper()


def ksql_state(query: CatalogQuery, status: QueryStatus) -> str:
    """The state of a query, as one of ksqlDB's."""
    name = state_name(query, status)
    return name if name == "PAUSED" else _KSQL_STATES[status.state]


def running_query(query: CatalogQuery, status: QueryStatus) -> Entity:
    return {
        "queryString": _statement(query.statement.sql),
        "sinks": [query.target.name],
        "sinkKafkaTopics": [query.target.topic],
        "id": query.id,
        "statusCount": {ksql_state(query, status): 1},
        "queryType": "PERSISTENT",
        "state": state_name(query, status),
        "headrace": status_fields(query, status),
    }


def status_fields(query: CatalogQuery, status: QueryStatus) -> Mapping[str, object]:
    """What the host knows of a query. Times are milliseconds since 1970."""
    fields = asdict(status)
    del fields["state"]
    camel = {_camel(name): value for name, value in fields.items()}
    return {"generation": query.query.spec.generation, "group": group_of(query.id), **camel}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def group_of(query_id: str) -> str:
    """The consumer group that shows the lag of a query."""
    return f"sql-{query_id}"
