"""Handlers of `/connectors`: create, read, change, delete, and their states."""

from collections.abc import Mapping

from headrace.connect.errors import bad_request, not_found
from headrace.connect.hosting import HostedStatus, RunState
from headrace.connect.rest.call import ConnectCall, config_of
from headrace.connect.rest.owners import is_forwarded, status_of_owner, statuses_of_others
from headrace.connect.storage.records import TargetState
from headrace.connect.storage.state import ConnectorState
from headrace.connect.worker import ConnectWorker
from headrace.service.errors import HttpError
from headrace.service.responses import HttpAnswer

INITIAL_STATES = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
BROKEN = (RunState.FAILED, RunState.RESTARTING)


async def list_connectors(call: ConnectCall) -> object:
    """The names, or with `expand` a map with their status and info."""
    connectors = call.worker.store.configs.connectors
    if "expand" not in call.query:
        return list(connectors)
    wanted = set(call.texts("expand"))
    if is_forwarded(call):
        # Another worker asks for those of this one.
        connectors = {
            name: state for name, state in connectors.items() if call.worker.ownership.owns(name)
        }
    found: dict[str, dict[str, object]] = {}
    elsewhere: Mapping[str, object] = {}
    if "status" in wanted and not is_forwarded(call):
        elsewhere = await statuses_of_others(call)
    for name, state in list(connectors.items()):
        found[name] = {}
        if "status" in wanted:
            found[name]["status"] = elsewhere.get(name) or await status_json(
                call.worker, name, state
            )
        if "info" in wanted:
            found[name]["info"] = info_json(call.worker, name, state)
    return found


def name_in_body(call: ConnectCall) -> str:
    """The name of a connector to create."""
    return str(call.fields().get("name") or "").strip()


async def create(call: ConnectCall) -> object:
    """A new connector."""
    body, name = call.fields(), name_in_body(call)
    config = _named(config_of(body.get("config")), name)
    initial = body.get("initial_state")
    if initial is not None and initial not in INITIAL_STATES:
        known = ", ".join(INITIAL_STATES)
        raise bad_request(f"initial_state must be one of {known}, not {initial!r}")
    target = None if initial is None else INITIAL_STATES[str(initial)]
    made = await call.worker.create(name, config, target)
    location = {"location": call.location(name)}
    return HttpAnswer(201, info_json(call.worker, name, made), location)


async def get(call: ConnectCall) -> object:
    """`ConnectorInfo`."""
    return info_json(call.worker, call.name, call.worker.connector(call.name))


async def get_config(call: ConnectCall) -> object:
    """The configuration."""
    return call.worker.shown(call.worker.connector(call.name).config)


async def put_config(call: ConnectCall) -> object:
    """Create or change a connector."""
    config = _named(config_of(call.json(), "The body"), call.name)
    found, is_new = await call.worker.put(call.name, config)
    body = info_json(call.worker, call.name, found)
    return HttpAnswer(201, body, {"location": call.location(call.name)}) if is_new else body


async def patch_config(call: ConnectCall) -> object:
    """Change some options."""
    changes = config_of(call.json(), "The body")
    changed = await call.worker.patch(call.name, changes)
    return info_json(call.worker, call.name, changed)


async def delete(call: ConnectCall) -> object:
    """Delete a connector."""
    await call.worker.delete(call.name)
    return HttpAnswer(204)


async def get_status(call: ConnectCall) -> object:
    """The states of the connector and its tasks."""
    found = call.worker.store.configs.connectors.get(call.name)
    if found is None:
        raise not_found(f"No status found for connector {call.name}")
    if not call.worker.ownership.owns(call.name):
        answer = await status_of_owner(call)
        if answer is not None:
            return answer
    return await status_json(call.worker, call.name, found)


async def get_tasks(call: ConnectCall) -> object:
    """The tasks with their configurations."""
    found = call.worker.connector(call.name)
    return [
        {
            "id": {"connector": call.name, "task": task},
            "config": call.worker.shown(config),
        }
        for task, config in enumerate(found.tasks)
    ]


async def get_task_status(call: ConnectCall) -> object:
    """The state of a task."""
    found = call.worker.store.configs.connectors.get(call.name)
    if found is None or call.task >= len(found.tasks):
        raise not_found(f"No status found for task {call.name}-{call.task}")
    if not call.worker.ownership.owns(call.name):
        answer = await status_of_owner(call)
        if answer is not None:
            return answer
    status = await call.worker.status(call.name)
    return _task_json(call.worker, call.name, found, call.task, status)


