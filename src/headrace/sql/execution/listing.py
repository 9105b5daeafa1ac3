"""LIST and SHOW."""

import asyncio

from headrace.client.cluster import Cluster
from headrace.client.topics import TopicDescription, describe_topics
from headrace.sql.execution.connectors import list_connectors
from headrace.sql.execution.describing import query_description, source_description
from headrace.sql.execution.entities import (
    Entity,
    entity,
    failed_records,
    running_query,
    source_info,
    with_warnings,
)
from headrace.sql.execution.functions import list_functions
from headrace.sql.execution.replays.describing import replay_list
from headrace.sql.execution.session import PROPERTIES, STREAMS_PREFIX, Session
from headrace.sql.language.statements import ListObjects
from headrace.sql.server import SqlServer
from headrace.sql.type_names import type_schema

INTERNAL_PREFIXES = ("_", "connect-")


async def list_objects(server: SqlServer, statement: ListObjects, session: Session) -> Entity:
    text = statement.text
    match statement.kind:
        case "STREAMS" | "TABLES":
            return await _sources(server, statement)
        case "TOPICS" | "ALL TOPICS":
            return await _topics(server, statement)
        case "QUERIES":
            return await _queries(server, statement)
        case "PROPERTIES":
            return properties(server, text, session)
        case "FUNCTIONS":
            return list_functions(server, text)
        case "TYPES":
            types = {each.name: type_schema(each.type) for each in server.catalog.types()}
            return entity("type_list", text, types=types)
        case "REPLAYS":
            return replay_list(server, text)
        case "VARIABLES":
            rows = [{"name": name, "value": value} for name, value in session.variables.items()]
            return entity("variables", text, variables=rows)
    return await list_connectors(server, statement)


async def _sources(server: SqlServer, statement: ListObjects) -> Entity:
    tables = statement.kind == "TABLES"
    found = [each for each in server.catalog.sources() if each.source.is_table == tables]
    if statement.extended:
        rows = [await source_description(server, each, extended=True) for each in found]
        answer = entity("source_descriptions", statement.text, sourceDescriptions=rows)
    else:
        kind = "tables" if tables else "streams"
        answer = entity(kind, statement.text, **{kind: [source_info(each) for each in found]})
    return with_warnings(answer, failed_records(server.catalog.failed.values()))


async def _queries(server: SqlServer, statement: ListObjects) -> Entity:
    found = list(server.catalog.queries())
    statuses = await asyncio.gather(*(server.runner.status(each) for each in found))
    both = list(zip(found, statuses, strict=True))
    if statement.extended:
        rows = [await query_description(server, query, status) for query, status in both]
        answer = entity("query_descriptions", statement.text, queryDescriptions=rows)
    else:
        rows = [running_query(query, status) for query, status in both]
        answer = entity("queries", statement.text, queries=rows)
    return with_warnings(answer, failed_records(server.catalog.failed.values()))


async def _topics(server: SqlServer, statement: ListObjects) -> Entity:
    def ask(cluster: Cluster) -> dict[str, TopicDescription]:
        return describe_topics(cluster)

    shows_all = statement.kind == "ALL TOPICS"
    topics = await server.cluster.ask("Listing topics", ask)
    rows: list[Entity] = [
        {"name": name, "replicaInfo": [len(each.replicas) for each in found.partitions.values()]}
        for name, found in sorted(topics.items())
        if shows_all or not (found.internal or name.startswith(INTERNAL_PREFIXES))
    ]
    if not statement.extended:
        return entity("kafka_topics", statement.text, topics=rows)
    for row in rows:
        readers = [
            each.id
            for each in server.catalog.queries()
            if any(source.topic == row["name"] for source in each.query.spec.sources)
        ]
        row |= {"consumerCount": len(readers), "consumerGroupCount": len(readers)}
    return entity("kafka_topics_extended", statement.text, topics=rows)


def properties(server: SqlServer, text: str, session: Session) -> Entity:
    """The settings of the server, and what SET can change."""
    rows = [
        {"name": name, "scope": "KSQL", "value": value, "editable": False, "level": "SERVER"}
        for name, value in sorted(server.options.shown.items())
    ]
    for name, found in sorted(PROPERTIES.items()):
        full = name if name.startswith(("ksql.", "headrace.")) else STREAMS_PREFIX + name
        rows.append(
            {
                "name": full,
                "scope": "KSQL",
                "value": session.properties.get(name, found.default),
                "editable": True,
                "level": "QUERY",
            }
        )
    return entity(
        "properties",
        text,
        properties=rows,
        overwrittenProperties=sorted(session.properties),
        defaultProperties=sorted(set(PROPERTIES) - set(session.properties)),
    )
