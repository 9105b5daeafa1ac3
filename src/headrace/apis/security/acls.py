"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions 1-3.

v2 is flexible; v3 has USER resources. Without an authorizer all three return SECURITY_DISABLED.
"""

from collections.abc import Iterable
from enum import IntEnum
from functools import partial
from typing import TypeVar

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)

from headrace.apis.context import RequestContext, Services
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from headrace.security.state import SecurityState
from headrace.wire.primitives import NO_ERROR, error, i8, respond

_Code = TypeVar("_Code", bound=IntEnum)


def describe_acls(
    services: Services, request: DescribeAclsRequest, _context: RequestContext
) -> DescribeAclsResponse:
    """The ACLs that match a filter, by resource."""
    _need_authorizer(services)
    wanted = _filter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    found: dict[ResourcePattern, list[AclEntry]] = {}
    for acl in services.metadata.image.security.find_acls(wanted):
        found.setdefault(acl.resource, []).append(acl.entry)
    return respond(
        partial(
            DescribeAclsResponse,
            error_code=NO_ERROR,
            error_message=None,
            resources=tuple(_described(resource, entries) for resource, entries in found.items()),
        )
    )


def _described(resource: ResourcePattern, entries: Iterable[AclEntry]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=i8(resource.type),
        resource_name=resource.name,
        pattern_type=i8(resource.pattern),
        acls=tuple(
            AclDescription(
                principal=one.principal,
                host=one.host,
                operation=i8(one.operation),
                permission_type=i8(one.permission),
            )
            for one in entries
        ),
    )


def create_acls(
    services: Services, request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse:
    """Add the ACLs that are valid; one that exists already counts as added."""
    _need_authorizer(services)
    added: list[AclBinding] = []
    errors: list[KafkaError | None] = []
    for creation in request.creations:
        try:
            added.append(_binding(creation))
            errors.append(None)
        except KafkaError as refused:
            errors.append(refused)
    services.metadata.alter_security(lambda state: ([], state.with_acls(added)))
    for acl in added:
        services.audit.changed(context.caller, "acl_created", {"acl": str(acl)})
    return respond(
        partial(
            CreateAclsResponse,
            results=tuple(
                AclCreationResult(
                    error_code=error(one.code) if one else NO_ERROR,
                    error_message=one.message if one else None,
                )
                for one in errors
            ),
        )
    )


def delete_acls(
    services: Services, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse:
    """Delete the ACLs that match any of the filters."""
    _need_authorizer(services)

    def decide(
        state: SecurityState,
    ) -> tuple[list[list[AclBinding] | KafkaError], SecurityState]:
        found = [_matching(state, one) for one in request.filters]
        removed = [acl for one in found if isinstance(one, list) for acl in one]
        return found, state.with_acls(removed=removed)

    results = services.metadata.alter_security(decide)
    removed = {acl: None for one in results if isinstance(one, list) for acl in one}
    for acl in removed:
        services.audit.changed(context.caller, "acl_deleted", {"acl": str(acl)})
    return respond(partial(DeleteAclsResponse, filter_results=tuple(map(_deleted, results))))


def _matching(state: SecurityState, one: DeleteAclsFilter) -> list[AclBinding] | KafkaError:
    try:
        wanted = _filter(
            one.resource_type_filter,
            one.resource_name_filter,
            one.pattern_type_filter,
            one.principal_filter,
            one.host_filter,
            one.operation,
            one.permission_type,
        )
    except KafkaError as refused:
        return refused
    return state.find_acls(wanted)


def _deleted(found: list[AclBinding] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(found, KafkaError):
        return DeleteAclsFilterResult(
            error_code=error(found.code), error_message=found.message, matching_acls=()
        )
    return DeleteAclsFilterResult(
        error_code=NO_ERROR,
        error_message=None,
        matching_acls=tuple(
            DeleteAclsMatchingAcl(
                error_code=NO_ERROR,
                error_message=None,
                resource_type=i8(acl.resource.type),
                resource_name=acl.resource.name,
                pattern_type=i8(acl.resource.pattern),
                principal=acl.entry.principal,
                host=acl.entry.host,
                operation=i8(acl.entry.operation),
                permission_type=i8(acl.entry.permission),
            )
            for acl in found
        ),
    )


def _need_authorizer(services: Services) -> None:
    if services.guard is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED,
            "this broker has no authorizer; set authorizer.class.name to use ACLs",
        )


def _binding(creation: AclCreation) -> AclBinding:
    """The requested ACL; INVALID_REQUEST if it is not valid."""
    kind = _code(ResourceType, creation.resource_type, "resource type")
    pattern = _code(PatternType, creation.resource_pattern_type, "pattern type")
    operation = _code(AclOperation, creation.operation, "operation")
    permission = _code(AclPermission, creation.permission_type, "permission type")
    name = creation.resource_name
    if kind is ResourceType.ANY:
        raise _invalid("an ACL needs a resource type; ANY is valid in filters only")
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"an ACL is LITERAL or PREFIXED; {pattern.name} is valid in filters only")
    if operation is AclOperation.ANY:
        raise _invalid("an ACL needs an operation or ALL; ANY is valid in filters only")
    if permission is AclPermission.ANY:
        raise _invalid("an ACL is ALLOW or DENY; ANY is valid in filters only")
    if not name:
        raise _invalid("the resource name is empty")
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"the only name of a CLUSTER resource is {CLUSTER_NAME}, not '{name}'")
    if ":" not in creation.principal:
        raise _invalid(f"invalid principal '{creation.principal}'; expected User:name")
    entry = AclEntry(creation.principal, creation.host, operation, permission)
    return AclBinding(ResourcePattern(kind, pattern, name), entry)


def _filter(
    kind: int,
    name: str | None,
    pattern: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    return AclFilter(
        _code(ResourceType, kind, "resource type"),
        name,
        _code(PatternType, pattern, "pattern type"),
        principal,
        host,
        _code(AclOperation, operation, "operation"),
        _code(AclPermission, permission, "permission type"),
    )


def _code(kind: type[_Code], value: int, what: str) -> _Code:
    """The enum member of a number in the protocol; 0 means UNKNOWN and is refused."""
    try:
        found = kind(value)
    except ValueError:
        found = kind(0)
    if found == 0:
        raise _invalid(f"unknown {what} {value}")
    return found


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
