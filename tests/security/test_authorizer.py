"""The authorizer decides by Kafka's rules."""

import pytest

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
from headrace.security.authorizer import Authorizer
from headrace.security.state import NOTHING

ALICE = "User:alice"
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(
    permission: AclPermission,
    operation: AclOperation,
    name: str,
    pattern: PatternType = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    kind: ResourceType = TOPIC,
) -> AclBinding:
    entry = AclEntry(principal, host, operation, permission)
    return AclBinding(ResourcePattern(kind, pattern, name), entry)


def authorizer(*acls: AclBinding, open_without: bool = False) -> Authorizer:
    state = NOTHING.with_acls(acls)
    return Authorizer(state.acls, ("User:root",), allow_without_acl=open_without)


def allows(
    acls: list[AclBinding],
    operation: AclOperation = READ,
    name: str = "orders",
    principal: str = ALICE,
    host: str = "10.0.0.7",
    kind: ResourceType = TOPIC,
) -> bool:
    return authorizer(*acls).allows(principal, host, operation, kind, name)


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl(ALLOW, READ, "orders")], True),
        ([acl(ALLOW, AclOperation.ALL, "orders")], True),
        ([acl(ALLOW, READ, "*")], True),
        ([acl(ALLOW, READ, "ord", PREFIXED)], True),
        ([acl(ALLOW, READ, "orders", PREFIXED)], True),
        ([acl(ALLOW, READ, "orders-", PREFIXED)], False),
        ([acl(ALLOW, READ, "ord")], False),
        ([acl(ALLOW, READ, "orders", principal="User:*")], True),
        ([acl(ALLOW, READ, "orders", principal="User:bob")], False),
        ([acl(ALLOW, READ, "orders", host="10.0.0.7")], True),
        ([acl(ALLOW, READ, "orders", host="10.0.0.8")], False),
        ([acl(ALLOW, WRITE, "orders")], False),
        ([acl(ALLOW, READ, "orders", kind=GROUP)], False),
        ([acl(ALLOW, READ, "orders"), acl(DENY, READ, "ord", PREFIXED)], False),
        ([acl(ALLOW, READ, "orders"), acl(DENY, AclOperation.ALL, "*")], False),
        ([acl(ALLOW, READ, "orders"), acl(DENY, WRITE, "orders")], True),
        ([acl(ALLOW, READ, "orders"), acl(DENY, READ, "orders", principal="User:*")], False),
        ([acl(ALLOW, READ, "orders"), acl(DENY, READ, "orders", host="10.0.0.8")], True),
    ],
)
def test_a_matching_deny_beats_a_matching_allow(acls: list[AclBinding], allowed: bool) -> None:
    assert allows(acls) is allowed


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_permission_to_use_includes_permission_to_describe(operation: AclOperation) -> None:
    assert allows([acl(ALLOW, operation, "orders")], DESCRIBE)
    assert not allows([acl(ALLOW, DESCRIBE, "orders")], operation)
    both = [acl(ALLOW, DESCRIBE, "orders"), acl(DENY, operation, "orders")]
    assert allows(both, DESCRIBE), "a DENY includes no other operation"


def test_permission_to_alter_configs_includes_permission_to_describe_them() -> None:
    alter, describe = AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS
    assert allows([acl(ALLOW, alter, "orders")], describe)
    assert not allows([acl(ALLOW, alter, "orders")], DESCRIBE)


def test_a_super_user_may_do_everything() -> None:
    assert allows([acl(DENY, AclOperation.ALL, "*", principal="User:*")], principal="User:root")


def test_a_resource_without_an_acl_is_open_if_the_setting_says_so() -> None:
    other = acl(ALLOW, READ, "payments")
    opened = authorizer(other, open_without=True)
    assert opened.allows(ALICE, "h", WRITE, TOPIC, "orders")
    assert not opened.allows(ALICE, "h", WRITE, TOPIC, "payments")
    assert not opened.allows("User:bob", "h", READ, TOPIC, "payments"), "it has somebody's ACL"


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl(ALLOW, WRITE, "orders")], True),
        ([acl(ALLOW, READ, "orders")], False),
        ([acl(ALLOW, WRITE, "orders", principal="User:bob")], False),
        ([acl(ALLOW, WRITE, "orders"), acl(DENY, WRITE, "orders")], False),
        ([acl(ALLOW, WRITE, "orders"), acl(DENY, WRITE, "ord", PREFIXED)], False),
        ([acl(ALLOW, WRITE, "orders", PREFIXED), acl(DENY, WRITE, "orders")], True),
        ([acl(ALLOW, WRITE, "*"), acl(DENY, WRITE, "orders")], True),
        ([acl(ALLOW, WRITE, "orders"), acl(DENY, WRITE, "*")], False),
        ([acl(ALLOW, WRITE, "a"), acl(ALLOW, WRITE, "b"), acl(DENY, WRITE, "a")], True),
    ],
)
def test_any_resource_of_a_type(acls: list[AclBinding], allowed: bool) -> None:
    assert authorizer(*acls).allows_any(ALICE, "h", WRITE, TOPIC) is allowed


def test_a_decision_names_the_acl_that_decided() -> None:
    rule = acl(DENY, READ, "ord", PREFIXED)
    decision = authorizer(acl(ALLOW, READ, "orders"), rule).decide(
        ALICE, "h", READ, TOPIC, "orders"
    )
    assert decision.acl == rule
    assert "DENY User:alice from * to READ PREFIXED TOPIC ord" in decision.reason


def test_allowed_operations_are_a_bit_field() -> None:
    found = authorizer(acl(ALLOW, WRITE, "orders")).operations(
        ALICE, "h", TOPIC, "orders", (READ, WRITE, DESCRIBE)
    )
    assert found == (1 << WRITE) | (1 << DESCRIBE)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (AclFilter(), 4),
        (AclFilter(type=GROUP), 1),
        (AclFilter(name="orders"), 2),
        (AclFilter(name="orders", pattern=PREFIXED), 1),
        (AclFilter(name="orders-eu", pattern=PatternType.MATCH), 2),
        (AclFilter(name="orders", pattern=PatternType.MATCH, type=TOPIC), 3),
        (AclFilter(permission=DENY), 1),
        (AclFilter(principal="User:bob"), 0),
        (AclFilter(host="10.0.0.8"), 1),
        (AclFilter(operation=WRITE), 1),
    ],
)
def test_a_filter_finds_the_acls_it_describes(wanted: AclFilter, count: int) -> None:
    state = NOTHING.with_acls(
        [
            acl(ALLOW, READ, "orders"),
            acl(ALLOW, WRITE, "orders", PREFIXED),
            acl(DENY, READ, "*", host="10.0.0.8"),
            acl(ALLOW, READ, "sums", kind=GROUP),
        ]
    )
    assert len(state.find_acls(wanted)) == count
