"""The records of the internal topics: keys and values, encoded and decoded.

The format is that of Kafka Connect with `JsonConverter` and `schemas.enable=false`, so that each
can read the topics of the other. One key is our own, `headrace-generation-N`; Kafka Connect skips
keys that it does not know.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias, TypeVar

from headrace.service.internal_topics import KeyValue

T = TypeVar("T")

Config: TypeAlias = Mapping[str, str]
OffsetEntry: TypeAlias = tuple[Mapping[str, object], Mapping[str, object] | None]
"""A partition and its offset; None: it has none."""

CONNECTOR, TASK, COMMIT, TARGET = "connector-", "task-", "commit-", "target-state-"
LOGGER, GENERATION = "logger-cluster-", "headrace-generation-"
CONNECTOR_STATUS, TASK_STATUS, TOPIC_STATUS = "status-connector-", "status-task-", "status-topic-"
_TOPIC_SEPARATOR = ":connector-"


class MalformedRecord(Exception):
    """A record that is not in the format; the message says why."""


class TargetState(Enum):
    """What a user wants of a connector."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class ConnectorChange:
    """The configuration of a connector; None: it is deleted."""

    name: str
    config: Config | None


@dataclass(frozen=True, slots=True)
class TaskChange:
    """The configuration of a task. It counts with the next `CommitChange`."""

    name: str
    task: int
    config: Config | None


@dataclass(frozen=True, slots=True)
class CommitChange:
    """The number of tasks of a connector."""

    name: str
    tasks: int


@dataclass(frozen=True, slots=True)
class TargetChange:
    """The target state of a connector; None: the default."""

    name: str
    state: TargetState | None


@dataclass(frozen=True, slots=True)
class LoggerChange:
    """The level of a logger, on all workers."""

    logger: str
    level: str


@dataclass(frozen=True, slots=True)
class GenerationChange:
    """The checkpoint of a connector.

    `basis` has the options that it depends on, and `folder` the id of the folder that it is in.
    """

    name: str
    generation: int
    basis: Config
    folder: str = ""


ConfigChange: TypeAlias = (
    ConnectorChange | TaskChange | CommitChange | TargetChange | LoggerChange | GenerationChange
)


@dataclass(frozen=True, slots=True)
class TopicUse:
    """A topic that a connector uses, in the status topic; task -1: it is forgotten."""

    topic: str
    connector: str
    task: int = 0
    discovered_ms: int = 0


@dataclass(frozen=True, slots=True)
class StatusRecord:
    """The state of a connector or of a task, in the status topic."""

    state: str
    worker_id: str
    trace: str | None = None
    generation: int = 0


@dataclass(frozen=True, slots=True)
class SourceOffsetChange:
    """The offset of a partition of a source; None: it is forgotten."""

    connector: str
    partition: Mapping[str, object]
    offset: Mapping[str, object] | None = None
    key: bytes | None = field(default=None, compare=False)
    """The key as it was read. Java writes the fields of a partition in an order of its own, and
    only the same bytes replace a record."""

    @property
    def identity(self) -> str:
        return encode_json(dict(self.partition), ordered=True)


# --------------------------------------------------------------------------------------- encoding


