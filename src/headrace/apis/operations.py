"""What a client may do with a resource, as answers carry it: a bit for each operation."""

from headrace.apis.context import Caller
from headrace.security.acls import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType

NOT_ASKED = -(1 << 31)
"""In answers to clients that did not ask."""

_ALL = {kind: sum(1 << one for one in supported) for kind, supported in SUPPORTED.items()}


def on_topic(caller: Caller, name: str) -> int:
    """What the client may do with a topic."""
    return _allowed(caller, ResourceType.TOPIC, name)


def on_group(caller: Caller, name: str) -> int:
    """What the client may do with a group."""
    return _allowed(caller, ResourceType.GROUP, name)


def on_cluster(caller: Caller) -> int:
    """What the client may do with the cluster; nothing unless it may describe it."""
    if not caller.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, silent=True):
        return 0
    return _allowed(caller, ResourceType.CLUSTER, CLUSTER_NAME)


def _allowed(caller: Caller, kind: ResourceType, name: str) -> int:
    if caller.permissions is None:
        return _ALL[kind]
    return sum(1 << one for one in SUPPORTED[kind] if caller.may(one, kind, name, silent=True))
