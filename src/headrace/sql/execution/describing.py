"""DESCRIBE and EXPLAIN: what is stored, and what is true at the moment of asking."""

import asyncio
import json
from collections.abc import Mapping

from headrace.sql.catalog import CatalogQuery
from headrace.sql.commands.records import StoredSource
from headrace.sql.errors import StatementRefused
from headrace.sql.execution.entities import (
    Entity,
    entity,
    field,
    group_of,
    ksql_state,
    result_field,
    running_query,
    state_name,
    status_fields,
    window_type,
)
from headrace.sql.execution.persistent import analyse
from headrace.sql.execution.topics import find_topics, lags
from headrace.sql.hosting import HostUnavailable, QueryRefused, QueryStatus
from headrace.sql.language.errors import did_you_mean
from headrace.sql.language.statements import (
    CreateAs,
    DescribeSource,
    ExplainQuery,
    InsertSelect,
    SelectStatement,
)
from headrace.sql.plans import QueryPlan, plan_to_json
from headrace.sql.server import SqlServer
from headrace.sql.views.spark_sql.typed import NotAnswerable

_NOT_RUNNING: Mapping[str, object] = {
    "sinks": [],
    "overriddenProperties": {},
    "ksqlHostQueryStatus": {},
    "queryErrors": [],
    "consumerGroupId": "",
    "state": "",
}


async def describe_source(server: SqlServer, statement: DescribeSource) -> Entity:
    found = server.catalog.source(statement.name)
    if found is None:
        known = [each.name for each in server.catalog.sources()]
        raise StatementRefused(
            f"There is no stream or table {statement.name}.{did_you_mean(statement.name, known)}"
        )
    described = await source_description(server, found, extended=statement.extended)
    return entity("sourceDescription", statement.text, sourceDescription=described)


async def source_description(
    server: SqlServer, stored: StoredSource, *, extended: bool
) -> Mapping[str, object]:
    source = stored.source
    readers = server.catalog.readers(stored.name)
    writers = server.catalog.writers(stored.name)
    statuses = await asyncio.gather(*map(server.runner.status, (*readers, *writers)))
    rows = [
        running_query(query, status)
        for query, status in zip((*readers, *writers), statuses, strict=True)
    ]
    partitions = replicas = 0
    summaries: list[Mapping[str, object]] = []
    if extended:
        topic = (await find_topics(server.cluster, [source.topic])).get(source.topic)
        if topic is not None:
            partitions = len(topic.partitions)
            replicas = max(len(each.replicas) for each in topic.partitions.values())
        summaries = [await offset_summary(server, each) for each in writers]
    return {
        "name": stored.name,
        "windowType": window_type(source),
        "readQueries": rows[: len(readers)],
        "writeQueries": rows[len(readers) :],
        "fields": [field(each) for each in source.columns],
        "type": "TABLE" if source.is_table else "STREAM",
        "timestamp": source.timestamp or "",
        "statistics": _statistics(writers, statuses[len(readers) :]) if extended else "",
        "errorStats": "",
        "extended": extended,
        "keyFormat": source.key_format.value,
        "valueFormat": source.value_format.value,
        "topic": source.topic,
        "partitions": partitions,
        "replication": replicas,
        "statement": f"{stored.sql};" if extended else "",
        "queryOffsetSummaries": summaries,
        "sourceConstraints": [],
        "clusterStatistics": [],
        "clusterErrorStats": [],
        "headrace": {"view": _view(server, stored)},
    }


def _view(server: SqlServer, stored: StoredSource) -> Mapping[str, object] | None:
    """How far the view of a table is, if there is one."""
    found = server.views.get(stored.source)
    if found is None:
        return None
    status = found.status()
    return {"lag": status.lag, "badRecords": status.bad_records, "error": status.problem}


def _statistics(queries: list[CatalogQuery], statuses: list[QueryStatus]) -> str:
    """One line for each query that writes, as ksqlDB shows statistics: as text."""
    lines = []
    for query, status in zip(queries, statuses, strict=True):
        parts = [
            f"{query.id}: {state_name(query, status)}",
            f"rows {status.rows}",
            f"rows/s {status.rate:.1f}",
            f"lag {'unknown' if status.lag is None else status.lag}",
            f"late rows {status.late_rows}",
            f"bad records {status.bad_records}",
            f"restarts {status.restarts}",
        ]
        if status.error:
            parts.append(f"last error: {status.error}")
        lines.append("  ".join(parts))
    return "\n".join(lines)


