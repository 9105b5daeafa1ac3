"""Authorizes operations of principals by Kafka's rules.

A super user may do everything. Otherwise one matching DENY denies and one matching ALLOW allows. A
resource without any ACL is open to all if `allow.everyone.if.no.acl.found` is true. Names are found
in dictionaries, so ten thousand ACLs cost as much as ten.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from headrace.security.acls import (
    EVERYBODY,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

_ALLOWED_BY = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.ALL,
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.ALL, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}
    ),
}
"""Operations that an ALLOW of another operation includes. A DENY includes no other."""


class Authorization(NamedTuple):
    """A decision and its reason."""

    allowed: bool
    reason: str
    acl: AclBinding | None = None


class Authorizer:
    """An immutable set of ACLs; a change of ACLs creates a new authorizer."""

    def __init__(
        self,
        acls: Mapping[ResourcePattern, Collection[AclEntry]],
        super_users: Collection[str] = (),
        *,
        allow_without_acl: bool = False,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_without_acl = allow_without_acl
        self._literal: dict[tuple[ResourceType, str], Collection[AclEntry]] = {}
        self._prefixed: dict[tuple[ResourceType, str], Collection[AclEntry]] = {}
        lengths: dict[ResourceType, set[int]] = {}
        for resource, entries in acls.items():
            if resource.pattern is PatternType.PREFIXED:
                self._prefixed[resource.type, resource.name] = entries
                lengths.setdefault(resource.type, set()).add(len(resource.name))
            else:
                self._literal[resource.type, resource.name] = entries
        self._lengths = {kind: sorted(found) for kind, found in lengths.items()}

    def allows(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> bool:
        """Whether the principal may perform the operation."""
        return self.decide(principal, host, operation, kind, name).allowed

    def decide(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> Authorization:
        """Like `allows`, with the rule that decided."""
        if principal in self._super_users:
            return Authorization(True, f"{principal} is a super user")
        including = _ALLOWED_BY.get(operation, (AclOperation.ALL, operation))
        allowing: AclBinding | None = None
        any_acl = False
        for resource, entry in self._entries(kind, name):
            any_acl = True
            if not _concerns(entry, principal, host):
                continue
            if entry.permission is AclPermission.DENY:
                if entry.operation in (AclOperation.ALL, operation):
                    acl = AclBinding(resource, entry)
                    return Authorization(False, f"denied by the ACL: {acl}", acl)
            elif allowing is None and entry.operation in including:
                allowing = AclBinding(resource, entry)
        if allowing is not None:
            return Authorization(True, f"allowed by the ACL: {allowing}", allowing)
        where = f"{kind.name} {name}"
        if any_acl:
            return Authorization(False, f"no ACL of {where} allows it")
        if self._allow_without_acl:
            return Authorization(
                True, f"{where} has no ACL, and allow.everyone.if.no.acl.found is set"
            )
        return Authorization(False, f"{where} has no ACL")

    def allows_any(
        self, principal: str, host: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        """Whether the principal may perform the operation on any resource of this type."""
        if principal in self._super_users:
            return True
        # As in Kafka, which checks a dummy name: rules for all names decide first.
        if self.allows(principal, host, operation, kind, "hardcode"):
            return True
        denied: dict[PatternType, set[str]] = {kind_: set() for kind_ in PatternType}
        allowed: list[ResourcePattern] = []
        for resource, entry in self._of_type(kind):
            if entry.operation not in (AclOperation.ALL, operation):
                continue
            if not _concerns(entry, principal, host):
                continue
            everything = resource.pattern is PatternType.LITERAL and resource.name == WILDCARD
            if entry.permission is AclPermission.DENY:
                if everything:
                    return False
                denied[resource.pattern].add(resource.name)
            else:
                allowed.append(resource)
        return any(_is_open(resource, denied) for resource in allowed)

    def operations(
        self,
        principal: str,
        host: str,
        kind: ResourceType,
        name: str,
        asked: Iterable[AclOperation],
    ) -> int:
        """The allowed operations as a bit field, as in responses."""
        return sum(
            1 << operation for operation in asked
            if self.allows(principal, host, operation, kind, name)
        )  # fmt: skip

    def _entries(self, kind: ResourceType, name: str) -> Iterator[tuple[ResourcePattern, AclEntry]]:
        """All entries whose resource matches the name."""
        names = (name, WILDCARD) if name != WILDCARD else (name,)
        for literal in names:
            found = self._literal.get((kind, literal))
            if found is not None:
                resource = ResourcePattern(kind, PatternType.LITERAL, literal)
                yield from ((resource, entry) for entry in found)
        for length in self._lengths.get(kind, ()):
            if length > len(name):
                return
            found = self._prefixed.get((kind, name[:length]))
            if found is not None:
                resource = ResourcePattern(kind, PatternType.PREFIXED, name[:length])
                yield from ((resource, entry) for entry in found)

    def _of_type(self, kind: ResourceType) -> Iterator[tuple[ResourcePattern, AclEntry]]:
        for pattern, known in (
            (PatternType.LITERAL, self._literal),
            (PatternType.PREFIXED, self._prefixed),
        ):
            for (type_, name), entries in known.items():
                if type_ is kind:
                    resource = ResourcePattern(type_, pattern, name)
                    yield from ((resource, entry) for entry in entries)


def _concerns(entry: AclEntry, principal: str, host: str) -> bool:
    return entry.principal in (principal, EVERYBODY) and entry.host in (host, WILDCARD)


def _is_open(resource: ResourcePattern, denied: Mapping[PatternType, Collection[str]]) -> bool:
    """Whether no rule denies all resources that this pattern allows."""
    if resource.pattern is PatternType.LITERAL and resource.name == WILDCARD:
        return True
    if resource.pattern is PatternType.LITERAL and resource.name in denied[PatternType.LITERAL]:
        return False
    prefixes = denied[PatternType.PREFIXED]
    return not any(resource.name[:end] in prefixes for end in range(1, len(resource.name) + 1))
