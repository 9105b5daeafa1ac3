"""ACLs and filters from the options of `headrace acls`.

The options are those of Kafka's kafka-acls.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from headrace.cli.failures import bad_usage
from headrace.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

_Word = TypeVar("_Word", bound=IntEnum)

PRODUCER = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
CONSUMER = (AclOperation.READ, AclOperation.DESCRIBE)


@dataclass(frozen=True, slots=True)
class Roles:
    """--producer, --consumer and --idempotent: sets of ACLs for the usual clients."""

    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    def __bool__(self) -> bool:
        return self.producer or self.consumer or self.idempotent


@dataclass(frozen=True, slots=True)
class AclOptions:
    """The options that name resources, principals, hosts and operations."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    cluster: bool = False
    transactional_ids: Sequence[str] = ()
    delegation_tokens: Sequence[str] = ()
    user_principals: Sequence[str] = ()
    pattern: str = "literal"
    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    denied_hosts: Sequence[str] = ()
    operations: Sequence[str] = ()
    roles: Roles = Roles()

    def resources(self) -> list[tuple[ResourceType, str]]:
        """The resources in the options."""
        named = (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.CLUSTER, (CLUSTER_NAME,) if self.cluster else ()),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
            (ResourceType.DELEGATION_TOKEN, self.delegation_tokens),
            (ResourceType.USER, [principal_name(one) for one in self.user_principals]),
        )
        return [(kind, name) for kind, names in named for name in names]


def principal_name(text: str) -> str:
    """A principal; a name without a type is a user."""
    return text if ":" in text else f"User:{text}"


def word(kind: type[_Word], text: str, what: str, allowed: Iterable[_Word]) -> _Word:
    """Parse an enum member: `read`, `Read`, `describe-configs`, `DescribeConfigs`."""
    wanted = text.replace("-", "").replace("_", "").lower()
    known = {one.name.replace("_", "").lower(): one for one in allowed}
    if wanted not in known:
        names = ", ".join(one.name.lower().replace("_", "-") for one in known.values())
        raise bad_usage(f"{text!r} is not {what}", f"Choose from {names}.")
    return known[wanted]


def operation_word(text: str) -> AclOperation:
    """An operation of an ACL."""
    allowed = [one for one in AclOperation if one > AclOperation.ANY]
    return word(AclOperation, text, "an operation", allowed)


def make_acls(options: AclOptions) -> list[AclBinding]:
    """The ACLs to add; a Failure if the options are not complete."""
    if not options.allowed and not options.denied:
        raise bad_usage(
            "no principal given",
            "Specify --allow-principal User:NAME or --deny-principal User:NAME.",
        )
    allowed = (PatternType.LITERAL, PatternType.PREFIXED)
    pattern = word(PatternType, options.pattern, "a pattern type of an ACL", allowed)
    return [
        AclBinding(_pattern_of(kind, name, pattern), entry)
        for kind, name, operation in _wanted(options)
        for entry in _entries(options, operation)
    ]


def _pattern_of(kind: ResourceType, name: str, pattern: PatternType) -> ResourcePattern:
    # The cluster has one name; --resource-pattern-type does not apply to it.
    literal = kind is ResourceType.CLUSTER
    return ResourcePattern(kind, PatternType.LITERAL if literal else pattern, name)


def _wanted(options: AclOptions) -> list[tuple[ResourceType, str, AclOperation]]:
    if options.roles:
        return _of_roles(options)
    resources = options.resources()
    if not resources:
        raise bad_usage(
            "no resource given",
            "Specify --topic, --group, --cluster, --transactional-id, --delegation-token or "
            "--user-principal.",
        )
    operations = [operation_word(one) for one in options.operations] or [AclOperation.ALL]
    for kind, _ in resources:
        for operation in operations:
            if operation is not AclOperation.ALL and operation not in SUPPORTED[kind]:
                names = sorted(one.name.lower() for one in SUPPORTED[kind])
                raise bad_usage(
                    f"a {kind.name.lower()} has no operation {operation.name.lower()}",
                    f"It has {', '.join(names)} and all.",
                )
    return [(kind, name, operation) for kind, name in resources for operation in operations]


def _of_roles(options: AclOptions) -> list[tuple[ResourceType, str, AclOperation]]:
    roles = options.roles
    if options.operations or options.denied or options.denied_hosts:
        raise bad_usage(
            "--producer, --consumer and --idempotent cannot be combined with --operation, "
            "--deny-principal or --deny-host"
        )
    if not options.topics:
        raise bad_usage("--producer and --consumer need a --topic")
    if roles.idempotent and not roles.producer:
        raise bad_usage("--idempotent needs --producer")
    if roles.consumer != bool(options.groups):
        raise bad_usage("--consumer and --group must be combined")
    if options.transactional_ids and not roles.producer:
        raise bad_usage("--transactional-id needs --producer")
    found: list[tuple[ResourceType, str, AclOperation]] = []
    if roles.producer:
        found += [(ResourceType.TOPIC, one, op) for one in options.topics for op in PRODUCER]
        found += [
            (ResourceType.TRANSACTIONAL_ID, one, op)
            for one in options.transactional_ids
            for op in (AclOperation.WRITE, AclOperation.DESCRIBE)
        ]
    if roles.idempotent:
        found.append((ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE))
    if roles.consumer:
        found += [(ResourceType.TOPIC, one, op) for one in options.topics for op in CONSUMER]
        found += [(ResourceType.GROUP, one, AclOperation.READ) for one in options.groups]
    return list(dict.fromkeys(found))


def _entries(options: AclOptions, operation: AclOperation) -> Iterable[AclEntry]:
    for permission, principals, hosts in (
        (AclPermission.ALLOW, options.allowed, options.allowed_hosts),
        (AclPermission.DENY, options.denied, options.denied_hosts),
    ):
        for principal in principals:
            for host in hosts or (WILDCARD,):
                yield AclEntry(principal_name(principal), host, operation, permission)


def make_filters(options: AclOptions, principals: Sequence[str] = ()) -> list[AclFilter]:
    """Filters for the ACLs of the options; a missing option matches everything."""
    if options.roles:
        return [_exactly(acl) for acl in make_acls(options)]
    allowed = [one for one in PatternType if one is not PatternType.UNKNOWN]
    pattern = word(PatternType, options.pattern, "a pattern type", allowed)
    resources: list[tuple[ResourceType, str | None]] = [*options.resources()]
    operations = [operation_word(one) for one in options.operations]
    who: list[tuple[str | None, str | None, AclPermission]] = [
        *((one, None, AclPermission.ANY) for one in principals),
        *(
            (one, host, AclPermission.ALLOW)
            for one in options.allowed
            for host in options.allowed_hosts or (None,)
        ),
        *(
            (one, host, AclPermission.DENY)
            for one in options.denied
            for host in options.denied_hosts or (None,)
        ),
    ]
    return [
        AclFilter(
            kind,
            name,
            PatternType.ANY if name is None or kind is ResourceType.CLUSTER else pattern,
            None if principal is None else principal_name(principal),
            host,
            operation,
            permission,
        )
        for kind, name in resources or [(ResourceType.ANY, None)]
        for principal, host, permission in who or [(None, None, AclPermission.ANY)]
        for operation in operations or [AclOperation.ANY]
    ]


def _exactly(acl: AclBinding) -> AclFilter:
    resource, entry = acl.resource, acl.entry
    return AclFilter(
        resource.type, resource.name, resource.pattern,
        entry.principal, entry.host, entry.operation, entry.permission,
    )  # fmt: skip
