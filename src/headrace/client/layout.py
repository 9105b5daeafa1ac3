"""Replicas of the cluster as Metadata shows them, and requests to change them.

Reassignments and elections are accepted immediately and completed later; `moves_under_way` lists
the unfinished ones.

Changes are sent to the same broker as queries: another broker, even the controller, may see a
change earlier than this one, and the caller would plan the next step with outdated metadata.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.cluster import Cluster
from headrace.client.errors import check, error_of
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId, TopicPartition
from headrace.wire.primitives import BrokerId as WireBrokerId
from headrace.wire.primitives import TopicName, i8, i32

if TYPE_CHECKING:
    from kio.schema.metadata.v12.response import MetadataResponsePartition

PREFERRED = 0


@dataclass(frozen=True, slots=True)
class Held:
    """The replicas of a partition; the leader is -1 without one."""

    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId


@dataclass(frozen=True, slots=True)
class Layout:
    """The live brokers with their racks, and every partition."""

    racks: Mapping[BrokerId, str | None]
    partitions: Mapping[TopicPartition, Held]


@dataclass(frozen=True, slots=True)
class Moving:
    """A reassignment: all replicas, those that are added, and those that are removed."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


def read_layout(cluster: Cluster) -> Layout:
    """Every broker and every partition."""
    answer = cluster.metadata(None)
    return Layout(
        {int(row.node_id): row.rack for row in answer.brokers},
        {
            TopicPartition(str(topic.name), int(row.partition_index)): held(row)
            for topic in answer.topics
            for row in topic.partitions
        },
    )


def held(row: "MetadataResponsePartition") -> Held:
    """The replicas of a partition, from its row in a Metadata response."""
    return Held(
        tuple(map(int, row.replica_nodes)), tuple(map(int, row.isr_nodes)), int(row.leader_id)
    )


def move(
    cluster: Cluster, wanted: Mapping[TopicPartition, tuple[BrokerId, ...] | None]
) -> dict[TopicPartition, KafkaError]:
    """Begin reassignments to these replicas (None cancels one); returns the errors."""
    from kio.schema.alter_partition_reassignments.v0.request import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )
    from kio.schema.alter_partition_reassignments.v0.response import (
        AlterPartitionReassignmentsResponse,
    )

    topics: dict[str, list[ReassignablePartition]] = {}
    for (name, index), replicas in wanted.items():
        brokers = None if replicas is None else tuple(map(WireBrokerId, replicas))
        row = ReassignablePartition(partition_index=i32(index), replicas=brokers)
        topics.setdefault(name, []).append(row)
    request = AlterPartitionReassignmentsRequest(
        topics=tuple(
            ReassignableTopic(name=TopicName(name), partitions=tuple(rows))
            for name, rows in topics.items()
        )
    )
    answer = cluster.ask(request, AlterPartitionReassignmentsResponse)
    check(int(answer.error_code), "moving partitions", answer.error_message)
    return {
        partition: error_of(int(row.error_code), f"moving {partition}", row.error_message)
        for topic in answer.responses
        for row in topic.partitions
        for partition in [TopicPartition(str(topic.name), int(row.partition_index))]
        if row.error_code
    }


def moves_under_way(cluster: Cluster) -> dict[TopicPartition, Moving]:
    """The reassignments in progress."""
    from kio.schema.list_partition_reassignments.v0.request import (
        ListPartitionReassignmentsRequest,
    )
    from kio.schema.list_partition_reassignments.v0.response import (
        ListPartitionReassignmentsResponse,
    )

    request = ListPartitionReassignmentsRequest(topics=None)
    answer = cluster.ask(request, ListPartitionReassignmentsResponse)
    check(int(answer.error_code), "listing moves", answer.error_message)
    return {
        TopicPartition(str(topic.name), int(row.partition_index)): Moving(
            tuple(map(int, row.replicas)),
            tuple(map(int, row.adding_replicas)),
            tuple(map(int, row.removing_replicas)),
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def elect_preferred(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError]:
    """Elect preferred leaders; returns the errors. A needless election is not an error."""
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
    from kio.schema.elect_leaders.v2.response import ElectLeadersResponse

    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    request = ElectLeadersRequest(
        election_type=i8(PREFERRED),
        topic_partitions=tuple(
            TopicPartitions(topic=TopicName(name), partitions=tuple(map(i32, indexes)))
            for name, indexes in topics.items()
        ),
    )
    answer = cluster.ask(request, ElectLeadersResponse)
    check(int(answer.error_code), "electing leaders")
    return {
        partition: error_of(int(row.error_code), f"electing {partition}", row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
        for partition in [TopicPartition(str(topic.topic), int(row.partition_id))]
        if int(row.error_code) not in (0, ErrorCode.ELECTION_NOT_NEEDED)
    }