def encode_json(value: object, *, ordered: bool = False) -> str:
    """Compact; `ordered`: equal values are equal texts."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=ordered)


def _record(key: str, value: object) -> KeyValue:
    return KeyValue(key.encode(), None if value is None else encode_json(value).encode())


def encode_config(change: ConfigChange) -> KeyValue:
    """The record of a change in the config topic."""
    match change:
        case ConnectorChange(name, config):
            return _record(CONNECTOR + name, _with_properties(config))
        case TaskChange(name, task, config):
            return _record(f"{TASK}{name}-{task}", _with_properties(config))
        case CommitChange(name, tasks):
            return _record(COMMIT + name, {"tasks": tasks})
        case TargetChange(name, state):
            return _record(TARGET + name, None if state is None else _target_fields(state))
        case LoggerChange(logger, level):
            return _record(LOGGER + logger, {"level": level})
        case GenerationChange(name, generation, basis, folder):
            fields = {"generation": generation, "basis": dict(basis), "folder": folder}
            return _record(GENERATION + name, fields)


def _with_properties(config: Config | None) -> object:
    return None if config is None else {"properties": dict(config)}


def _target_fields(state: TargetState) -> object:
    # Workers before Kafka 3.5 do not know STOPPED.
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return {"state": old.value, "state.v2": state.value}


def encode_status(name: str, task: int | None, status: StatusRecord | None) -> KeyValue:
    """The record of a connector's or a task's state; None: it is gone."""
    key = f"{CONNECTOR_STATUS}{name}" if task is None else f"{TASK_STATUS}{name}-{task}"
    if status is None:
        return _record(key, None)
    value = {
        "state": status.state,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
    }
    return _record(key, value)


def encode_topic_use(use: TopicUse) -> KeyValue:
    """The record of a topic that a connector uses."""
    key = f"{TOPIC_STATUS}{use.topic}{_TOPIC_SEPARATOR}{use.connector}"
    if use.task < 0:
        return _record(key, None)
    value = {
        "name": use.topic,
        "connector": use.connector,
        "task": use.task,
        "discoverTimestamp": use.discovered_ms,
    }
    return _record(key, {"topic": value})


def encode_offset(change: SourceOffsetChange) -> KeyValue:
    """The record of an offset of a source."""
    key = change.key or encode_json([change.connector, dict(change.partition)]).encode()
    value = None if change.offset is None else encode_json(dict(change.offset)).encode()
    return KeyValue(key, value)


# --------------------------------------------------------------------------------------- decoding


def decode_config(key: bytes | None, value: bytes | None) -> ConfigChange | None:
    """The change that a record of the config topic makes; None if it is none of ours."""
    text = _text(key)
    for prefix, decode in _DECODERS.items():
        if text.startswith(prefix):
            return decode(text.removeprefix(prefix), _json(value))
    return None


def _connector(name: str, value: object) -> ConfigChange:
    return ConnectorChange(name, None if value is None else _properties(value))


def _task(name: str, value: object) -> ConfigChange:
    connector, _, task = name.rpartition("-")
    if not connector or not task.isdecimal():
        raise MalformedRecord(f"the key task-{name} has no number of a task")
    config = None if value is None else _properties(value)
    return TaskChange(connector, int(task), config)


def _commit(name: str, value: object) -> ConfigChange:
    tasks = 0 if value is None else _field(value, "tasks", int)
    return CommitChange(name, tasks)


def _target(name: str, value: object) -> ConfigChange:
    if value is None:
        return TargetChange(name, None)
    fields = _fields(value)
    text = fields.get("state.v2") or fields.get("state")
    try:
        return TargetChange(name, TargetState(text))
    except ValueError:
        raise MalformedRecord(f"the target state of {name} is {text!r}") from None


def _logger(name: str, value: object) -> ConfigChange | None:
    return None if value is None else LoggerChange(name, _field(value, "level", str))


def _generation(name: str, value: object) -> ConfigChange | None:
    if value is None:
        return None
    fields = _fields(value)
    basis = {str(each): str(text) for each, text in _fields(fields.get("basis")).items()}
    folder = str(fields.get("folder") or "")
    return GenerationChange(name, _field(value, "generation", int), basis, folder)


_DECODERS = {
    CONNECTOR: _connector,
    TASK: _task,
    COMMIT: _commit,
    TARGET: _target,
    LOGGER: _logger,
    GENERATION: _generation,
}


def decode_topic_use(key: bytes | None, value: bytes | None) -> TopicUse | None:
    """The topic of a record of the status topic; None if the record is another one."""
    text = _text(key)
    if not text.startswith(TOPIC_STATUS):
        return None
    topic, _, connector = text.removeprefix(TOPIC_STATUS).partition(_TOPIC_SEPARATOR)
    if value is None:
        return TopicUse(topic, connector, -1)
    fields = _fields(_fields(_json(value)).get("topic"))
    task, at = fields.get("task"), fields.get("discoverTimestamp")
    return TopicUse(
        topic, connector, task if isinstance(task, int) else 0, at if isinstance(at, int) else 0
    )


def decode_offset(key: bytes | None, value: bytes | None) -> SourceOffsetChange:
    """The offset of a record of the offsets topic."""
    found = _json(key)
    match found:
        case [str(connector), dict(partition)]:
            at = _json(value)
            return SourceOffsetChange(
                connector, partition, None if at is None else _fields(at), key
            )
    raise MalformedRecord("the key of an offset must be a connector's name and a partition")


def _text(key: bytes | None) -> str:
    try:
        return (key or b"").decode()
    except UnicodeDecodeError:
        raise MalformedRecord("the key is not UTF-8") from None


def _json(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        found: object = json.loads(value)
    except ValueError:
        raise MalformedRecord("the value is not JSON") from None
    return found


def _fields(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise MalformedRecord(f"expected an object, not {type(value).__name__}")
    return value


def _field(value: object, name: str, kind: type[T]) -> T:
    found = _fields(value).get(name)
    if not isinstance(found, kind):
        raise MalformedRecord(f"the field {name} is {found!r}")
    return found


def _properties(value: object) -> dict[str, str]:
    found = _fields(_fields(value).get("properties"))
    return {name: text for name, text in found.items() if isinstance(text, str)}
