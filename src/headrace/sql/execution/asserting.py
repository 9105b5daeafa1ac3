"""ASSERT TOPIC and ASSERT SCHEMA: wait until something is there, or is gone."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from headrace.client.cluster import Cluster
from headrace.client.configs import describe_topic_configs
from headrace.client.errors import ClientError
from headrace.schemas.client import NOT_FOUND_STATUS, RequestRefused, SchemaClient
from headrace.sql.errors import ASSERTION_FAILED, StatementRefused
from headrace.sql.execution.entities import Entity, entity
from headrace.sql.execution.registry_columns import need_registry
from headrace.sql.execution.topics import find_topics
from headrace.sql.language.statements import AssertSchema, AssertTopic
from headrace.sql.server import SqlServer

DEFAULT_TIMEOUT_MS = 1000
PAUSE_S = 0.2


async def assert_topic(server: SqlServer, statement: AssertTopic) -> Entity:
    async def problem() -> str | None:
        return await _topic_problem(server, statement)

    await _wait(problem, statement.timeout_ms)
    return entity(
        "assert_topic", statement.text, topicName=statement.topic, exists=statement.exists
    )


async def _topic_problem(server: SqlServer, statement: AssertTopic) -> str | None:
    name = statement.topic
    found = (await find_topics(server.cluster, [name])).get(name)
    if not statement.exists:
        return None if found is None else f"Topic {name} exists"
    if found is None:
        return f"Topic {name} does not exist"
    replicas = max(len(each.replicas) for each in found.partitions.values())
    actual = {"partitions": str(len(found.partitions)), "replicas": str(replicas)}
    if set(statement.properties) - set(actual):

        def ask(cluster: Cluster) -> dict[str, str]:
            rows = describe_topic_configs(cluster, [name])[name]
            return {each.name: each.value or "" for each in rows}

        actual |= await server.cluster.ask(f"Describing topic {name}", ask)
    for setting, wanted in statement.properties.items():
        given = actual.get(setting, actual.get(setting.replace("_", ".")))
        if given != wanted:
            return f"Topic {name} has {setting} {given or 'not set'}, and not {wanted}"
    return None


async def assert_schema(server: SqlServer, statement: AssertSchema) -> Entity:
    registry = need_registry(server.options.registry)

    async def problem() -> str | None:
        try:
            exists = await asyncio.to_thread(_has_schema, registry, statement)
        except ClientError as error:
            return f"The schema registry cannot be asked: {error}"
        what = f"Schema with {_named(statement)}"
        if exists == statement.exists:
            return None
        return f"{what} exists" if exists else f"{what} does not exist"

    await _wait(problem, statement.timeout_ms)
    return entity(
        "assert_schema",
        statement.text,
        subject=statement.subject,
        id=statement.id,
        exists=statement.exists,
    )


def _named(statement: AssertSchema) -> str:
    parts = []
    if statement.subject is not None:
        parts.append(f"subject {statement.subject}")
    if statement.id is not None:
        parts.append(f"id {statement.id}")
    return " and ".join(parts)


def _has_schema(registry: SchemaClient, statement: AssertSchema) -> bool:
    try:
        if statement.subject is None:
            registry.get("schemas", "ids", str(statement.id))
            return True
        versions = registry.get("subjects", statement.subject, "versions")
        if statement.id is None:
            return True
        assert isinstance(versions, list), "the registry answers with a list"
        found = (
            registry.get("subjects", statement.subject, "versions", str(each)) for each in versions
        )
        return any(isinstance(each, dict) and each.get("id") == statement.id for each in found)
    except RequestRefused as error:
        if error.status == NOT_FOUND_STATUS:
            return False
        raise


async def _wait(problem: Callable[[], Awaitable[str | None]], timeout_ms: int | None) -> None:
    """Returns when there is no problem; StatementRefused if there still is one at the end."""
    limit_s = (DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms) / 1000
    deadline = time.monotonic() + limit_s
    while True:
        found = await problem()
        if found is None:
            return
        if time.monotonic() + PAUSE_S > deadline:
            raise StatementRefused(f"{found}, after {limit_s:g} s", ASSERTION_FAILED)
        await asyncio.sleep(PAUSE_S)