async def restart(call: ConnectCall) -> object:
    """Restart the query of a connector (KIP-745)."""
    worker, name = call.worker, call.name
    found = worker.store.configs.connectors.get(name)
    if found is None:
        raise not_found(f"Unknown connector: {name}")
    include_tasks, only_failed = _flag(call, "includeTasks"), _flag(call, "onlyFailed")
    if not include_tasks and not only_failed:
        await worker.runner.restart(name)
        return HttpAnswer(204)
    status = await worker.status(name)
    if only_failed and status.state not in BROKEN:
        return HttpAnswer(202, await status_json(worker, name, found))
    await worker.runner.restart(name)
    planned = HostedStatus(RunState.RESTARTING, status.trace, status.progress)
    return HttpAnswer(202, await status_json(worker, name, found, planned))


async def restart_task(call: ConnectCall) -> object:
    """Restart the query: its tasks are started and stopped together."""
    found = call.worker.store.configs.connectors.get(call.name)
    if found is None:
        raise not_found(f"Unknown connector: {call.name}")
    if call.task >= len(found.tasks):
        raise not_found(f"Unknown task: {call.name}-{call.task}")
    await call.worker.runner.restart(call.name)
    return HttpAnswer(204)


async def pause(call: ConnectCall) -> object:
    """Pause a connector."""
    await call.worker.set_target(call.name, TargetState.PAUSED)
    return HttpAnswer(202)


async def resume(call: ConnectCall) -> object:
    """Let a paused or stopped connector run."""
    await call.worker.set_target(call.name, TargetState.STARTED)
    return HttpAnswer(202)


async def stop(call: ConnectCall) -> object:
    """Stop a connector, so that its offsets can be altered."""
    await call.worker.set_target(call.name, TargetState.STOPPED)
    return HttpAnswer(204)


# ------------------------------------------------------------------------------------------- JSON


def info_json(worker: ConnectWorker, name: str, state: ConnectorState) -> Mapping[str, object]:
    """`ConnectorInfo`."""
    return {
        "name": name,
        "config": worker.shown(state.config),
        "tasks": [{"connector": name, "task": task} for task in range(len(state.tasks))],
        "type": worker.type_of(state.config),
    }


async def status_json(
    worker: ConnectWorker, name: str, state: ConnectorState, status: HostedStatus | None = None
) -> Mapping[str, object]:
    """`ConnectorStateInfo`, and our `progress`."""
    status = status or await worker.status(name)
    tasks = range(len(state.tasks)) if status.state is not RunState.STOPPED else ()
    progress = status.progress
    return {
        "name": name,
        "connector": _state_json(worker, name, state, status),
        "tasks": [_task_json(worker, name, state, task, status) for task in tasks],
        "type": worker.type_of(state.config),
        "progress": {
            "records": progress.records,
            "lag": progress.lag,
            "last_record_at": progress.last_record_at,
            "restarts": progress.restarts,
            "next_try_at": progress.next_try_at,
            "failed_records": progress.failed_records,
        },
    }


def _state_json(
    worker: ConnectWorker, name: str, state: ConnectorState, status: HostedStatus
) -> dict[str, object]:
    # Empty while no worker owns the connector, or its owner does not respond.
    worker_id = worker.options.address.worker_id if worker.ownership.owns(name) else ""
    found: dict[str, object] = {"state": status.state.value, "worker_id": worker_id}
    if version := worker.version_of(state.config):
        found["version"] = version
    if status.trace is not None:
        found["trace"] = status.trace
    return found


def _task_json(
    worker: ConnectWorker, name: str, state: ConnectorState, task: int, status: HostedStatus
) -> dict[str, object]:
    return {"id": task, **_state_json(worker, name, state, status)}


def _named(config: dict[str, str | None], name: str) -> dict[str, str | None]:
    """The configuration with the connector's name in it; 400 if it has another one."""
    included = config.get("name")
    if included is not None and included != name:
        raise bad_request(
            f"Connector name configuration ({included}) doesn't match connector name in the URL "
            f"({name})"
        )
    return {**config, "name": name}


def _flag(call: ConnectCall, name: str) -> bool:
    text = call.text(name, "false").lower()
    if text not in ("true", "false"):
        raise HttpError(400, f"The parameter {name} must be true or false")
    return text == "true"
