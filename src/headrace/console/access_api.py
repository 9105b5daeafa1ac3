"""Users, ACLs and quotas of the cluster. Passwords are never sent to a browser."""

from collections.abc import Mapping
from enum import IntEnum
from typing import TypeVar

from headrace.client.acls import create_acls, delete_acls, describe_acls
from headrace.client.cluster import Cluster
from headrace.client.quotas import alter_quotas, list_quotas
from headrace.client.users import delete_user, describe_users, set_password
from headrace.console.console_request import ConsoleRequest
from headrace.security.acls import (
    SUPPORTED,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from headrace.service.errors import HttpError

Code = TypeVar("Code", bound=IntEnum)


async def list_users(request: ConsoleRequest) -> object:
    """Users with SCRAM credentials."""
    found = await request.console.cluster.run(describe_users)
    return {
        "users": [
            {"name": each.name, "mechanisms": sorted(each.iterations)} for each in found.values()
        ]
    }


async def put_user(request: ConsoleRequest) -> object:
    """Creates a user, or changes its password."""
    name, password = request.path["user"], request.field("password")
    await request.console.cluster.run(set_password, name, password)
    return {"name": name}


async def remove_user(request: ConsoleRequest) -> object:
    """Deletes a user's credentials; its ACLs stay."""
    await request.console.cluster.run(_delete_user, request.path["user"])
    return {"name": request.path["user"]}


async def list_acls(request: ConsoleRequest) -> object:
    """All ACLs, and the operations that each type of resource has."""
    rows = await request.console.cluster.run(describe_acls)
    return {
        "acls": [_acl(each) for each in rows],
        "operations": {
            kind.name: ["ALL", *sorted(each.name for each in operations)]
            for kind, operations in SUPPORTED.items()
        },
    }


async def add_acl(request: ConsoleRequest) -> object:
    """Creates an ACL."""
    acl = _parsed(request.fields())
    await request.console.cluster.run(create_acls, [acl])
    return _acl(acl)


async def remove_acl(request: ConsoleRequest) -> object:
    """Deletes exactly this ACL."""
    acl = _parsed(request.fields())
    exact = AclFilter(
        acl.resource.type,
        acl.resource.name,
        acl.resource.pattern,
        acl.entry.principal,
        acl.entry.host,
        acl.entry.operation,
        acl.entry.permission,
    )
    deleted = await request.console.cluster.run(delete_acls, [exact])
    return {"deleted": [_acl(each) for each in deleted]}


async def list_all_quotas(request: ConsoleRequest) -> object:
    """The quotas of all entities."""
    found = await request.console.cluster.run(list_quotas, {})
    return {"quotas": [{"entity": each.entity, "values": each.values} for each in found]}


async def change_quotas(request: ConsoleRequest) -> object:
    """Sets and removes quotas of an entity; a name that is null is the default."""
    body = request.fields()
    entity, values = body.get("entity"), body.get("set", {})
    if not isinstance(entity, dict) or not isinstance(values, dict):
        raise HttpError(400, "The fields entity and set must be objects")
    to_set: dict[str, float] = {}
    for name, value in values.items():
        try:
            to_set[name] = float(str(value))
        except ValueError:
            raise HttpError(400, f"{name} must be a number") from None
    removed = body.get("remove", [])
    await request.console.cluster.run(
        alter_quotas,
        {str(kind): None if name is None else str(name) for kind, name in entity.items()},
        to_set,
        [str(each) for each in removed] if isinstance(removed, list) else [],
    )
    return {"entity": entity}


def _delete_user(cluster: Cluster, name: str) -> None:
    found = describe_users(cluster, [name]).get(name)
    if found is None:
        raise HttpError(404, f"User {name} does not exist")
    delete_user(cluster, found)


def _acl(acl: AclBinding) -> dict[str, object]:
    return {
        "type": acl.resource.type.name,
        "pattern": acl.resource.pattern.name,
        "name": acl.resource.name,
        "principal": acl.entry.principal,
        "host": acl.entry.host,
        "operation": acl.entry.operation.name,
        "permission": acl.entry.permission.name,
    }


def _parsed(body: Mapping[str, object]) -> AclBinding:
    def text(name: str) -> str:
        value = body.get(name)
        if not isinstance(value, str) or not value:
            raise HttpError(400, f"The field {name} must be a text that is not empty")
        return value

    return AclBinding(
        ResourcePattern(
            _code(ResourceType, text("type")), _code(PatternType, text("pattern")), text("name")
        ),
        AclEntry(
            text("principal"),
            text("host"),
            _code(AclOperation, text("operation")),
            _code(AclPermission, text("permission")),
        ),
    )


def _code(kind: type[Code], name: str) -> Code:
    try:
        return kind[name]
    except KeyError:
        known = ", ".join(each.name for each in kind if each.name not in ("UNKNOWN", "ANY"))
        raise HttpError(400, f"{name[:50]!r} is not one of {known}") from None
