"""The route table: rights as Kafka's authorizer checks them, quotas, and versions with a codec."""

import pytest

from headrace.apis.rights import Right, RightCheck, on_cluster
from headrace.apis.routes import API_VERSIONS, ROUTES, HandlerKind, QuotaClass, Route
from headrace.broker import dispatch
from headrace.broker.dispatch import Dispatch
from headrace.security.acls import SUPPORTED, AclOperation, ResourceType
from headrace.wire import codec, codec_fields
from headrace.wire.fast import PRODUCE_FIRST_READ
from tests.apis.one_broker import OneBroker

HOT = [route for route in ROUTES.values() if route.kind is HandlerKind.HOT]
COLD = [route for route in ROUTES.values() if route.kind is HandlerKind.COLD]

# T is a topic, G a group, C the cluster and X a transactional id. Before: the request is refused
# before its handler is called; within: by its handler; each: an error for each item that is denied;
# filter: denied items are left out.
RIGHTS = {
    "Produce": "within X WRITE, each T WRITE",
    "Fetch": "each T READ, within C CLUSTER_ACTION",
    "ListOffsets": "each T DESCRIBE",
    "Metadata": "each T DESCRIBE, filter T DESCRIBE, each T CREATE or C CREATE",
    "OffsetCommit": "before G READ, each T READ",
    "OffsetFetch": "each G DESCRIBE, each T DESCRIBE, filter T DESCRIBE",
    "FindCoordinator": "each G DESCRIBE, each X DESCRIBE, each C CLUSTER_ACTION",
    "JoinGroup": "before G READ",
    "Heartbeat": "before G READ",
    "LeaveGroup": "before G READ",
    "SyncGroup": "before G READ",
    "DescribeGroups": "each G DESCRIBE",
    "ListGroups": "filter G DESCRIBE or C DESCRIBE",
    "SaslHandshake": "",
    "ApiVersions": "",
    "CreateTopics": "each T CREATE or C CREATE, each T DESCRIBE_CONFIGS",
    "DeleteTopics": "each T DELETE or C DELETE, filter T DESCRIBE",
    "DeleteRecords": "each T DELETE",
    "InitProducerId": "within X WRITE, within C IDEMPOTENT_WRITE or T WRITE",
    "OffsetForLeaderEpoch": "each T DESCRIBE or C CLUSTER_ACTION",
    "AddPartitionsToTxn": "within X WRITE, each T WRITE, within C CLUSTER_ACTION",
    "AddOffsetsToTxn": "before X WRITE, before G READ",
    "EndTxn": "before X WRITE",
    "WriteTxnMarkers": "before C ALTER or C CLUSTER_ACTION",
    "TxnOffsetCommit": "before X WRITE, before G READ, each T READ",
    "DescribeAcls": "before C DESCRIBE",
    "CreateAcls": "before C ALTER",
    "DeleteAcls": "before C ALTER",
    "DescribeUserScramCredentials": "before C DESCRIBE",
    "AlterUserScramCredentials": "within C ALTER",
    "DescribeConfigs": "each T DESCRIBE_CONFIGS, each G DESCRIBE_CONFIGS, each C DESCRIBE_CONFIGS",
    "AlterConfigs": "each T ALTER_CONFIGS, each G ALTER_CONFIGS, each C ALTER_CONFIGS",
    "AlterReplicaLogDirs": "before C ALTER",
    "DescribeLogDirs": "before C DESCRIBE",
    "SaslAuthenticate": "",
    "CreatePartitions": "each T ALTER",
    "DeleteGroups": "each G DELETE",
    "ElectLeaders": "before C ALTER",
    "IncrementalAlterConfigs": "each T ALTER_CONFIGS, each G ALTER_CONFIGS, each C ALTER_CONFIGS",
    "AlterPartitionReassignments": "before C ALTER",
    "ListPartitionReassignments": "before C DESCRIBE",
    "OffsetDelete": "before G DELETE, each T READ",
    "DescribeQuorum": "before C DESCRIBE",
    "UpdateFeatures": "before C ALTER",
    "DescribeCluster": "",
    "DescribeProducers": "each T READ",
    "DescribeTransactions": "each X DESCRIBE, filter T DESCRIBE",
    "ListTransactions": "filter X DESCRIBE",
    "GetTelemetrySubscriptions": "",
    "PushTelemetry": "",
    "ConsumerGroupHeartbeat": "before G READ, within T DESCRIBE, filter T DESCRIBE",
    "ConsumerGroupDescribe": "each G DESCRIBE, each T DESCRIBE",
    "StreamsGroupHeartbeat": "before G READ, within T DESCRIBE, each T CREATE or C CREATE",
    "StreamsGroupDescribe": "each G DESCRIBE, each T DESCRIBE",
    "ShareGroupHeartbeat": "before G READ, within T DESCRIBE",
    "ShareGroupDescribe": "each G DESCRIBE, each T DESCRIBE",
    "ShareFetch": "before G READ, each T READ",
    "ShareAcknowledge": "before G READ, each T READ",
    "InitializeShareGroupState": "before C CLUSTER_ACTION",
    "ReadShareGroupState": "before C CLUSTER_ACTION",
    "WriteShareGroupState": "before C CLUSTER_ACTION",
    "DeleteShareGroupState": "before C CLUSTER_ACTION",
    "ReadShareGroupStateSummary": "before C CLUSTER_ACTION",
    "DescribeShareGroupOffsets": "each G DESCRIBE, each T DESCRIBE, filter T DESCRIBE",
    "AlterShareGroupOffsets": "before G READ, each T READ",
    "DeleteShareGroupOffsets": "before G DELETE, each T READ",
    "CreateDelegationToken": "within U CREATE_TOKENS",
    "RenewDelegationToken": "",
    "ExpireDelegationToken": "",
    "DescribeDelegationToken": "filter D DESCRIBE or U DESCRIBE_TOKENS",
    "DescribeClientQuotas": "before C DESCRIBE_CONFIGS",
    "AlterClientQuotas": "before C ALTER_CONFIGS",
    "ListConfigResources": "before C DESCRIBE_CONFIGS",
    "DescribeTopicPartitions": "each T DESCRIBE, filter T DESCRIBE",
}
LETTERS = {
    ResourceType.TOPIC: "T",
    ResourceType.GROUP: "G",
    ResourceType.CLUSTER: "C",
    ResourceType.TRANSACTIONAL_ID: "X",
    ResourceType.DELEGATION_TOKEN: "D",
    ResourceType.USER: "U",
}
NAMED_BY = {ResourceType.GROUP: "group_id", ResourceType.TRANSACTIONAL_ID: "transactional_id"}


