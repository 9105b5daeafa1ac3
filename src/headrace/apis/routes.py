"""The route table: one row per API.

ApiVersions, dispatch and the docs derive from it. A row has the handler, the rights that a client
needs, and the quota that counts the request. A handler is given by its module and its name there.
Hot handlers are created when dispatch is built; a cold one is imported when it is first needed, so
that the broker starts fast.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.apis.rights import (
    Right,
    before,
    each,
    filtered,
    on_cluster,
    on_delegation_token,
    on_group,
    on_topic,
    on_transactional_id,
    on_user,
    within,
)
from headrace.cluster.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation

if TYPE_CHECKING:
    from headrace.apis.context import RequestContext, Services


class HandlerKind(Enum):
    """How a handler is called."""

    HOT = "an object that is made once and called with positions in the receive buffer (`hot.py`)"
    COLD = "a function from a decoded request to a response"


class QuotaClass(Enum):
    """Which quota of the client counts a request."""

    PRODUCE = "bytes of produced records, and request time"
    FETCH = "bytes of fetched records, and request time"
    REQUEST = "request time"
    CONTROLLER_MUTATION = "partitions created or deleted, and request time"
    EXEMPT = "none"


class Route(NamedTuple):
    """An API: its key, supported versions, first flexible version, and handler."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    kind: HandlerKind
    handler: str
    rights: tuple[Right, ...]
    """All of these are needed."""
    quota: QuotaClass
    any_version: bool = False
    """Whether the handler answers requests of unsupported versions, without reading them.
    Otherwise they close their connection."""
    feature: str = ""
    """The feature of a cold row: while the cluster does not use it, requests are refused."""

    def load(self) -> Callable[..., Any]:
        """The handler of a cold row; for a hot row the factory that takes Services."""
        module, name = self.handler.split(":")
        loaded: Callable[..., Any] = getattr(import_module(f"headrace.apis.{module}"), name)
        return _with_feature(loaded, self.feature) if self.feature else loaded


def _with_feature(handler: Callable[..., Any], feature: str) -> Callable[..., Any]:
    """The handler, which refuses requests while the level of the feature is 0."""

    @wraps(handler)
    def handle(services: Services, request: object, context: RequestContext) -> Any:
        if not services.metadata.image.features.is_enabled(feature):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return handler(services, request, context)

    return handle


_READ, _WRITE, _CREATE, _DELETE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
)
_ALTER, _DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
_HOT, _COLD = HandlerKind.HOT, HandlerKind.COLD
_REQUEST, _CONTROLLER_MUTATION = QuotaClass.REQUEST, QuotaClass.CONTROLLER_MUTATION


def _on_configs(operation: AclOperation) -> tuple[Right, ...]:
    return (
        each(on_topic(operation), when="configs of a topic"),
        each(on_group(operation), when="configs of a group"),
        each(on_cluster(operation), when="configs or loggers of a broker, client metrics"),
    )


_NOTHING: tuple[Right, ...] = ()
_CREATE_TOPIC = (on_topic(_CREATE), on_cluster(_CREATE))
_DESCRIBE_TOPICS = (
    each(on_topic(_DESCRIBE), when="topics that the request names"),
    filtered(on_topic(_DESCRIBE), when="all topics"),
)
_JOIN_GROUP = (before(on_group(_READ)),)
_DESCRIBE_CLUSTER = (before(on_cluster(_DESCRIBE)),)
_ALTER_CLUSTER = (before(on_cluster(_ALTER)),)

PRODUCE = Route(
    0, "Produce", 0, 13, 9, _HOT, "records.produce:Produce",
    (
        within(on_transactional_id(_WRITE), when="requests with a transactional id"),
        each(on_topic(_WRITE)),
    ),
    QuotaClass.PRODUCE,
)  # fmt: skip
FETCH = Route(
    1, "Fetch", 4, 18, 12, _HOT, "records.fetch:make_fetch",
    (
        each(on_topic(_READ), when="consumers"),
        within(on_cluster(_CLUSTER_ACTION), when="followers"),
    ),
    QuotaClass.FETCH,
)  # fmt: skip
METADATA = Route(
    3, "Metadata", 0, 13, 9, _HOT, "topics.metadata:MetadataHandler",
    (*_DESCRIBE_TOPICS, each(*_CREATE_TOPIC, when="topics that are created")),
    _REQUEST,
)  # fmt: skip
API_VERSIONS = Route(
    18,
    "ApiVersions",
    0,
    4,
    3,
    _HOT,
    "api_versions:ApiVersions",
    _NOTHING,
    _REQUEST,
    any_version=True,
)
SASL_HANDSHAKE = Route(
    17, "SaslHandshake", 0, 1, 2, _COLD, "security.sasl:refuse_login", _NOTHING, _REQUEST
)
SASL_AUTHENTICATE = Route(
    36, "SaslAuthenticate", 0, 2, 2, _COLD, "security.sasl:refuse_login", _NOTHING, _REQUEST
)

