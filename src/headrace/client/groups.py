"""Groups: which there are, who is in them, and their committed offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.client.cluster import GROUP, Cluster
from headrace.client.errors import ClientError, Unreachable, check
from headrace.errors import KafkaError
from headrace.types import TopicPartition
from headrace.wire.primitives import GroupId, TopicName, i32, i64


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset and the text beside it."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Membership:
    """As whom to commit; a group without members takes commits from nobody in particular."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NOBODY = Membership()

CLASSIC, CONSUMER = "classic", "consumer"
LISTING_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as its coordinator lists it."""

    name: str
    type: str
    """`classic`, `consumer`, `share`, ...: the protocol between members and coordinator."""
    protocol_type: str
    """What the members of a classic group are: `consumer`, `connect`, ...; empty if nobody said."""
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """A member of a classic group of any protocol type."""

    id: str
    client_id: str
    host: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    """A classic group of any protocol type; what its members are assigned is not decoded."""

    state: str
    protocol: str
    members: tuple[ClassicMember, ...]


def list_groups(cluster: Cluster) -> tuple[list[ListedGroup], list[KafkaError | ClientError]]:
    """All groups of every type, and what kept brokers from listing theirs."""
    from kio.schema.list_groups.v5.request import ListGroupsRequest
    from kio.schema.list_groups.v5.response import ListGroupsResponse

    found: list[ListedGroup] = []
    failures: list[KafkaError | ClientError] = []
    for broker in cluster.brokers():
        what = f"listing the groups of broker {broker}"

        def attempt(broker: int = broker, what: str = what) -> ListGroupsResponse:
            answer = cluster.ask(ListGroupsRequest(), ListGroupsResponse, broker)
            check(int(answer.error_code), what)
            return answer

        try:
            answer = cluster.patiently(what, attempt, LISTING_PATIENCE_S)
        except (KafkaError, Unreachable) as error:
            failures.append(error)
            continue
        found += [
            ListedGroup(
                str(row.group_id),
                row.group_type.lower() or CLASSIC,
                row.protocol_type,
                row.group_state,
                broker,
            )
            for row in answer.groups
        ]
    return found, failures


def describe_classic(cluster: Cluster, group: str) -> ClassicGroup:
    """A classic group; patient."""
    from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
    from kio.schema.describe_groups.v5.response import DescribeGroupsResponse

    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    what = f"describing group {group!r}"

    def attempt() -> ClassicGroup:
        broker = cluster.coordinator(GROUP, group)
        (answer,) = cluster.ask(request, DescribeGroupsResponse, broker).groups
        check(int(answer.error_code), what)
        members = tuple(
            ClassicMember(
                row.member_id, row.client_id, row.client_host, row.group_instance_id or None
            )
            for row in answer.members
        )
        return ClassicGroup(answer.group_state, answer.protocol_data, members)

    return cluster.patiently(what, attempt)


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    member: Membership = NOBODY,
    timeout_s: float | None = None,
) -> None:
    """Commit for a group; patient."""
    from kio.schema.offset_commit.v8.request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from kio.schema.offset_commit.v8.response import OffsetCommitResponse

    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, committed in offsets.items():
        row = OffsetCommitRequestPartition(
            partition_index=i32(partition.partition),
            committed_offset=i64(committed.offset),
            committed_metadata=committed.metadata,
        )
        topics.setdefault(partition.topic, []).append(row)
    request = OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=i32(member.generation),
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=TopicName(name), partitions=tuple(rows))
            for name, rows in topics.items()
        ),
    )
    what = f"committing offsets of group {group!r}"

    def attempt() -> None:
        answer = cluster.ask(request, OffsetCommitResponse, cluster.coordinator(GROUP, group))
        for topic in answer.topics:
            for row in topic.partitions:
                check(int(row.error_code), f"{what}: {topic.name}-{row.partition_index}")

    cluster.patiently(what, attempt, timeout_s)


def committed_offsets(
    cluster: Cluster,
    group: str,
    partitions: Sequence[TopicPartition] | None = None,
    *,
    stable: bool = True,
    timeout_s: float | None = None,
) -> dict[TopicPartition, Committed]:
    """What is committed, of these partitions or of all; patient.

    `stable` waits until no open transaction may still change it.
    """
    from kio.schema.offset_fetch.v8.request import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopics,
    )
    from kio.schema.offset_fetch.v8.response import OffsetFetchResponse

    topics: dict[str, list[int]] = {}
    for partition in partitions or ():
        topics.setdefault(partition.topic, []).append(partition.partition)
    asked = tuple(
        OffsetFetchRequestTopics(name=TopicName(name), partition_indexes=tuple(map(i32, indexes)))
        for name, indexes in topics.items()
    )
    request = OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id=GroupId(group), topics=None if partitions is None else asked
            ),
        ),
        require_stable=stable,
    )
    what = f"reading offsets of group {group!r}"

    def attempt() -> dict[TopicPartition, Committed]:
        broker = cluster.coordinator(GROUP, group)
        (answer,) = cluster.ask(request, OffsetFetchResponse, broker).groups
        check(int(answer.error_code), what)
        found: dict[TopicPartition, Committed] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                check(int(row.error_code), f"{what}: {topic.name}-{row.partition_index}")
                if row.committed_offset >= 0:
                    at = TopicPartition(str(topic.name), int(row.partition_index))
                    found[at] = Committed(int(row.committed_offset), row.metadata or "")
        return found

    return cluster.patiently(what, attempt, timeout_s)
