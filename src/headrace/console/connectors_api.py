"""Connectors of Kafka Connect: their status, settings and offsets, and changes of them."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from headrace.console.connect.connectors import Connectors, ConnectorTask, ConnectorView
from headrace.console.connect.hidden_configs import HIDDEN, hidden, restored
from headrace.console.console_request import ConsoleRequest, text_map
from headrace.service.errors import HttpError

ACTIONS = {"pause": "PUT", "resume": "PUT", "stop": "PUT", "restart": "POST"}
RESTART = {"includeTasks": "true", "onlyFailed": "false"}
"""A restart includes the tasks; without this, Connect restarts only the connector's own part."""


async def list_connectors(request: ConsoleRequest) -> object:
    """All connectors with their states."""
    views = await request.console.connectors.views()
    return {"connectors": [_row(each) for each in views]}


async def get_connector(request: ConsoleRequest) -> object:
    """One connector: status with traces, settings without secrets, topics and offsets."""
    connectors = request.console.connectors
    view = await connectors.view(request.path["name"])
    offsets, problem = await _offsets(connectors, view)
    return {
        **_row(view),
        "trace": view.connector.trace,
        "worker": view.connector.worker,
        "configs": await connectors.shown_configs(view),
        "topics": sorted({*await connectors.topics(view), *view.configured_topics}),
        "offsets": offsets,
        "offsets_problem": problem,
    }


async def list_plugins(request: ConsoleRequest) -> object:
    """The plug-ins from which connectors can be made."""
    found = await request.console.connectors.request("GET", "connector-plugins")
    rows = found if isinstance(found, list) else []
    return {
        "plugins": [
            {key: str(each.get(key) or "") for key in ("class", "type", "version")}
            for each in rows
            if each.get("type") in ("source", "sink")
        ]
    }


async def get_definitions(request: ConsoleRequest) -> object:
    """The settings of a plug-in."""
    found = await request.console.connectors.definitions(request.path["plugin"])
    return {"definitions": [_definition(each) for each in found]}


async def check_configs(request: ConsoleRequest) -> object:
    """What Connect says about settings before a connector is made of them: errors by setting."""
    connectors = request.console.connectors
    plugin, name = request.path["plugin"], request.field("name")
    passwords = await connectors.passwords(plugin)
    exists = request.fields().get("exists") is True
    stored = (await connectors.view(name)).configs if exists else {}
    configs = _given(request, name, stored, passwords)
    found = await connectors.request(
        "PUT", "connector-plugins", plugin, "config", "validate", body=configs
    )
    rows = found.get("configs", []) if isinstance(found, dict) else []
    secrets = {configs[key] for key, text in hidden(configs, passwords).items()
               if text != configs[key]}  # fmt: skip
    errors: dict[str, list[str]] = {}
    for each in rows:
        value = each.get("value") or {}
        told = [_without(str(text), secrets) for text in value.get("errors") or ()]
        if told:
            errors[str(value.get("name"))] = told
    return {"errors": errors}


async def create_connector(request: ConsoleRequest) -> object:
    """Makes a connector."""
    name = request.field("name")
    body = {"name": name, "config": _given(request, name, {}, ())}
    await request.console.connectors.request("POST", "connectors", body=body)
    return {"name": name}


async def change_configs(request: ConsoleRequest) -> object:
    """Replaces the settings of a connector; secrets that come back hidden stay as they are."""
    connectors, name = request.console.connectors, request.path["name"]
    view = await connectors.view(name)
    configs = _given(request, name, view.configs, await connectors.passwords(view.plugin))
    await connectors.request("PUT", "connectors", name, "config", body=configs)
    return {"name": name}


async def act(request: ConsoleRequest) -> object:
    """Pauses, resumes, stops or restarts a connector with its tasks."""
    name, action = request.path["name"], request.path["action"]
    if action not in ACTIONS:
        raise HttpError(404, f"The action must be one of {', '.join(ACTIONS)}")
    query = RESTART if action == "restart" else None
    await request.console.connectors.request(
        ACTIONS[action], "connectors", name, action, query=query
    )
    return {"name": name}


async def restart_task(request: ConsoleRequest) -> object:
    """Restarts one task."""
    name, task = request.path["name"], request.path["task"]
    await request.console.connectors.request("POST", "connectors", name, "tasks", task, "restart")
    return {"name": name}


async def delete_connector(request: ConsoleRequest) -> object:
    """Deletes a connector. Its topics stay."""
    name = request.path["name"]
    await request.console.connectors.request("DELETE", "connectors", name)
    return {"name": name}


async def reset_offsets(request: ConsoleRequest) -> object:
    """Deletes the offsets of a stopped connector, so that it begins again."""
    name = request.path["name"]
    found = await request.console.connectors.request("DELETE", "connectors", name, "offsets")
    return {"message": str(found.get("message", "")) if isinstance(found, dict) else ""}


def _given(
    request: ConsoleRequest, name: str, stored: Mapping[str, str], passwords: Collection[str]
) -> dict[str, str]:
    """The settings of a form, with the stored secrets that it did not change."""
    given = {**text_map("configs", request.fields().get("configs")), "name": name}
    return restored(given, stored, passwords)


async def _offsets(connectors: Connectors, view: ConnectorView) -> tuple[list[object], str]:
    """Partitions and offsets as JSON texts, whose numbers no browser rounds, or why not."""
    try:
        found = await connectors.request("GET", "connectors", view.name, "offsets")
    except HttpError as error:
        return [], error.message
    rows = found.get("offsets", []) if isinstance(found, dict) else []
    return [
        {part: json.dumps(each.get(part), ensure_ascii=False) for part in ("partition", "offset")}
        for each in rows
    ], ""


def _row(view: ConnectorView) -> dict[str, object]:
    return {
        "name": view.name,
        "type": view.type,
        "plugin": view.plugin,
        "state": view.connector.state,
        "tasks": [_task(each) for each in view.tasks],
        "problem": view.problem,
        "progress": {
            key: None if value is None else str(value) for key, value in view.progress.items()
        },
    }


def _task(task: ConnectorTask) -> dict[str, object]:
    return {"id": task.id, "state": task.state, "worker": task.worker, "trace": task.trace}


def _definition(found: Mapping[str, Any]) -> dict[str, object]:
    return {
        "name": str(found.get("name")),
        "type": str(found.get("type")),
        "required": bool(found.get("required")),
        "default": found.get("default_value"),
        "importance": str(found.get("importance")),
        "documentation": str(found.get("documentation") or ""),
        "group": str(found.get("group") or ""),
    }


def _without(text: str, secrets: set[str]) -> str:
    for each in secrets:
        text = text.replace(each, HIDDEN)
    return text