_RECORDS = (
    PRODUCE,
    FETCH,
    Route(
        2, "ListOffsets", 1, 11, 6, _COLD, "records.list_offsets:list_offsets",
        (each(on_topic(_DESCRIBE)),), _REQUEST,
    ),
    Route(
        21, "DeleteRecords", 0, 2, 2, _COLD, "records.delete_records:delete_records",
        (each(on_topic(_DELETE)),), _REQUEST,
    ),
    Route(
        23, "OffsetForLeaderEpoch", 2, 4, 4, _COLD,
        "records.offset_for_leader_epoch:offset_for_leader_epoch",
        (each(on_topic(_DESCRIBE), on_cluster(_CLUSTER_ACTION)),), _REQUEST,
    ),
)  # fmt: skip

_TOPICS = (
    METADATA,
    Route(
        19, "CreateTopics", 2, 7, 5, _COLD, "topics.create_topics:create_topics",
        (
            each(*_CREATE_TOPIC),
            each(on_topic(_DESCRIBE_CONFIGS), when="configs in the response"),
        ),
        _CONTROLLER_MUTATION,
    ),
    Route(
        20, "DeleteTopics", 1, 6, 4, _COLD, "topics.delete_topics:delete_topics",
        (
            each(on_topic(_DELETE), on_cluster(_DELETE)),
            filtered(on_topic(_DESCRIBE), when="names of topics that the request has by id"),
        ),
        _CONTROLLER_MUTATION,
    ),
    Route(
        37, "CreatePartitions", 0, 3, 2, _COLD, "topics.create_partitions:create_partitions",
        (each(on_topic(_ALTER)),), _CONTROLLER_MUTATION,
    ),
    Route(
        75, "DescribeTopicPartitions", 0, 0, 0, _COLD,
        "topics.describe_topic_partitions:describe_topic_partitions",
        _DESCRIBE_TOPICS, _REQUEST,
    ),
)  # fmt: skip

_GROUPS = (
    Route(
        8, "OffsetCommit", 2, 10, 8, _COLD, "groups.offset_commit:offset_commit",
        (before(on_group(_READ)), each(on_topic(_READ))), _REQUEST,
    ),
    Route(
        9, "OffsetFetch", 1, 10, 6, _COLD, "groups.offset_fetch:offset_fetch",
        (each(on_group(_DESCRIBE)), *_DESCRIBE_TOPICS), _REQUEST,
    ),
    Route(
        10, "FindCoordinator", 0, 6, 3, _COLD, "groups.find_coordinator:find_coordinator",
        (
            each(on_group(_DESCRIBE), when="groups"),
            each(on_transactional_id(_DESCRIBE), when="transactional ids"),
            each(on_cluster(_CLUSTER_ACTION), when="share groups"),
        ),
        _REQUEST,
    ),
    Route(11, "JoinGroup", 0, 9, 6, _COLD, "groups.join_group:join_group", _JOIN_GROUP, _REQUEST),
    Route(12, "Heartbeat", 0, 4, 4, _COLD, "groups.heartbeat:heartbeat", _JOIN_GROUP, _REQUEST),
    Route(
        13, "LeaveGroup", 0, 5, 4, _COLD, "groups.leave_group:leave_group", _JOIN_GROUP, _REQUEST,
    ),
    Route(14, "SyncGroup", 0, 5, 4, _COLD, "groups.sync_group:sync_group", _JOIN_GROUP, _REQUEST),
    Route(
        15, "DescribeGroups", 0, 6, 5, _COLD, "groups.describe_groups:describe_groups",
        (each(on_group(_DESCRIBE)),), _REQUEST,
    ),
    Route(
        16, "ListGroups", 0, 5, 3, _COLD, "groups.list_groups:list_groups",
        (filtered(on_group(_DESCRIBE), on_cluster(_DESCRIBE)),), _REQUEST,
    ),
    Route(
        42, "DeleteGroups", 0, 2, 2, _COLD, "groups.delete_groups:delete_groups",
        (each(on_group(_DELETE)),), _REQUEST,
    ),
    Route(
        47, "OffsetDelete", 0, 0, 1, _COLD, "groups.offset_delete:offset_delete",
        (before(on_group(_DELETE)), each(on_topic(_READ))), _REQUEST,
    ),
    Route(
        68, "ConsumerGroupHeartbeat", 0, 1, 0, _COLD,
        "groups.consumer_group_heartbeat:consumer_group_heartbeat",
        (
            before(on_group(_READ)),
            within(on_topic(_DESCRIBE), when="topics that are subscribed by name"),
            filtered(on_topic(_DESCRIBE), when="topics that match a regular expression"),
        ),
        _REQUEST, feature=GROUP_VERSION,
    ),
    Route(
        69, "ConsumerGroupDescribe", 0, 1, 0, _COLD,
        "groups.consumer_group_describe:consumer_group_describe",
        (each(on_group(_DESCRIBE)), each(on_topic(_DESCRIBE), when="all topics of the group")),
        _REQUEST, feature=GROUP_VERSION,
    ),
    Route(
        88, "StreamsGroupHeartbeat", 0, 0, 0, _COLD,
        "groups.streams_group_heartbeat:streams_group_heartbeat",
        (
            before(on_group(_READ)),
            within(on_topic(_DESCRIBE), when="topics of the topology"),
            each(*_CREATE_TOPIC, when="internal topics that are created"),
        ),
        _REQUEST, feature=STREAMS_VERSION,
    ),
    Route(
        89, "StreamsGroupDescribe", 0, 0, 0, _COLD,
        "groups.streams_group_describe:streams_group_describe",
        (each(on_group(_DESCRIBE)), each(on_topic(_DESCRIBE), when="all topics of the topology")),
        _REQUEST, feature=STREAMS_VERSION,
    ),
)  # fmt: skip

