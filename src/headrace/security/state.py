"""Users, ACLs, quotas and delegation tokens of the cluster, as parts of the image.

A state is immutable: a change creates a new one. A cluster without any of them has NOTHING.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from headrace.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential of a user for one mechanism."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


Credentials: TypeAlias = Mapping[str, ScramCredential]  # by mechanism
StoredCredential: TypeAlias = tuple[Literal["user", "token"], str]
"""What a client has logged in with: the name of a user, or the id of a delegation token."""
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs of entity type and name, sorted by type; None is the default of the type."""
Quotas: TypeAlias = Mapping[str, float]  # by key


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token; its HMAC is computed from the brokers' secret key and the id."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int


def _nothing() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SecurityState:
    """The security metadata of the cluster."""

    users: Mapping[str, Credentials] = field(default_factory=_nothing)
    acls: Mapping[ResourcePattern, tuple[AclEntry, ...]] = field(default_factory=_nothing)
    quotas: Mapping[QuotaEntity, Quotas] = field(default_factory=_nothing)
    tokens: Mapping[str, DelegationToken] = field(default_factory=_nothing)

    def with_user(self, name: str, credentials: Credentials) -> "SecurityState":
        """The state with these credentials of a user; without any, the user is removed."""
        return replace(self, users=_with(self.users, name, credentials))

    def with_acls(
        self, added: Iterable[AclBinding] = (), removed: Iterable[AclBinding] = ()
    ) -> "SecurityState":
        """The state with ACLs added and removed."""
        acls = dict(self.acls)
        for acl in removed:
            left = tuple(entry for entry in acls.get(acl.resource, ()) if entry != acl.entry)
            if left:
                acls[acl.resource] = left
            else:
                acls.pop(acl.resource, None)
        for acl in added:
            entries = acls.get(acl.resource, ())
            if acl.entry not in entries:
                acls[acl.resource] = (*entries, acl.entry)
        return replace(self, acls=acls)

    def with_quotas(self, entity: QuotaEntity, quotas: Quotas) -> "SecurityState":
        """The state with these quotas of an entity instead of earlier ones."""
        return replace(self, quotas=_with(self.quotas, entity, quotas))

    def with_token(self, token: DelegationToken) -> "SecurityState":
        """The state with a new or changed token."""
        return replace(self, tokens={**self.tokens, token.id: token})

    def without_token(self, token_id: str) -> "SecurityState":
        """The state without a token."""
        return replace(self, tokens={one: t for one, t in self.tokens.items() if one != token_id})

    def has(self, credential: StoredCredential) -> bool:
        """Whether the user or the token exists."""
        kind, name = credential
        return name in (self.users if kind == "user" else self.tokens)

    def find_acls(self, wanted: AclFilter) -> list[AclBinding]:
        """The ACLs that a filter matches."""
        return [
            acl
            for resource, entries in self.acls.items()
            for acl in (AclBinding(resource, entry) for entry in entries)
            if wanted.matches(acl)
        ]


NOTHING = SecurityState()


def _with(known: Mapping[Any, Any], key: object, value: Mapping[str, Any]) -> Mapping[Any, Any]:
    after = {**known, key: value}
    if not value:
        del after[key]
    return after


# ------------------------------------------------------------------------------ as JSON, in nodes


def dump_user(name: str, credentials: Credentials) -> dict[str, object]:
    """A user's node."""
    return {
        "name": name,
        "credentials": {
            mechanism: {
                "salt": _text(one.salt),
                "iterations": one.iterations,
                "stored_key": _text(one.stored_key),
                "server_key": _text(one.server_key),
            }
            for mechanism, one in credentials.items()
        },
    }


def load_user(content: Mapping[str, Any]) -> tuple[str, Credentials]:
    """A user's name and credentials."""
    return content["name"], {
        mechanism: ScramCredential(
            base64.b64decode(one["salt"]),
            one["iterations"],
            base64.b64decode(one["stored_key"]),
            base64.b64decode(one["server_key"]),
        )
        for mechanism, one in content["credentials"].items()
    }


def dump_acls(resource: ResourcePattern, entries: Iterable[AclEntry]) -> dict[str, object]:
    """The node of a resource's ACLs."""
    return {
        "resource": [resource.type.name, resource.pattern.name, resource.name],
        "entries": [
            [one.principal, one.host, one.operation.name, one.permission.name] for one in entries
        ],
    }


def load_acls(content: Mapping[str, Any]) -> tuple[ResourcePattern, tuple[AclEntry, ...]]:
    """A resource and its entries."""
    kind, pattern, name = content["resource"]
    return ResourcePattern(ResourceType[kind], PatternType[pattern], name), tuple(
        AclEntry(principal, host, AclOperation[operation], AclPermission[permission])
        for principal, host, operation, permission in content["entries"]
    )


def dump_quotas(entity: QuotaEntity, quotas: Quotas) -> dict[str, object]:
    """The node of an entity's quotas."""
    return {"entity": [list(part) for part in entity], "quotas": dict(quotas)}


def load_quotas(content: Mapping[str, Any]) -> tuple[QuotaEntity, Quotas]:
    """An entity and its quotas."""
    return tuple((kind, name) for kind, name in content["entity"]), content["quotas"]


def dump_token(token: DelegationToken) -> dict[str, object]:
    """A token's node."""
    return {
        "id": token.id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issue_ms": token.issue_ms,
        "expiry_ms": token.expiry_ms,
        "max_ms": token.max_ms,
    }


def load_token(content: Mapping[str, Any]) -> tuple[str, DelegationToken]:
    """A token by its id."""
    token = DelegationToken(**{**content, "renewers": tuple(content["renewers"])})
    return token.id, token


def entity_node(entity: QuotaEntity) -> str:
    """The name of an entity's node."""
    return json.dumps(entity, separators=(",", ":"))


def resource_node(resource: ResourcePattern) -> str:
    """The name of the node of a resource's ACLs."""
    return f"{resource.type.name}:{resource.pattern.name}:{resource.name}"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
