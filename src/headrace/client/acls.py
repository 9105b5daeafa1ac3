"""ACLs: describe, create, delete. All calls are retried."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import check
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from headrace.wire.primitives import i8

_Code = TypeVar("_Code", bound=IntEnum)


def describe_acls(cluster: Cluster, wanted: AclFilter = AclFilter()) -> list[AclBinding]:  # noqa: B008
    """The ACLs that a filter matches, sorted."""
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest
    from kio.schema.describe_acls.v3.response import DescribeAclsResponse

    request = DescribeAclsRequest(
        resource_type_filter=i8(wanted.type),
        resource_name_filter=wanted.name,
        pattern_type_filter=i8(wanted.pattern),
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=i8(wanted.operation),
        permission_type=i8(wanted.permission),
    )

    def attempt() -> list[AclBinding]:
        answer = cluster.ask(request, DescribeAclsResponse)
        check(int(answer.error_code), "ACLs", answer.error_message)
        return sorted(
            _binding(
                int(resource.resource_type), int(resource.pattern_type), resource.resource_name,
                row.principal, row.host, int(row.operation), int(row.permission_type),
            )
            for resource in answer.resources
            for row in resource.acls
        )  # fmt: skip

    return cluster.retry("describing ACLs", attempt)


def create_acls(cluster: Cluster, acls: Sequence[AclBinding]) -> None:
    """Create ACLs; one that exists already stays as it is."""
    from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
    from kio.schema.create_acls.v3.response import CreateAclsResponse

    request = CreateAclsRequest(
        creations=tuple(
            AclCreation(
                resource_type=i8(acl.resource.type),
                resource_name=acl.resource.name,
                resource_pattern_type=i8(acl.resource.pattern),
                principal=acl.entry.principal,
                host=acl.entry.host,
                operation=i8(acl.entry.operation),
                permission_type=i8(acl.entry.permission),
            )
            for acl in acls
        )
    )

    def attempt() -> None:
        answer = cluster.ask_controller(request, CreateAclsResponse)
        for acl, row in zip(acls, answer.results, strict=True):
            check(int(row.error_code), f"ACL {acl}", row.error_message)

    cluster.retry("creating ACLs", attempt)


def delete_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Delete the ACLs that any of the filters matches; returns the deleted ones."""
    from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
    from kio.schema.delete_acls.v3.response import DeleteAclsResponse

    request = DeleteAclsRequest(
        filters=tuple(
            DeleteAclsFilter(
                resource_type_filter=i8(one.type),
                resource_name_filter=one.name,
                pattern_type_filter=i8(one.pattern),
                principal_filter=one.principal,
                host_filter=one.host,
                operation=i8(one.operation),
                permission_type=i8(one.permission),
            )
            for one in filters
        )
    )

    def attempt() -> list[AclBinding]:
        deleted = []
        for result in cluster.ask_controller(request, DeleteAclsResponse).filter_results:
            check(int(result.error_code), "ACLs", result.error_message)
            for row in result.matching_acls:
                acl = _binding(
                    int(row.resource_type), int(row.pattern_type), row.resource_name,
                    row.principal, row.host, int(row.operation), int(row.permission_type),
                )  # fmt: skip
                check(int(row.error_code), f"ACL {acl}", row.error_message)
                deleted.append(acl)
        return sorted(set(deleted))

    return cluster.retry("deleting ACLs", attempt)


def _binding(
    kind: int, pattern: int, name: str, principal: str, host: str, operation: int, permission: int
) -> AclBinding:
    return AclBinding(
        ResourcePattern(_known(ResourceType, kind), _known(PatternType, pattern), name),
        AclEntry(
            principal, host, _known(AclOperation, operation), _known(AclPermission, permission)
        ),
    )


def _known(kind: type[_Code], value: int) -> _Code:
    """The enum member, or UNKNOWN for a value of a newer Kafka."""
    try:
        return kind(value)
    except ValueError:
        return kind(0)