_SHARE_STATE = (before(on_cluster(_CLUSTER_ACTION)),)
_SHARES = (
    Route(
        76, "ShareGroupHeartbeat", 1, 1, 0, _COLD,
        "shares.share_group_heartbeat:share_group_heartbeat",
        (before(on_group(_READ)), within(on_topic(_DESCRIBE), when="subscribed topics")),
        _REQUEST, feature=SHARE_VERSION,
    ),
    Route(
        77, "ShareGroupDescribe", 1, 1, 0, _COLD,
        "shares.share_group_describe:share_group_describe",
        (each(on_group(_DESCRIBE)), each(on_topic(_DESCRIBE), when="all topics of the group")),
        _REQUEST, feature=SHARE_VERSION,
    ),
    Route(
        78, "ShareFetch", 1, 2, 0, _COLD, "shares.share_fetch:share_fetch",
        (before(on_group(_READ)), each(on_topic(_READ))), _REQUEST, feature=SHARE_VERSION,
    ),
    Route(
        79, "ShareAcknowledge", 1, 2, 0, _COLD, "shares.share_acknowledge:share_acknowledge",
        (before(on_group(_READ)), each(on_topic(_READ))), _REQUEST, feature=SHARE_VERSION,
    ),
    Route(
        83, "InitializeShareGroupState", 0, 0, 0, _COLD,
        "shares.share_group_state:initialize_share_group_state", _SHARE_STATE, QuotaClass.EXEMPT,
    ),
    Route(
        84, "ReadShareGroupState", 0, 0, 0, _COLD,
        "shares.share_group_state:read_share_group_state", _SHARE_STATE, QuotaClass.EXEMPT,
    ),
    Route(
        85, "WriteShareGroupState", 0, 1, 0, _COLD,
        "shares.share_group_state:write_share_group_state", _SHARE_STATE, QuotaClass.EXEMPT,
    ),
    Route(
        86, "DeleteShareGroupState", 0, 0, 0, _COLD,
        "shares.share_group_state:delete_share_group_state", _SHARE_STATE, QuotaClass.EXEMPT,
    ),
    Route(
        87, "ReadShareGroupStateSummary", 0, 1, 0, _COLD,
        "shares.share_group_state:read_share_group_state_summary", _SHARE_STATE, QuotaClass.EXEMPT,
    ),
    Route(
        90, "DescribeShareGroupOffsets", 0, 1, 0, _COLD,
        "shares.share_group_offsets:describe_share_group_offsets",
        (each(on_group(_DESCRIBE)), *_DESCRIBE_TOPICS), _REQUEST, feature=SHARE_VERSION,
    ),
    Route(
        91, "AlterShareGroupOffsets", 0, 0, 0, _COLD,
        "shares.share_group_offsets:alter_share_group_offsets",
        (before(on_group(_READ)), each(on_topic(_READ))), _REQUEST, feature=SHARE_VERSION,
    ),
    Route(
        92, "DeleteShareGroupOffsets", 0, 0, 0, _COLD,
        "shares.share_group_offsets:delete_share_group_offsets",
        (before(on_group(_DELETE)), each(on_topic(_READ))), _REQUEST, feature=SHARE_VERSION,
    ),
)  # fmt: skip

