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
    needed = (
        (ResourceType.TOPIC, "_schemas", AclOperation.READ),
        (ResourceType.TOPIC, "_schemas", AclOperation.WRITE),
        (ResourceType.TOPIC, "_schemas", AclOperation.CREATE),
        (ResourceType.TRANSACTIONAL_ID, "_schemas-writer", AclOperation.WRITE),
        (ResourceType.GROUP, "headrace-registry", AclOperation.DESCRIBE),
    )
    return [
        AclBinding(
            ResourcePattern(kind, PatternType.LITERAL, name),
            AclEntry(principal, WILDCARD, operation, AclPermission.ALLOW),
        )
        for kind, name, operation in needed
    ]
