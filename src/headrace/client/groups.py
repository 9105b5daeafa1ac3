"""Groups: list, describe and delete them; read and commit their offsets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.client.cluster import GROUP, Cluster
from headrace.client.consumer_protocol import MalformedProtocol, decode_assignment
from headrace.client.errors import (
    ClientError,
    Unreachable,
    UnsupportedVersion,
    check,
    error_of,
    is_retriable,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.primitives import GroupId, TopicName, i32, i64


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset and its metadata."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """The member that commits; a group without members needs none."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NO_MEMBER = GroupMembership()

CLASSIC, CONSUMER = "classic", "consumer"
DEAD = "Dead"
LISTING_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group as its coordinator lists it."""

    name: str
    type: str
    """`classic`, `consumer`, `share`, ...: the protocol between members and coordinator."""
    protocol_type: str
    """The protocol type of a classic group: `consumer`, `connect`, ...; empty if unknown."""
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group.

    `assignment` is None if only members can decode it: in a classic group whose protocol type is
    not `consumer`. `target` is the target assignment of the member, in a group of type `consumer`.
    """

    id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[TopicPartition, ...] | None
    target: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it; the state is DEAD if it does not exist."""

    name: str
    type: str
    protocol_type: str
    state: str
    assignor: str
    """The assignor, or the protocol of a classic group whose type is not `consumer`."""
    coordinator: int
    members: tuple[MemberDescription, ...] = ()


def list_groups(cluster: Cluster) -> tuple[list[ListedGroup], list[KafkaError | ClientError]]:
    """All groups of every type, and the errors of brokers that could not list theirs."""
    from kio.schema.list_groups.v5.request import ListGroupsRequest
    from kio.schema.list_groups.v5.response import ListGroupsResponse

    found: list[ListedGroup] = []
    failures: list[KafkaError | ClientError] = []
    for broker in cluster.retry("listing brokers", cluster.brokers):
        what = f"listing the groups of broker {broker}"

        def attempt(broker: int = broker, what: str = what) -> ListGroupsResponse:
            answer = cluster.ask(ListGroupsRequest(), ListGroupsResponse, broker)
            check(int(answer.error_code), what)
            return answer

        try:
            patience_s = min(LISTING_PATIENCE_S, cluster.config.total_timeout_s)
            answer = cluster.retry(what, attempt, patience_s)
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


def describe_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, GroupDescription]:
    """Describe classic and consumer groups, with retries. Others and missing ones are DEAD."""
    wanted = list(dict.fromkeys(groups))
    found: dict[str, GroupDescription] = {}

    def attempt() -> None:
        missing = [name for name in wanted if name not in found]
        for broker, names in cluster.by_coordinator(GROUP, missing).items():
            found.update(_describe_consumer(cluster, broker, names))
            rest = [name for name in names if name not in found]
            if rest:
                found.update(_describe_classic(cluster, broker, rest))

    cluster.retry("describing groups", attempt)
    return {name: found[name] for name in wanted}


def _describe_consumer(
    cluster: Cluster, broker: int, groups: Iterable[str]
) -> dict[str, GroupDescription]:
    """Describe those groups that are of type `consumer`."""
    from kio.schema.consumer_group_describe.v0.request import ConsumerGroupDescribeRequest
    from kio.schema.consumer_group_describe.v0.response import (
        Assignment,
        ConsumerGroupDescribeResponse,
    )

    request = ConsumerGroupDescribeRequest(
        group_ids=tuple(map(GroupId, groups)), include_authorized_operations=False
    )
    try:
        answer = cluster.ask(request, ConsumerGroupDescribeResponse, broker)
    except UnsupportedVersion:  # before Apache Kafka 3.7 all groups are classic
        return {}

    def partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                TopicPartition(str(topic.topic_name), int(index))
                for topic in assignment.topic_partitions
                for index in topic.partitions
            )
        )

    found: dict[str, GroupDescription] = {}
    for row in answer.groups:
        if int(row.error_code) in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            continue
        check(int(row.error_code), f"group {row.group_id!r}", row.error_message)
        members = (
            MemberDescription(
                each.member_id,
                each.client_id,
                _host(each.client_host),
                each.instance_id or None,
                partitions(each.assignment),
                partitions(each.target_assignment),
            )
            for each in row.members
        )
        name = str(row.group_id)
        found[name] = GroupDescription(
            name, CONSUMER, CONSUMER, row.group_state, row.assignor_name, broker, _sorted(members)
        )
    return found


def _describe_classic(
    cluster: Cluster, broker: int, groups: Iterable[str]
) -> dict[str, GroupDescription]:
    from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
    from kio.schema.describe_groups.v5.response import DescribeGroupsResponse

    request = DescribeGroupsRequest(
        groups=tuple(map(GroupId, groups)), include_authorized_operations=False
    )
    found: dict[str, GroupDescription] = {}
    for row in cluster.ask(request, DescribeGroupsResponse, broker).groups:
        check(int(row.error_code), f"group {row.group_id!r}")
        of_consumers = row.protocol_type in ("", CONSUMER)
        members = (
            MemberDescription(
                each.member_id,
                each.client_id,
                _host(each.client_host),
                each.group_instance_id or None,
                _decoded(each.member_assignment) if of_consumers else None,
                None,
            )
            for each in row.members
        )
        found[str(row.group_id)] = GroupDescription(
            str(row.group_id),
            CLASSIC,
            row.protocol_type,
            row.group_state,
            row.protocol_data,
            broker,
            _sorted(members),
        )
    return found


def _host(text: str) -> str:
    """The host without the slash that Java prints before addresses."""
    return text.removeprefix("/")


def _sorted(members: Iterable[MemberDescription]) -> tuple[MemberDescription, ...]:
    return tuple(sorted(members, key=lambda each: (each.client_id, each.id)))


def _decoded(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """The partitions of an assignment; None if it is malformed."""
    try:
        return decode_assignment(assignment).partitions
    except MalformedProtocol:
        return None


def delete_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, KafkaError]:
    """Delete groups with their offsets, with retries; returns the errors by group."""
    from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
    from kio.schema.delete_groups.v2.response import DeleteGroupsResponse

    left = list(dict.fromkeys(groups))
    refused: dict[str, KafkaError] = {}

    def attempt() -> None:
        for broker, names in cluster.by_coordinator(GROUP, tuple(left)).items():
            request = DeleteGroupsRequest(groups_names=tuple(map(GroupId, names)))
            for row in cluster.ask(request, DeleteGroupsResponse, broker).results:
                name = str(row.group_id)
                if row.error_code:
                    error = error_of(int(row.error_code), f"group {name!r}")
                    if is_retriable(error):
                        raise error
                    refused[name] = error
                left.remove(name)

    cluster.retry("deleting groups", attempt)
    return refused


def delete_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete the committed offsets of partitions, with retries; a missing group is no error."""
    from kio.schema.offset_delete.v0.request import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )
    from kio.schema.offset_delete.v0.response import OffsetDeleteResponse

    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for partition in partitions:
        row = OffsetDeleteRequestPartition(partition_index=i32(partition.partition))
        topics.setdefault(partition.topic, []).append(row)
    request = OffsetDeleteRequest(
        group_id=GroupId(group),
        topics=tuple(
            OffsetDeleteRequestTopic(name=TopicName(name), partitions=tuple(rows))
            for name, rows in topics.items()
        ),
    )
    what = f"deleting offsets of group {group!r}"

    def attempt() -> None:
        answer = cluster.ask(request, OffsetDeleteResponse, cluster.coordinator(GROUP, group))
        if int(answer.error_code) == ErrorCode.GROUP_ID_NOT_FOUND:
            return
        check(int(answer.error_code), what)
        for topic in answer.topics:
            for row in topic.partitions:
                check(int(row.error_code), f"{what}: {topic.name}-{row.partition_index}")

    cluster.retry(what, attempt)


