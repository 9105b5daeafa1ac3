"""The permissions that requests need: operations on types of resources.

A row of the route table lists them for its API, as Kafka's authorizer checks them: all rights of a
row are needed. Names of topics, groups and transactional ids come from the request.
"""

from dataclasses import dataclass
from enum import Enum

from headrace.security.acls import AclOperation, ResourceType


class RightCheck(Enum):
    """Where a right is checked, and what a client without it gets."""

    BEFORE = "before the handler is called; the whole request is refused"
    WITHIN = "by the handler; the whole request is refused"
    EACH = "by the handler, for each item; a denied item gets an error in its place"
    FILTER = "by the handler, for each item; a denied item is left out"


@dataclass(frozen=True, slots=True)
class Permission:
    """An operation on a type of resource."""

    operation: AclOperation
    resource: ResourceType


@dataclass(frozen=True, slots=True)
class Right:
    """What a client needs for requests of an API, or for their items."""

    check: RightCheck
    any_of: tuple[Permission, ...]
    """One of these permissions is sufficient."""
    when: str = ""
    """The requests or items that need it; all of them if this is empty."""


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


def before(*any_of: Permission, when: str = "") -> Right:
    """A right that is checked before the handler is called."""
    return Right(RightCheck.BEFORE, any_of, when)


def within(*any_of: Permission, when: str = "") -> Right:
    """A right that the handler checks, and refuses the whole request."""
    return Right(RightCheck.WITHIN, any_of, when)


def each(*any_of: Permission, when: str = "") -> Right:
    """A right that the handler checks for each item, and answers with an error in its place."""
    return Right(RightCheck.EACH, any_of, when)


def filtered(*any_of: Permission, when: str = "") -> Right:
    """A right that the handler checks for each item, and leaves out what is denied."""
    return Right(RightCheck.FILTER, any_of, when)