async def offset_summary(server: SqlServer, query: CatalogQuery) -> Mapping[str, object]:
    """How far the group of a query is in each partition that it reads."""
    group = group_of(query.id)
    topics = sorted({each.topic for each in query.query.spec.sources})
    found = await lags(server.cluster, group, topics)
    return {
        "groupId": group,
        "topicSummaries": [
            {
                "kafkaTopic": topic,
                "offsets": [
                    {
                        "partition": each.partition.partition,
                        "logStartOffset": each.start,
                        "logEndOffset": each.end,
                        "consumerOffset": -1 if each.committed is None else each.committed,
                    }
                    for each in found
                    if each.partition.topic == topic
                ],
            }
            for topic in topics
        ],
    }


# ----------------------------------------------------------------------------------------- EXPLAIN


async def explain(server: SqlServer, statement: ExplainQuery) -> Entity:
    if statement.statement is not None:
        described = await _explained(server, statement.statement)
    else:
        assert statement.query is not None, "EXPLAIN has a query or a statement"
        found = server.catalog.query(statement.query)
        if found is None:
            raise StatementRefused(
                f"There is no query {statement.query}. LIST QUERIES shows the queries"
            )
        status = await server.runner.status(found)
        described = await query_description(server, found, status)
    return entity("queryDescription", statement.text, queryDescription=described)


async def _explained(
    server: SqlServer, statement: CreateAs | InsertSelect | SelectStatement
) -> Mapping[str, object]:
    if isinstance(statement, SelectStatement) and statement.select.emit is None:
        return _explained_pull(server, statement)
    into = statement.is_table if isinstance(statement, CreateAs) else None
    into = False if isinstance(statement, InsertSelect) else into
    found = await analyse(server, statement.select, into_table=into)
    columns, keys = found.analysis.columns, found.plan.keys
    return {
        **_description("", statement.text, found.plan, found.analysis.plan),
        **_NOT_RUNNING,
        "fields": [result_field(each, keys) for each in columns],
        "sources": [each.name for each in found.sources],
    }


def _explained_pull(server: SqlServer, statement: SelectStatement) -> Mapping[str, object]:
    """Who answers: the views, or Spark over all records of the topics."""
    definition = server.catalog.definition
    try:
        text = server.pulls.explain(statement.select, definition)
    except NotAnswerable as error:
        text = f"Answered by Spark over all records of the topics, because {error}"
    return {
        **_NOT_RUNNING,
        "id": "",
        "statementText": statement.text,
        "windowType": None,
        "topology": text,
        "executionPlan": text,
        "queryType": "PULL",
        "tasksMetadata": [],
        "fields": [],
        "sources": [],
    }


async def query_description(
    server: SqlServer, query: CatalogQuery, status: QueryStatus
) -> Mapping[str, object]:
    spec = query.query.spec
    try:
        text = (await server.host.analyse(spec.plan, spec.sources, spec.functions)).plan
    except (QueryRefused, HostUnavailable) as error:
        text = f"Spark's plan is not available: {error}"
    errors = []
    if status.error:
        errors = [{"timestamp": status.epoch_at or 0, "errorMessage": status.error, "type": "USER"}]
    return {
        **_description(query.id, f"{query.statement.sql};", spec.plan, text),
        "fields": [field(each) for each in spec.target.columns],
        "sources": [each.name for each in spec.sources],
        "sinks": [spec.target.name],
        "overriddenProperties": dict(query.statement.settings),
        "ksqlHostQueryStatus": {server.address: ksql_state(query, status)},
        "queryErrors": errors,
        "consumerGroupId": group_of(query.id),
        "state": state_name(query, status),
        "headrace": status_fields(query, status),
    }


def _description(query: str, text: str, plan: QueryPlan, topology: str) -> dict[str, object]:
    return {
        "id": query,
        "statementText": text,
        "windowType": None if plan.window is None else plan.window.kind,
        "topology": topology,
        "executionPlan": json.dumps(plan_to_json(plan), indent=2),
        "queryType": "PERSISTENT" if query else "PUSH",
        "tasksMetadata": [],
    }
