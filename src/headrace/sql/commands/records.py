"""The records of the command topic. Each is whole in itself: it names an object and has all of it.

The key is the kind and the name of the object, in lower case, such as `source/orders`. A record
replaces an earlier one with its key, and a tombstone removes the object. A query has its plan and
its sources with it, so that a server starts it again without the planner, the schema registry, or
any other record.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from headrace.sql.hosting import (
    FunctionSpec,
    QuerySpec,
    function_from_json,
    spec_from_json,
    spec_to_json,
)
from headrace.sql.sources import SqlSource, source_from_json, source_to_json

VERSION = 1
SOURCE, INSERT, TYPE, FUNCTION, SERVER = "source", "insert", "type", "function", "server"
REPLAY = "replay"


class MalformedCommand(Exception):
    """A record that this version cannot read; the message says why."""


class QueryTarget(StrEnum):
    """What users want of a query."""

    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class PersistentQuery:
    """A query that runs until it is terminated."""

    spec: QuerySpec
    target: QueryTarget = QueryTarget.RUNNING


@dataclass(frozen=True, slots=True)
class StatementRecord:
    """What all records of statements have."""

    name: str
    sql: str
    """The statement as it was written, without a semicolon; variables are replaced."""
    created: int
    """Milliseconds since 1970."""
    settings: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Properties of the session that the statement depends on."""
    needs: tuple[str, ...] = field(default=(), kw_only=True)
    """Keys of records that must be there before the statement can be repeated."""


@dataclass(frozen=True, slots=True)
class StoredSource(StatementRecord):
    """A stream or table."""

    source: SqlSource
    query: PersistentQuery | None = None
    """That of CREATE AS SELECT, until it is terminated."""
    is_derived: bool = False
    """Whether it was made by CREATE AS SELECT."""


@dataclass(frozen=True, slots=True)
class StoredInsert(StatementRecord):
    """A query of INSERT INTO ... SELECT; its name is its id."""

    query: PersistentQuery


@dataclass(frozen=True, slots=True)
class StoredType(StatementRecord):
    """A type of CREATE TYPE."""

    type: str
    """Spark's DDL in lower case."""


@dataclass(frozen=True, slots=True)
class StoredFunction(StatementRecord):
    """A function of CREATE FUNCTION."""

    function: FunctionSpec


class ReplayPhase(StrEnum):
    """Which version has the name of the original, and what is under way."""

    RUNNING = "running"
    """The new version runs beside the original."""
    MERGING = "merging"
    """SWITCH in mode merge has begun, and is completed after any crash."""
    SWITCHED = "switched"
    """The new version has the name; the old one is kept, and does not run."""
    RETURNING = "returning"
    """ROLLBACK of a merge has begun, and is completed after any crash."""


@dataclass(frozen=True, slots=True)
class StoredReplay(StatementRecord):
    """A new version of a query. While it runs beside the original, its stream or table is a record
    of its own, with the name of the replay."""

    of: str
    """The stream or table whose query is replayed."""
    cut: Mapping[str, Mapping[str, int]]
    """The ends of the inputs when the replay was created, by topic and partition."""
    phase: ReplayPhase = ReplayPhase.RUNNING
    mode: str = ""
    """Of the last SWITCH: alias or merge."""
    switches: int = 0
    """How often rows were merged; part of the names of these writes."""
    topic: str = ""
    """The topic of the new version, which it has again after a ROLLBACK."""
    kept_topic: str = ""
    """After a merge: the topic with the rows of the version that is kept."""
    end: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """While rows are merged: up to where both versions read their inputs."""
    ends: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """While rows are merged: the ends of the topics of both versions before that."""
    kept: StoredSource | None = None
    """After a SWITCH: the version that had the name before."""


@dataclass(frozen=True, slots=True)
class ServerClaim:
    """The server that runs the queries. One that reads the claim of another server stops."""

    instance: str
    """A new one at each start."""
    folder: str
    """The identity of the folder with the checkpoints."""
    place: str
    """Host and path of the folder, for people."""
    started: int