_TRANSACTIONS = (
    Route(
        22, "InitProducerId", 0, 5, 2, _COLD, "transactions.init_producer_id:init_producer_id",
        (
            within(on_transactional_id(_WRITE), when="requests with a transactional id"),
            within(
                on_cluster(AclOperation.IDEMPOTENT_WRITE), on_topic(_WRITE),
                when="requests without a transactional id; any topic is sufficient",
            ),
        ),
        _REQUEST,
    ),
    Route(
        24, "AddPartitionsToTxn", 0, 5, 3, _COLD,
        "transactions.add_partitions_to_txn:add_partitions_to_txn",
        (
            within(on_transactional_id(_WRITE), when="v0 to v3"),
            each(on_topic(_WRITE), when="v0 to v3"),
            within(on_cluster(_CLUSTER_ACTION), when="v4 and later, which brokers send"),
        ),
        _REQUEST,
    ),
    Route(
        25, "AddOffsetsToTxn", 0, 4, 3, _COLD, "transactions.add_offsets_to_txn:add_offsets_to_txn",
        (before(on_transactional_id(_WRITE)), before(on_group(_READ))), _REQUEST,
    ),
    Route(
        26, "EndTxn", 0, 5, 3, _COLD, "transactions.end_txn:end_txn",
        (before(on_transactional_id(_WRITE)),), _REQUEST,
    ),
    Route(
        27, "WriteTxnMarkers", 1, 2, 1, _COLD, "transactions.write_txn_markers:write_txn_markers",
        (before(on_cluster(_ALTER), on_cluster(_CLUSTER_ACTION)),), QuotaClass.EXEMPT,
    ),
    Route(
        28, "TxnOffsetCommit", 0, 5, 3, _COLD, "transactions.txn_offset_commit:txn_offset_commit",
        (before(on_transactional_id(_WRITE)), before(on_group(_READ)), each(on_topic(_READ))),
        _REQUEST,
    ),
    Route(
        61, "DescribeProducers", 0, 0, 0, _COLD,
        "transactions.describe_producers:describe_producers",
        (each(on_topic(_READ)),), _REQUEST,
    ),
    Route(
        65, "DescribeTransactions", 0, 0, 0, _COLD,
        "transactions.describe_transactions:describe_transactions",
        (
            each(on_transactional_id(_DESCRIBE)),
            filtered(on_topic(_DESCRIBE), when="topics of the transaction"),
        ),
        _REQUEST,
    ),
    Route(
        66, "ListTransactions", 0, 2, 0, _COLD, "transactions.list_transactions:list_transactions",
        (filtered(on_transactional_id(_DESCRIBE)),), _REQUEST,
    ),
)  # fmt: skip

_CONFIGS = (
    Route(
        32, "DescribeConfigs", 1, 4, 4, _COLD, "configs.configs:describe_configs",
        _on_configs(_DESCRIBE_CONFIGS), _REQUEST,
    ),
    Route(
        33, "AlterConfigs", 0, 2, 2, _COLD, "configs.configs:alter_configs",
        _on_configs(_ALTER_CONFIGS), _REQUEST,
    ),
    Route(
        44, "IncrementalAlterConfigs", 0, 1, 1, _COLD, "configs.configs:incremental_alter_configs",
        _on_configs(_ALTER_CONFIGS), _REQUEST,
    ),
    Route(
        74, "ListConfigResources", 0, 1, 0, _COLD,
        "configs.list_config_resources:list_config_resources",
        (before(on_cluster(_DESCRIBE_CONFIGS)),), _REQUEST,
    ),
)  # fmt: skip

