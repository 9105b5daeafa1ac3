"""Users that are written into the metadata directly: by the command line, and at a first start.

The first user of a cluster cannot be created by a request, because no user exists to send it.
"""

from collections.abc import Iterable
from pathlib import Path

from headrace.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from headrace.security.scram import DIGESTS, credential_from_password
from headrace.security.state import SecurityState

CONNECT_TOPICS = ("connect-configs", "connect-configs-slots", "connect-offsets", "connect-status")


def read_password_file(path: str) -> str:
    """The password in a file; ValueError or OSError without one."""
    return one_line(Path(path).read_text("utf-8"))


def one_line(text: str) -> str:
    """The password in a text of one line; ValueError if it is empty or has several lines."""
    password = text.removesuffix("\n").removesuffix("\r")
    if not password or "\n" in password:
        raise ValueError("expected a password on one line")
    return password


def admin_acls(principal: str) -> list[AclBinding]:
    """ACLs that allow everything on every resource; a DENY still denies."""
    entry = AclEntry(principal, WILDCARD, AclOperation.ALL, AclPermission.ALLOW)
    names = dict.fromkeys(SUPPORTED, WILDCARD) | {ResourceType.CLUSTER: CLUSTER_NAME}
    return [
        AclBinding(ResourcePattern(kind, PatternType.LITERAL, name), entry)
        for kind, name in names.items()
    ]


def with_password(
    state: SecurityState, name: str, password: str, mechanisms: Iterable[str] = tuple(DIGESTS)
) -> SecurityState:
    """The state with a user's password for these mechanisms; other credentials are kept."""
    changed = {one: credential_from_password(one, password) for one in mechanisms}
    return state.with_user(name, {**state.users.get(name, {}), **changed})


def registry_acls(principal: str) -> list[AclBinding]:
    """The ACLs of a schema registry: its topic, its transactions, and librdkafka's group."""
    return _allow(
        principal,
        [
            (ResourceType.TOPIC, "_schemas", AclOperation.READ),
            (ResourceType.TOPIC, "_schemas", AclOperation.WRITE),
            (ResourceType.TOPIC, "_schemas", AclOperation.CREATE),
            (ResourceType.TRANSACTIONAL_ID, "_schemas-writer", AclOperation.WRITE),
            (ResourceType.GROUP, "headrace-registry", AclOperation.DESCRIBE),
        ],
    )


def connect_acls(principal: str) -> list[AclBinding]:
    """The ACLs of Connect workers: their topics, their group, and groups and transactions of
    connectors. The topics of connectors are not among them.
    """
    operations = (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE_CONFIGS,
    )
    topics = [
        (ResourceType.TOPIC, topic, operation)
        for topic in CONNECT_TOPICS
        for operation in operations
    ]
    own_group = (ResourceType.GROUP, "connect", AclOperation.READ)
    of_connectors = [
        (ResourceType.GROUP, "connect-", AclOperation.READ),
        (ResourceType.GROUP, "connect-", AclOperation.DELETE),
        (ResourceType.TRANSACTIONAL_ID, "connect-", AclOperation.WRITE),
    ]
    return [
        *_allow(principal, [*topics, own_group]),
        *_allow(principal, of_connectors, PatternType.PREFIXED),
    ]


def sql_acls(principal: str) -> list[AclBinding]:
    """The ACLs of SQL servers: their command topics and processing log, and groups and transactions
    of queries. The topics of statements are not among them.
    """
    operations = (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE_CONFIGS,
    )
    own = [(ResourceType.TOPIC, "_headrace_sql_", operation) for operation in operations]
    of_queries = [
        (ResourceType.TRANSACTIONAL_ID, "_headrace_sql_", AclOperation.WRITE),
        (ResourceType.TRANSACTIONAL_ID, "sql-", AclOperation.WRITE),
        (ResourceType.GROUP, "sql-", AclOperation.READ),
        (ResourceType.GROUP, "sql-", AclOperation.DELETE),
    ]
    log = [
        (ResourceType.TOPIC, "default-processing-log", operation)
        for operation in (AclOperation.CREATE, AclOperation.WRITE)
    ]
    return [
        *_allow(principal, [*own, *of_queries], PatternType.PREFIXED),
        *_allow(principal, log),
    ]


def console_acls(principal: str) -> list[AclBinding]:
    """The ACLs of the web console: everything with data, but no changes of users and ACLs.

    A principal that may change ACLs could allow itself everything.
    """
    data = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    of_cluster = (
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.CREATE,
        AclOperation.IDEMPOTENT_WRITE,
    )
    return _allow(
        principal,
        [
            *((kind, WILDCARD, AclOperation.ALL) for kind in data),
            *((ResourceType.CLUSTER, CLUSTER_NAME, operation) for operation in of_cluster),
        ],
    )


def _allow(
    principal: str,
    rights: Iterable[tuple[ResourceType, str, AclOperation]],
    pattern: PatternType = PatternType.LITERAL,
) -> list[AclBinding]:
    return [
        AclBinding(
            ResourcePattern(kind, pattern, name),
            AclEntry(principal, WILDCARD, operation, AclPermission.ALLOW),
        )
        for kind, name, operation in rights
    ]
