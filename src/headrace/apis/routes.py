"""The one table of what this broker speaks: a row an API.

ApiVersions, dispatch and the docs derive from it. The four APIs that clients call most are written
by hand and have no handler here; `broker.dispatch` calls them directly. A handler is named by its
module and function and is imported when it is first needed, so that the broker starts fast.
"""

from importlib import import_module
from typing import NamedTuple

from headrace.apis.context import RequestContext, Services


class Route(NamedTuple):
    """An API: its key, the versions we speak, from which one on it is flexible, who answers."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int
    handler: str | None

    def answer(self, services: Services, request: object, context: RequestContext) -> object:
        """Call the handler, importing its module at first use."""
        assert self.handler is not None, f"{self.name} is dispatched by hand"
        module, function = self.handler.split(":")
        return getattr(import_module(f"headrace.apis.{module}"), function)(
            services, request, context
        )


PRODUCE = Route(0, "Produce", 0, 13, 9, None)
FETCH = Route(1, "Fetch", 4, 18, 12, None)
METADATA = Route(3, "Metadata", 0, 13, 9, None)
API_VERSIONS = Route(18, "ApiVersions", 0, 4, 3, None)
SASL_HANDSHAKE = Route(17, "SaslHandshake", 0, 1, 2, "security.sasl:refuse_login")
SASL_AUTHENTICATE = Route(36, "SaslAuthenticate", 0, 2, 2, "security.sasl:refuse_login")

_COLD = (
    Route(2, "ListOffsets", 1, 10, 6, "records.list_offsets:list_offsets"),
    Route(8, "OffsetCommit", 2, 9, 8, "groups.offset_commit:offset_commit"),
    Route(9, "OffsetFetch", 1, 9, 6, "groups.offset_fetch:offset_fetch"),
    Route(10, "FindCoordinator", 0, 6, 3, "groups.find_coordinator:find_coordinator"),
    Route(11, "JoinGroup", 0, 9, 6, "groups.join_group:join_group"),
    Route(12, "Heartbeat", 0, 4, 4, "groups.heartbeat:heartbeat"),
    Route(13, "LeaveGroup", 0, 5, 4, "groups.leave_group:leave_group"),
    Route(14, "SyncGroup", 0, 5, 4, "groups.sync_group:sync_group"),
    Route(15, "DescribeGroups", 0, 6, 5, "groups.describe_groups:describe_groups"),
    Route(16, "ListGroups", 0, 5, 3, "groups.list_groups:list_groups"),
    Route(19, "CreateTopics", 2, 7, 5, "topics.create_topics:create_topics"),
    Route(20, "DeleteTopics", 1, 6, 4, "topics.delete_topics:delete_topics"),
    Route(21, "DeleteRecords", 0, 2, 2, "records.delete_records:delete_records"),
    Route(22, "InitProducerId", 0, 5, 2, "transactions.init_producer_id:init_producer_id"),
    Route(
        23,
        "OffsetForLeaderEpoch",
        2,
        4,
        4,
        "records.offset_for_leader_epoch:offset_for_leader_epoch",
    ),
    Route(
        24,
        "AddPartitionsToTxn",
        0,
        5,
        3,
        "transactions.add_partitions_to_txn:add_partitions_to_txn",
    ),
    Route(25, "AddOffsetsToTxn", 0, 4, 3, "transactions.add_offsets_to_txn:add_offsets_to_txn"),
    Route(26, "EndTxn", 0, 5, 3, "transactions.end_txn:end_txn"),
    Route(27, "WriteTxnMarkers", 1, 1, 1, "transactions.write_txn_markers:write_txn_markers"),
    Route(28, "TxnOffsetCommit", 0, 5, 3, "transactions.txn_offset_commit:txn_offset_commit"),
    Route(32, "DescribeConfigs", 1, 4, 4, "configs.configs:describe_configs"),
    Route(33, "AlterConfigs", 0, 2, 2, "configs.configs:alter_configs"),
    Route(
        34, "AlterReplicaLogDirs", 1, 2, 2, "cluster.alter_replica_log_dirs:alter_replica_log_dirs"
    ),
    Route(35, "DescribeLogDirs", 1, 4, 2, "cluster.describe_log_dirs:describe_log_dirs"),
    Route(37, "CreatePartitions", 0, 3, 2, "topics.create_partitions:create_partitions"),
    Route(42, "DeleteGroups", 0, 2, 2, "groups.delete_groups:delete_groups"),
    Route(43, "ElectLeaders", 0, 2, 2, "cluster.elect_leaders:elect_leaders"),
    Route(44, "IncrementalAlterConfigs", 0, 1, 1, "configs.configs:incremental_alter_configs"),
    Route(
        45,
        "AlterPartitionReassignments",
        0,
        1,
        0,
        "cluster.alter_partition_reassignments:alter_partition_reassignments",
    ),
    Route(
        46,
        "ListPartitionReassignments",
        0,
        0,
        0,
        "cluster.list_partition_reassignments:list_partition_reassignments",
    ),
    Route(47, "OffsetDelete", 0, 0, 1, "groups.offset_delete:offset_delete"),
    Route(55, "DescribeQuorum", 0, 2, 0, "cluster.describe_quorum:describe_quorum"),
    Route(57, "UpdateFeatures", 0, 2, 0, "cluster.update_features:update_features"),
    Route(60, "DescribeCluster", 0, 2, 0, "cluster.describe_cluster:describe_cluster"),
    Route(61, "DescribeProducers", 0, 0, 0, "transactions.describe_producers:describe_producers"),
    Route(
        65,
        "DescribeTransactions",
        0,
        0,
        0,
        "transactions.describe_transactions:describe_transactions",
    ),
    Route(66, "ListTransactions", 0, 2, 0, "transactions.list_transactions:list_transactions"),
    Route(
        68,
        "ConsumerGroupHeartbeat",
        0,
        1,
        0,
        "groups.consumer_group_heartbeat:consumer_group_heartbeat",
    ),
    Route(
        69,
        "ConsumerGroupDescribe",
        0,
        1,
        0,
        "groups.consumer_group_describe:consumer_group_describe",
    ),
    Route(
        74, "ListConfigResources", 0, 1, 0, "configs.list_config_resources:list_config_resources"
    ),
    Route(
        75,
        "DescribeTopicPartitions",
        0,
        0,
        0,
        "topics.describe_topic_partitions:describe_topic_partitions",
    ),
)

ROUTES: dict[int, Route] = {
    route.key: route
    for route in sorted(
        (PRODUCE, FETCH, METADATA, API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, *_COLD)
    )
}