_SECURITY = (
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
    Route(
        29, "DescribeAcls", 1, 3, 2, _COLD, "security.acls:describe_acls",
        _DESCRIBE_CLUSTER, _REQUEST,
    ),
    Route(
        30, "CreateAcls", 1, 3, 2, _COLD, "security.acls:create_acls", _ALTER_CLUSTER, _REQUEST,
    ),
    Route(
        31, "DeleteAcls", 1, 3, 2, _COLD, "security.acls:delete_acls", _ALTER_CLUSTER, _REQUEST,
    ),
    Route(
        38, "CreateDelegationToken", 1, 3, 2, _COLD,
        "security.delegation_tokens:create_delegation_token",
        (within(on_user(AclOperation.CREATE_TOKENS), when="tokens of another owner"),), _REQUEST,
    ),
    Route(
        39, "RenewDelegationToken", 1, 2, 2, _COLD,
        "security.delegation_tokens:renew_delegation_token", _NOTHING, _REQUEST,
    ),
    Route(
        40, "ExpireDelegationToken", 1, 2, 2, _COLD,
        "security.delegation_tokens:expire_delegation_token", _NOTHING, _REQUEST,
    ),
    Route(
        41, "DescribeDelegationToken", 1, 3, 2, _COLD,
        "security.delegation_tokens:describe_delegation_token",
        (
            filtered(
                on_delegation_token(_DESCRIBE), on_user(AclOperation.DESCRIBE_TOKENS),
                when="tokens that the client did not request, does not own and may not renew",
            ),
        ),
        _REQUEST,
    ),
    Route(
        50, "DescribeUserScramCredentials", 0, 0, 0, _COLD,
        "security.scram_credentials:describe_user_scram_credentials",
        _DESCRIBE_CLUSTER, _REQUEST,
    ),
    Route(
        51, "AlterUserScramCredentials", 0, 0, 0, _COLD,
        "security.scram_credentials:alter_user_scram_credentials",
        (within(on_cluster(_ALTER)),), _REQUEST,
    ),
)  # fmt: skip

CLIENT_TELEMETRY = (
    Route(
        71, "GetTelemetrySubscriptions", 0, 0, 0, _COLD,
        "telemetry.get_telemetry_subscriptions:get_telemetry_subscriptions", _NOTHING, _REQUEST,
    ),
    Route(
        72, "PushTelemetry", 0, 0, 0, _COLD, "telemetry.push_telemetry:push_telemetry",
        _NOTHING, _REQUEST,
    ),
)  # fmt: skip

_QUOTAS = (
    Route(
        48, "DescribeClientQuotas", 0, 1, 1, _COLD,
        "security.client_quotas:describe_client_quotas",
        (before(on_cluster(_DESCRIBE_CONFIGS)),), _REQUEST,
    ),
    Route(
        49, "AlterClientQuotas", 0, 1, 1, _COLD, "security.client_quotas:alter_client_quotas",
        (before(on_cluster(_ALTER_CONFIGS)),), _REQUEST,
    ),
)  # fmt: skip

_CLUSTER = (
    API_VERSIONS,
    Route(
        34, "AlterReplicaLogDirs", 1, 2, 2, _COLD,
        "cluster.alter_replica_log_dirs:alter_replica_log_dirs",
        _ALTER_CLUSTER, _REQUEST,
    ),
    Route(
        35, "DescribeLogDirs", 1, 5, 2, _COLD, "cluster.describe_log_dirs:describe_log_dirs",
        _DESCRIBE_CLUSTER, _REQUEST,
    ),
    Route(
        43, "ElectLeaders", 0, 2, 2, _COLD, "cluster.elect_leaders:elect_leaders",
        _ALTER_CLUSTER, _REQUEST,
    ),
    Route(
        45, "AlterPartitionReassignments", 0, 1, 0, _COLD,
        "cluster.alter_partition_reassignments:alter_partition_reassignments",
        _ALTER_CLUSTER, _REQUEST,
    ),
    Route(
        46, "ListPartitionReassignments", 0, 0, 0, _COLD,
        "cluster.list_partition_reassignments:list_partition_reassignments",
        _DESCRIBE_CLUSTER, _REQUEST,
    ),
    Route(
        55, "DescribeQuorum", 0, 2, 0, _COLD, "cluster.describe_quorum:describe_quorum",
        _DESCRIBE_CLUSTER, _REQUEST,
    ),
    Route(
        57, "UpdateFeatures", 0, 2, 0, _COLD, "cluster.update_features:update_features",
        _ALTER_CLUSTER, _REQUEST,
    ),
    Route(
        60, "DescribeCluster", 0, 2, 0, _COLD, "cluster.describe_cluster:describe_cluster",
        _NOTHING, _REQUEST,
    ),
)  # fmt: skip

ROUTES: dict[int, Route] = {
    route.key: route
    for route in sorted(
        (
            *_RECORDS, *_TOPICS, *_GROUPS, *_SHARES, *_TRANSACTIONS, *_CONFIGS, *_SECURITY,
            *_QUOTAS, *_CLUSTER, *CLIENT_TELEMETRY,
        ),
        key=lambda route: route.key,
    )
}  # fmt: skip
