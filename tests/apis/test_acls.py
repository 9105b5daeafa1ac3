"""DescribeAcls, CreateAcls and DeleteAcls."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse
from kio.static.primitive import i8

from headrace.apis.context import Caller
from headrace.apis.security.acls import create_acls, delete_acls, describe_acls
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from tests.apis.one_broker import OneBroker

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANY, ALLOW = 1, 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:root; User:boss"}
    broker = OneBroker(tmp_path, settings)
    yield broker
    broker.close()


def creation(
    name: str = "orders",
    kind: int = ResourceType.TOPIC,
    pattern: int = 3,
    operation: int = AclOperation.READ,
    permission: int = ALLOW,
    principal: str = "User:alice",
) -> AclCreation:
    return AclCreation(
        resource_type=i8(kind),
        resource_name=name,
        resource_pattern_type=i8(pattern),
        principal=principal,
        host="*",
        operation=i8(operation),
        permission_type=i8(permission),
    )


def create(broker: OneBroker, *creations: AclCreation) -> CreateAclsResponse:
    return broker.ask(create_acls, CreateAclsRequest(creations=creations))


def describe(broker: OneBroker, name: str | None = None, kind: int = ANY) -> DescribeAclsResponse:
    request = DescribeAclsRequest(
        resource_type_filter=i8(kind),
        resource_name_filter=name,
        pattern_type_filter=i8(ANY),
        principal_filter=None,
        host_filter=None,
        operation=i8(ANY),
        permission_type=i8(ANY),
    )
    return broker.ask(describe_acls, request)


def deletion(name: str | None, kind: int = ANY) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=i8(kind),
        resource_name_filter=name,
        pattern_type_filter=i8(ANY),
        principal_filter=None,
        host_filter=None,
        operation=i8(ANY),
        permission_type=i8(ANY),
    )


def test_acls_are_created_described_by_resource_and_deleted(broker: OneBroker) -> None:
    created = create(broker, creation(), creation(operation=4), creation("sums", kind=3))
    assert [one.error_code for one in created.results] == [0, 0, 0]
    found = describe(broker).resources
    assert {(one.resource_name, len(one.acls)) for one in found} == {("orders", 2), ("sums", 1)}
    filters = (deletion("orders"), deletion("missing"), deletion(None, kind=3))
    gone = broker.ask(delete_acls, DeleteAclsRequest(filters=filters)).filter_results
    assert [len(one.matching_acls) for one in gone] == [2, 0, 1]
    assert describe(broker).resources == ()


def test_an_acl_that_exists_is_created_once(broker: OneBroker) -> None:
    create(broker, creation(), creation())
    create(broker, creation())
    (resource,) = describe(broker).resources
    assert len(resource.acls) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        creation(""),
        creation("other", kind=ResourceType.CLUSTER),
        creation(kind=0),
        creation(kind=1),
        creation(kind=99),
        creation(pattern=1),
        creation(pattern=2),
        creation(operation=0),
        creation(operation=1),
        creation(permission=1),
        creation(principal="alice"),
    ],
)
def test_an_acl_that_cannot_be_is_refused_by_itself(broker: OneBroker, wrong: AclCreation) -> None:
    results = create(broker, wrong, creation()).results
    assert [one.error_code for one in results] == [ErrorCode.INVALID_REQUEST, 0]
    assert results[0].error_message
    assert len(describe(broker).resources) == 1


def test_a_filter_with_unknown_parts_is_refused(broker: OneBroker) -> None:
    create(broker, creation())
    filters = (deletion(None, kind=0), deletion("orders"))
    results = broker.ask(delete_acls, DeleteAclsRequest(filters=filters)).filter_results
    assert [one.error_code for one in results] == [ErrorCode.INVALID_REQUEST, 0]
    with pytest.raises(KafkaError) as refused:
        describe(broker, kind=0)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_without_an_authorizer_acls_are_disabled(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    for ask in (
        lambda: create(broker, creation()),
        lambda: describe(broker),
        lambda: broker.ask(delete_acls, DeleteAclsRequest(filters=())),
    ):
        with pytest.raises(KafkaError) as refused:
            ask()
        assert refused.value.code is ErrorCode.SECURITY_DISABLED
    broker.close()


def test_a_change_counts_for_connections_that_exist(broker: OneBroker) -> None:
    caller = Caller("10.0.0.7:1")
    broker.services.admit(caller)
    assert not caller.may(AclOperation.READ, ResourceType.TOPIC, "orders")
    create(broker, creation(principal="User:ANONYMOUS"))
    assert caller.may(AclOperation.READ, ResourceType.TOPIC, "orders")
    assert caller.permissions is not None
    assert caller.permissions.may_read("orders")
    assert caller.permissions.may_read("orders"), "the second answer is remembered"
    assert not caller.permissions.may_write("orders")
    broker.ask(delete_acls, DeleteAclsRequest(filters=(deletion("orders"),)))
    assert not caller.permissions.may_read("orders")
    assert not caller.may(AclOperation.READ, ResourceType.TOPIC, "orders")