Stored = StoredSource | StoredInsert | StoredType | StoredFunction | StoredReplay | ServerClaim


def key_of(kind: str, name: str) -> str:
    """The key of a record. Names are compared without regard to case."""
    return SERVER if kind == SERVER else f"{kind}/{name.casefold()}"


def key_of_record(record: Stored) -> str:
    match record:
        case StoredSource():
            return key_of(SOURCE, record.name)
        case StoredInsert():
            return key_of(INSERT, record.name)
        case StoredType():
            return key_of(TYPE, record.name)
        case StoredFunction():
            return key_of(FUNCTION, record.name)
        case StoredReplay():
            return key_of(REPLAY, record.name)
        case ServerClaim():
            return SERVER


def encode(record: Stored) -> bytes:
    """The value of a record."""
    key = key_of_record(record)
    body: dict[str, Any] = {"version": VERSION, "kind": key.partition("/")[0]}
    if isinstance(record, ServerClaim):
        return _dump({**body, **asdict(record)})
    return _dump({**body, **_body(record)})


def _body(record: StatementRecord) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": record.name,
        "sql": record.sql,
        "created": record.created,
        "settings": dict(record.settings),
        "needs": list(record.needs),
    }
    match record:
        case StoredSource(source=source, query=query, is_derived=is_derived):
            body |= {"source": source_to_json(source), "derived": is_derived}
            body["query"] = None if query is None else _query_to_json(query)
        case StoredReplay(kept=kept):
            body |= {name: getattr(record, name) for name in _REPLAY_FIELDS}
            body["kept"] = None if kept is None else _body(kept)
        case StoredInsert(query=query):
            body["query"] = _query_to_json(query)
        case StoredType(type=text):
            body["type"] = text
        case StoredFunction(function=function):
            body["function"] = asdict(function)
    return body


def decode(value: bytes) -> Stored:
    """The record with this value; MalformedCommand if it cannot be read."""
    try:
        body = json.loads(value)
        version = body["version"]
    except (ValueError, TypeError, KeyError):
        raise MalformedCommand("it is not a JSON object with a version") from None
    if version != VERSION:
        raise MalformedCommand(
            f"it has version {version}, and this server reads version {VERSION}; a newer server "
            "has written it"
        )
    try:
        return _decoded(body)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MalformedCommand(f"{type(error).__name__}: {error}") from error


def _decoded(body: Mapping[str, Any]) -> Stored:
    kind = body["kind"]
    if kind == SERVER:
        names = ServerClaim.__dataclass_fields__
        return ServerClaim(**{name: body[name] for name in names})
    common = _common(body)
    match kind:
        case "source":
            return _source(body)
        case "replay":
            fields = {name: body[name] for name in _REPLAY_FIELDS}
            fields["phase"] = ReplayPhase(fields["phase"])
            kept = None if body["kept"] is None else _source(body["kept"])
            return StoredReplay(**common, **fields, kept=kept)
        case "insert":
            return StoredInsert(**common, query=_query_from_json(body["query"]))
        case "type":
            return StoredType(**common, type=str(body["type"]))
        case "function":
            return StoredFunction(**common, function=function_from_json(body["function"]))
    raise ValueError(f"the kind {kind!r} is not known")


_REPLAY_FIELDS = ("of", "cut", "phase", "mode", "switches", "topic", "kept_topic", "end", "ends")


def _common(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": str(body["name"]),
        "sql": str(body["sql"]),
        "created": int(body["created"]),
        "settings": dict(body["settings"]),
        "needs": tuple(body["needs"]),
    }


def _source(body: Mapping[str, Any]) -> StoredSource:
    query = None if body["query"] is None else _query_from_json(body["query"])
    source = source_from_json(body["source"])
    return StoredSource(**_common(body), source=source, query=query, is_derived=body["derived"])


def _query_to_json(query: PersistentQuery) -> dict[str, Any]:
    return {"state": query.target, **spec_to_json(query.spec)}


def _query_from_json(stored: Mapping[str, Any]) -> PersistentQuery:
    return PersistentQuery(spec_from_json(stored), QueryTarget(stored["state"]))


def _dump(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
