"""The records of the schemas topic, in the format of Confluent's registry.

key    {"keytype":"SCHEMA","subject":"s","version":1,"magic":1}
value  {"subject":"s","version":1,"id":1,"schemaType":"JSON","references":[...],
        "metadata":{...},"ruleSet":{...},"schema":"...","deleted":false}; none: permanently deleted
key    {"keytype":"CONFIG","subject":"s","magic":0}            no subject: the global setting
value  {"subject":"s","compatibilityLevel":"FULL",...}; none: removed
key    {"keytype":"MODE","subject":"s","magic":0}
value  {"subject":"s","mode":"READONLY"}
key    {"keytype":"DELETE_SUBJECT","subject":"s","magic":0}
value  {"subject":"s","version":3}                             versions up to 3 are soft deleted
key    {"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}     written before an import
key    {"keytype":"NOOP","magic":0}
value  {"maxIds":{".":7}}           only Headrace; others ignore it. See `HighestIds`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = dict[str, "object"]
AVRO = "AVRO"


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema's name for a version of another subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Content:
    """The schema behind an id. Metadata and rules are JSON texts with sorted keys."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """A schema under a subject."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class PutVersion:
    version: Version


@dataclass(frozen=True, slots=True)
class DropVersion:
    """Permanent deletion."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    """Soft deletion of all versions up to this one."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class PutConfig:
    subject: str | None
    config: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class PutMode:
    subject: str | None
    mode: str | None


@dataclass(frozen=True, slots=True)
class ClearSubject:
    """Written before an import. Records before it have already dropped the versions."""

    subject: str | None


@dataclass(frozen=True, slots=True)
class HighestIds:
    """The highest id that was ever assigned, by context.

    Written with a permanent deletion: compaction removes the deleted schema, and its id must not be
    assigned to another schema, because existing data would then be read with that one.
    """

    by_context: Mapping[str, int]


Change: TypeAlias = (
    PutVersion | DropVersion | DeleteSubject | PutConfig | PutMode | ClearSubject | HighestIds
)


class BadRecord(ValueError):
    """A malformed record of the topic."""


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_INT32_MAX = 2**31 - 1
"""Ids and versions have 32 bits in encoded values and in responses."""


def encode(change: Change) -> tuple[bytes, bytes | None]:
    """Key and value of the record for a change."""
    match change:
        case PutVersion(version):
            key = _key("SCHEMA", version.subject, version.version)
            return key, compact(_version_json(version)).encode()
        case DropVersion(subject, number):
            return _key("SCHEMA", subject, number), None
        case DeleteSubject(subject, number):
            return _key("DELETE_SUBJECT", subject), _value(subject, {"version": number})
        case PutConfig(scope, config):
            value = None if config is None else _value(scope, dict(config))
            return _key("CONFIG", scope), value
        case PutMode(scope, mode):
            return _key("MODE", scope), None if mode is None else _value(scope, {"mode": mode})
        case ClearSubject(scope):
            return _key("CLEAR_SUBJECT", scope), _value(scope, {})
        case HighestIds(by_context):
            return _key("NOOP", None), compact({"maxIds": dict(by_context)}).encode()


def _key(kind: str, subject: str | None, version: int | None = None) -> bytes:
    key: Json = {"keytype": kind}
    if subject is not None:
        key["subject"] = subject
    if version is not None:
        key["version"] = version
    key["magic"] = 1 if kind == "SCHEMA" else 0
    return compact(key).encode()


def _value(subject: str | None, fields: Json) -> bytes:
    return compact(({} if subject is None else {"subject": subject}) | fields).encode()


def _version_json(version: Version) -> Json:
    return {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
        **content_json(version.content),
        "deleted": version.deleted,
    }


def content_json(content: Content) -> Json:
    """As in records and responses, without empty fields and without the type AVRO."""
    found: Json = {}
    if content.kind != AVRO:
        found["schemaType"] = content.kind
    if content.references:
        found["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in content.references
        ]
    if content.metadata is not None:
        found["metadata"] = json.loads(content.metadata)
    if content.rule_set is not None:
        found["ruleSet"] = json.loads(content.rule_set)
    found["schema"] = content.text
    return found


def decode(key: bytes | None, value: bytes | None) -> Change | None:
    """The change in a record; None if it has no effect. Raises BadRecord if it is malformed."""
    try:
        named = json.loads(key or b"")
        found = None if value is None else json.loads(value)
        return _decode(named, found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecord(f"{type(error).__name__}: {error}") from None


def _decode(key: Json, value: Json | None) -> Change | None:
    kind = key["keytype"]
    subject = key.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise BadRecord("the subject is not a string")
    if kind == "CONFIG":
        config = None if value is None else {k: v for k, v in value.items() if k != "subject"}
        return PutConfig(subject, config)
    if kind == "MODE":
        return PutMode(subject, None if value is None else str(value["mode"]))
    if kind == "CLEAR_SUBJECT":
        return ClearSubject(subject)
    if kind == "NOOP":
        highest = (value or {}).get("maxIds")
        if not isinstance(highest, dict):
            return None
        return HighestIds({str(context): _whole(top) for context, top in highest.items()})
    if subject is None:
        return None
    if kind == "SCHEMA":
        number = _whole(key["version"])
        if value is None:
            return DropVersion(subject, number)
        content = _content(value)
        deleted = bool(value.get("deleted", False))
        return PutVersion(Version(subject, number, _whole(value["id"]), content, deleted))
    if kind == "DELETE_SUBJECT" and value is not None:
        return DeleteSubject(subject, _whole(value["version"]))
    return None


def _content(value: Json) -> Content:
    references = value.get("references") or []
    if not isinstance(references, list):
        raise BadRecord("the references are not a list")
    return Content(
        kind=str(value.get("schemaType") or AVRO),
        text=str(value["schema"]),
        references=tuple(
            Reference(str(each["name"]), str(each["subject"]), _whole(each["version"]))
            for each in references
        ),
        metadata=sorted_json(value.get("metadata")),
        rule_set=sorted_json(value.get("ruleSet")),
    )


def sorted_json(value: object) -> str | None:
    """JSON with sorted keys; None for an empty value."""
    if not value:
        return None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _INT32_MAX:
        raise BadRecord("an id or a version is not an integer of 32 bits")
    return value
