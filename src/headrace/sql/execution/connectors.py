"""CREATE, DROP, LIST and DESCRIBE of connectors: requests to Kafka Connect's REST interface."""

import asyncio
from collections.abc import Mapping
from typing import Any

from headrace.admin.connect_client import ConnectError
from headrace.sql.errors import SERVER_ERROR, StatementRefused
from headrace.sql.execution.entities import Entity, entity, source_info, warning
from headrace.sql.language.statements import (
    CreateConnector,
    DescribeConnector,
    DropConnector,
    ListObjects,
)
from headrace.sql.server import SqlServer

CONFLICT, NOT_FOUND_STATUS = 409, 404


async def _request(server: SqlServer, method: str, *path: str, **given: Any) -> Any:
    connect = server.options.connect
    if connect is None:
        raise StatementRefused(
            "Statements about connectors need Kafka Connect. Start the server with --connect URL "
            "(ksql.connect.url)"
        )
    return await asyncio.to_thread(connect.request, method, *path, **given)


def _refused(error: ConnectError) -> StatementRefused:
    if error.status:
        return StatementRefused(f"Kafka Connect refuses the statement: {error}")
    return StatementRefused(str(error), SERVER_ERROR)


async def create_connector(server: SqlServer, statement: CreateConnector) -> Entity:
    config = dict(statement.properties)
    body = {"name": statement.name, "config": config}
    try:
        info = await _request(server, "POST", "connectors", body=body)
    except ConnectError as error:
        if error.status == CONFLICT and statement.if_not_exists:
            return warning(statement.text, f"Connector {statement.name} already exists")
        raise _refused(error) from None
    return entity("connector_info", statement.text, info=info)


async def drop_connector(server: SqlServer, statement: DropConnector) -> Entity:
    try:
        await _request(server, "DELETE", "connectors", statement.name)
    except ConnectError as error:
        if error.status == NOT_FOUND_STATUS and statement.if_exists:
            return warning(statement.text, f"Connector '{statement.name}' does not exist.")
        raise _refused(error) from None
    return entity("drop_connector", statement.text, connectorName=statement.name)


async def list_connectors(server: SqlServer, statement: ListObjects) -> Entity:
    if statement.kind == "CONNECTOR PLUGINS":
        try:
            plugins = await _request(server, "GET", "connector-plugins")
        except ConnectError as error:
            raise _refused(error) from None
        rows = [
            {"className": each["class"], "type": each["type"], "version": each.get("version")}
            for each in plugins
        ]
        return entity("connector_plugins_list", statement.text, connectorPlugins=rows)
    try:
        query = {"expand": ["info", "status"]}
        found: Mapping[str, Any] = await _request(server, "GET", "connectors", query=query)
    except ConnectError as error:
        raise _refused(error) from None
    side = {"SOURCE CONNECTORS": "source", "SINK CONNECTORS": "sink"}.get(statement.kind)
    rows = [
        {
            "name": name,
            "type": each["info"]["type"],
            "className": each["info"]["config"].get("connector.class", ""),
            "state": _state(each["status"]),
        }
        for name, each in sorted(found.items())
        if side in (None, each["info"]["type"])
    ]
    return entity("connector_list", statement.text, connectors=rows)


def _state(status: Mapping[str, Any]) -> str:
    tasks = status["tasks"]
    running = sum(each["state"] == "RUNNING" for each in tasks)
    return f"{status['connector']['state']} ({running}/{len(tasks)} tasks RUNNING)"


async def describe_connector(server: SqlServer, statement: DescribeConnector) -> Entity:
    name = statement.name
    try:
        info = await _request(server, "GET", "connectors", name)
        status = await _request(server, "GET", "connectors", name, "status")
        topics = await _request(server, "GET", "connectors", name, "topics")
    except ConnectError as error:
        raise _refused(error) from None
    used = topics.get(name, {}).get("topics", [])
    sources = [source_info(each) for each in server.catalog.sources() if each.source.topic in used]
    return entity(
        "connector_description",
        statement.text,
        connectorClass=info["config"].get("connector.class", ""),
        status=status,
        sources=sources,
        topics=used,
    )
