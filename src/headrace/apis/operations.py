"""Authorized operations on a resource, as responses carry them: one bit per operation."""

from headrace.apis.context import Caller
from headrace.security.acls import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType

NOT_ASKED = -(1 << 31)
"""The value if the request does not ask for them."""

_ALL = {kind: sum(1 << one for one in supported) for kind, supported in SUPPORTED.items()}


def on_topic(caller: Caller, name: str) -> int:
    """The client's authorized operations on a topic."""
    return _allowed(caller, ResourceType.TOPIC, name)


def on_group(caller: Caller, name: str) -> int:
    """The client's authorized operations on a group."""
    return _allowed(caller, ResourceType.GROUP, name)


def on_cluster(caller: Caller) -> int:
    """The client's authorized operations on the cluster; none unless it may describe it."""
    if not caller.may(AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, silent=True):
        return 0
    return _allowed(caller, ResourceType.CLUSTER, CLUSTER_NAME)


def _allowed(caller: Caller, kind: ResourceType, name: str) -> int:
    if caller.permissions is None:
        return _ALL[kind]
    return sum(1 << one for one in SUPPORTED[kind] if caller.may(one, kind, name, silent=True))
