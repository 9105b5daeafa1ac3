"""The permissions that requests need: operations on types of resources.

A row of the route table lists the rights of its API, as Kafka's authorizer checks them. All rights
of a row are needed. Names of topics, groups and transactional ids come from the request.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from headrace.apis.context import Caller
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import CLUSTER_NAME, AclOperation, ResourceType

_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class RightCheck(Enum):
    """Where a right is checked, and the response to a client without it."""

    BEFORE = "before the handler is called; the whole request is refused"
    WITHIN = "by the handler; the whole request is refused"
    EACH = "by the handler, for each item; a denied item gets an error in its place"
    FILTER = "by the handler, for each item; a denied item is left out"


class Permission(NamedTuple):
    """An operation on a type of resource."""

    operation: AclOperation
    resource: ResourceType


class Right(NamedTuple):
    """A right that a client needs for requests of an API, or for their items."""

    check: RightCheck
    any_of: tuple[Permission, ...]
    """One of these permissions is sufficient."""
    when: str = ""
    """The requests or items that need it; all of them if this is empty."""


def check_before(rights: Iterable[Right], caller: Caller, request: object) -> None:
    """KafkaError unless the client has the rights that are checked before the handler is called."""
    for right in rights:
        last = right.any_of[-1]
        allowed = any(
            caller.may(
                one.operation, one.resource, _name(one.resource, request), silent=one is not last
            )
            for one in right.any_of
        )
        if not allowed:
            raise denied(right.any_of[0].resource)


def _name(kind: ResourceType, request: object) -> str:
    """The name of the resource of this type in a request."""
    if kind is ResourceType.CLUSTER:
        return CLUSTER_NAME
    name: str = getattr(request, "group_id" if kind is ResourceType.GROUP else "transactional_id")
    return name


def need_topic(caller: Caller, operation: AclOperation, name: str) -> None:
    """KafkaError unless the client may perform the operation on the topic."""
    if not caller.may(operation, ResourceType.TOPIC, name):
        raise denied(ResourceType.TOPIC)


def need_group(caller: Caller, operation: AclOperation, name: str) -> None:
    """KafkaError unless the client may perform the operation on the group."""
    if not caller.may(operation, ResourceType.GROUP, name):
        raise denied(ResourceType.GROUP)


def need_transactional_id(caller: Caller, operation: AclOperation, name: str) -> None:
    """KafkaError unless the client may perform the operation on the transactional id."""
    if not caller.may(operation, ResourceType.TRANSACTIONAL_ID, name):
        raise denied(ResourceType.TRANSACTIONAL_ID)


def need_cluster(caller: Caller, operation: AclOperation) -> None:
    """KafkaError unless the client may perform the operation on the cluster."""
    if not may_with_cluster(caller, operation):
        raise denied(ResourceType.CLUSTER)


def may_with_topic(
    caller: Caller, operation: AclOperation, name: str, *, silent: bool = False
) -> bool:
    """Whether the client may perform the operation on the topic; silent: not audited."""
    return caller.may(operation, ResourceType.TOPIC, name, silent=silent)


def may_with_cluster(caller: Caller, operation: AclOperation, *, silent: bool = False) -> bool:
    """Whether the client may perform the operation on the cluster; silent: not audited."""
    return caller.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, silent=silent)


def denied(kind: ResourceType) -> KafkaError:
    """The error for a client that lacks a right on a resource of this type."""
    code = _CODES[kind]
    return KafkaError(code, f"{kind.name.replace('_', ' ').lower()}: authorization failed")


def on_topic(operation: AclOperation) -> Permission:
    """An operation on a topic."""
    return Permission(operation, ResourceType.TOPIC)


def on_group(operation: AclOperation) -> Permission:
    """An operation on a consumer group."""
    return Permission(operation, ResourceType.GROUP)


def on_cluster(operation: AclOperation) -> Permission:
    """An operation on the cluster."""
    return Permission(operation, ResourceType.CLUSTER)


def on_transactional_id(operation: AclOperation) -> Permission:
    """An operation on a transactional id."""
    return Permission(operation, ResourceType.TRANSACTIONAL_ID)


def on_delegation_token(operation: AclOperation) -> Permission:
    """An operation on a delegation token."""
    return Permission(operation, ResourceType.DELEGATION_TOKEN)


def on_user(operation: AclOperation) -> Permission:
    """An operation on a user's delegation tokens."""
    return Permission(operation, ResourceType.USER)


def before(*any_of: Permission, when: str = "") -> Right:
    """A right that is checked before the handler is called."""
    return Right(RightCheck.BEFORE, any_of, when)


def within(*any_of: Permission, when: str = "") -> Right:
    """A right that the handler checks; without it the whole request is refused."""
    return Right(RightCheck.WITHIN, any_of, when)


def each(*any_of: Permission, when: str = "") -> Right:
    """A right that the handler checks for each item; a denied item gets an error in its place."""
    return Right(RightCheck.EACH, any_of, when)


def filtered(*any_of: Permission, when: str = "") -> Right:
    """A right that the handler checks for each item; denied items are left out."""
    return Right(RightCheck.FILTER, any_of, when)