def written(right: Right) -> str:
    any_of = [f"{LETTERS[one.resource]} {one.operation.name}" for one in right.any_of]
    return f"{right.check.name.lower()} {' or '.join(any_of)}"


def test_every_api_needs_the_rights_that_kafka_checks() -> None:
    rights = {r.name: ", ".join(map(written, r.rights)) for r in ROUTES.values()}
    assert rights == RIGHTS


def test_only_public_apis_need_no_rights() -> None:
    public = {route.name for route in ROUTES.values() if not route.rights}
    assert public == {
        "ApiVersions", "DescribeCluster", "SaslAuthenticate", "SaslHandshake",
        # Their handlers compare the client with the owner and the renewers of the token.
        "RenewDelegationToken", "ExpireDelegationToken",
        "GetTelemetrySubscriptions", "PushTelemetry",
    }  # fmt: skip


def test_a_row_without_rights_or_quota_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="rights"):
        Route(99, "New", 0, 0, 0, HandlerKind.COLD, "new:new")  # type: ignore[call-arg]


def test_rights_are_for_operations_that_their_resources_have() -> None:
    for route in ROUTES.values():
        for right in route.rights:
            assert right.any_of, route.name
            for one in right.any_of:
                # Kafka asks for it, though only ALL on the cluster can grant it.
                if one != on_cluster(AclOperation.DELETE):
                    assert one.operation in SUPPORTED[one.resource], (route.name, one)


def test_a_request_names_what_is_checked_before_its_handler() -> None:
    for route in COLD:
        names = {field.name for field in codec_fields.fields(codec.request_class(route.key))}
        for right in route.rights:
            if right.check is RightCheck.BEFORE:
                wanted = {
                    NAMED_BY[one.resource] for one in right.any_of if one.resource in NAMED_BY
                }
                assert wanted <= names, route.name


def test_hot_handlers_check_their_rights_themselves() -> None:
    checks = {right.check for route in HOT for right in route.rights}
    assert RightCheck.BEFORE not in checks


def test_every_api_is_counted_by_a_quota_except_those_between_brokers() -> None:
    quotas: dict[QuotaClass, set[str]] = {}
    for route in ROUTES.values():
        quotas.setdefault(route.quota, set()).add(route.name)
    assert quotas.pop(QuotaClass.PRODUCE) == {"Produce"}
    assert quotas.pop(QuotaClass.FETCH) == {"Fetch"}
    mutations = {"CreateTopics", "DeleteTopics", "CreatePartitions"}
    assert quotas.pop(QuotaClass.CONTROLLER_MUTATION) == mutations
    state = {name for name in RIGHTS if "ShareGroupState" in name}
    assert quotas.pop(QuotaClass.EXEMPT) == {"WriteTxnMarkers", *state}
    assert quotas.keys() == {QuotaClass.REQUEST}


def without_codec(route: Route) -> list[int]:
    """The versions of a row that no codec reads and writes."""
    missing = []
    for version in range(route.min_version, route.max_version + 1):
        if route.name == "Produce" and version < PRODUCE_FIRST_READ:
            continue
        try:
            classes = (
                codec.request_class(route.key, version),
                codec.response_class(route.key, version),
            )
        except ImportError:
            missing.append(version)
            continue
        for found in classes:
            flexible = found.__flexible__  # type: ignore[attr-defined]
            assert flexible == (version >= route.flexible_from), (route.name, version)
    return missing


def test_every_version_of_every_row_has_a_codec() -> None:
    assert {r.name: missing for r in ROUTES.values() if (missing := without_codec(r))} == {}


def test_a_version_without_a_codec_is_detected() -> None:
    for route in ROUTES.values():
        raised = route._replace(max_version=route.max_version + 5)
        assert without_codec(raised), route.name


@pytest.mark.parametrize("route", HOT, ids=[route.name for route in HOT])
def test_a_broker_does_not_start_if_a_row_has_versions_that_its_hot_handler_cannot_decode(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch, route: Route
) -> None:
    raised = route._replace(max_version=route.max_version + 1)
    monkeypatch.setattr(dispatch, "ROUTES", {**ROUTES, route.key: raised})
    with pytest.raises(ValueError, match=rf"{route.name} v{raised.max_version}, but its handler"):
        Dispatch(broker.services)


def test_only_api_versions_answers_versions_that_are_not_supported() -> None:
    assert [route for route in ROUTES.values() if route.any_version] == [API_VERSIONS]