def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    member: GroupMembership = NO_MEMBER,
    timeout_s: float | None = None,
) -> None:
    """Commit offsets of a group, with retries."""
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

    cluster.retry(what, attempt, timeout_s)


def committed_offsets(
    cluster: Cluster,
    group: str,
    partitions: Sequence[TopicPartition] | None = None,
    *,
    stable: bool = True,
    timeout_s: float | None = None,
) -> dict[TopicPartition, Committed]:
    """The committed offsets of a group, of these partitions or of all; with retries.

    `stable` waits until no open transaction can change them.
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

    return cluster.retry(what, attempt, timeout_s)


def committed_by_group(
    cluster: Cluster, groups: Iterable[str]
) -> tuple[dict[str, dict[TopicPartition, Committed]], dict[str, KafkaError]]:
    """All committed offsets of many groups, with one request to each coordinator; patient.

    The second result has the groups whose offsets could not be read, and why.
    """
    from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
    from kio.schema.offset_fetch.v8.response import OffsetFetchResponse

    left = list(dict.fromkeys(groups))
    found: dict[str, dict[TopicPartition, Committed]] = {}
    refused: dict[str, KafkaError] = {}

    def attempt() -> None:
        wanted = [name for name in left if name not in found and name not in refused]
        for broker, names in cluster.by_coordinator(GROUP, wanted).items():
            request = OffsetFetchRequest(
                groups=tuple(
                    OffsetFetchRequestGroup(group_id=GroupId(name), topics=None) for name in names
                ),
                require_stable=False,
            )
            for answer in cluster.ask(request, OffsetFetchResponse, broker).groups:
                name = str(answer.group_id)
                if answer.error_code:
                    error = error_of(int(answer.error_code), f"offsets of group {name!r}")
                    if is_retriable(error):
                        raise error
                    refused[name] = error
                    continue
                found[name] = {
                    TopicPartition(str(topic.name), int(row.partition_index)): Committed(
                        int(row.committed_offset), row.metadata or ""
                    )
                    for topic in answer.topics
                    for row in topic.partitions
                    if row.committed_offset >= 0 and not row.error_code
                }

    cluster.retry("reading offsets of groups", attempt)
    return found, refused
