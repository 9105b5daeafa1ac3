"""Share groups: members, start offsets and lag, and the stored deliveries of records."""

import base64
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client.cluster import GROUP, Cluster
from headrace.client.errors import UnsupportedVersion, check
from headrace.client.groups import GroupDescription, MemberDescription
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire.primitives import GroupId, TopicName, i32, i64

SHARE = "share"
SHARE_COORDINATOR = 2
_AVAILABLE = 0


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The start offset of a share group in a partition; unknown values are None."""

    start: int | None
    lag: int | None
    topic_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class StoredDeliveries:
    """Records after the start offset, as far as the share coordinator has stored them."""

    released: int
    """Records that were delivered, and are to be delivered again."""
    most_deliveries: int
    """The largest number of deliveries of one record."""


def describe_share_groups(
    cluster: Cluster, broker: int, groups: Iterable[str]
) -> list[GroupDescription]:
    """Those of the groups that are share groups; none if the broker has no share groups."""
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
    from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse

    request = ShareGroupDescribeRequest(
        group_ids=tuple(map(GroupId, groups)), include_authorized_operations=False
    )
    try:
        answer = cluster.ask(request, ShareGroupDescribeResponse, broker)
    except UnsupportedVersion:  # before Apache Kafka 4.1
        return []
    found = []
    for row in answer.groups:
        if int(row.error_code) in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            continue
        check(int(row.error_code), f"group {row.group_id!r}", row.error_message)
        members = (
            MemberDescription(
                each.member_id,
                each.client_id,
                each.client_host.removeprefix("/"),
                None,
                tuple(
                    sorted(
                        TopicPartition(str(topic.topic_name), int(index))
                        for topic in each.assignment.topic_partitions
                        for index in topic.partitions
                    )
                ),
                None,
            )
            for each in row.members
        )
        found.append(
            GroupDescription(
                str(row.group_id),
                SHARE,
                SHARE,
                row.group_state,
                row.assignor_name,
                broker,
                tuple(sorted(members, key=lambda each: (each.client_id, each.id))),
            )
        )
    return found


def share_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, ShareOffset]:
    """The start offset and the lag in each partition of a share group, with retries."""
    from kio.schema.describe_share_group_offsets.v1.request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )
    from kio.schema.describe_share_group_offsets.v1.response import (
        DescribeShareGroupOffsetsResponse,
    )

    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group), topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=(wanted,))
    what = f"offsets of group {group!r}"

    def attempt() -> dict[TopicPartition, ShareOffset]:
        answer = cluster.ask(
            request, DescribeShareGroupOffsetsResponse, cluster.coordinator(GROUP, group)
        )
        (found,) = answer.groups
        check(int(found.error_code), what, found.error_message)
        offsets = {}
        for topic in found.topics:
            for row in topic.partitions:
                check(int(row.error_code), what, row.error_message)
                at = TopicPartition(str(topic.topic_name), int(row.partition_index))
                offsets[at] = ShareOffset(
                    _known(int(row.start_offset)), _known(int(row.lag)), topic.topic_id
                )
        return offsets

    return cluster.retry(what, attempt)


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def stored_deliveries(
    cluster: Cluster, group: str, topic_id: uuid.UUID, partition: int
) -> StoredDeliveries | None:
    """The deliveries that are stored; None if the client may not read them."""
    from kio.schema.read_share_group_state.v0.request import (
        PartitionData,
        ReadShareGroupStateRequest,
        ReadStateData,
    )
    from kio.schema.read_share_group_state.v0.response import ReadShareGroupStateResponse

    # Without a leader epoch: reading must not fence the leader of the partition.
    row = PartitionData(partition=i32(partition), leader_epoch=i32(-1))
    request = ReadShareGroupStateRequest(
        group_id=group, topics=(ReadStateData(topic_id=topic_id, partitions=(row,)),)
    )
    encoded = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    try:
        broker = cluster.coordinator(SHARE_COORDINATOR, f"{group}:{encoded}:{partition}")
        answer = cluster.ask(request, ReadShareGroupStateResponse, broker)
        found = answer.results[0].partitions[0]
        check(int(found.error_code), f"state of group {group!r}", found.error_message)
    except (KafkaError, UnsupportedVersion):
        return None
    released = [one for one in found.state_batches if one.delivery_state == _AVAILABLE]
    return StoredDeliveries(
        sum(one.last_offset - one.first_offset + 1 for one in released if one.delivery_count > 0),
        max((int(one.delivery_count) for one in found.state_batches), default=0),
    )


def alter_share_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Set start offsets of a share group that has no members, with retries."""
    from kio.schema.alter_share_group_offsets.v0.request import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestPartition,
        AlterShareGroupOffsetsRequestTopic,
    )
    from kio.schema.alter_share_group_offsets.v0.response import AlterShareGroupOffsetsResponse

    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for at, offset in offsets.items():
        row = AlterShareGroupOffsetsRequestPartition(
            partition_index=i32(at.partition), start_offset=i64(offset)
        )
        topics.setdefault(at.topic, []).append(row)
    request = AlterShareGroupOffsetsRequest(
        group_id=GroupId(group),
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(topic_name=TopicName(name), partitions=tuple(rows))
            for name, rows in topics.items()
        ),
    )
    what = f"start offsets of group {group!r}"

    def attempt() -> None:
        answer = cluster.ask(
            request, AlterShareGroupOffsetsResponse, cluster.coordinator(GROUP, group)
        )
        check(int(answer.error_code), what, answer.error_message)
        for topic in answer.responses:
            for row in topic.partitions:
                where = f"{what}: {topic.topic_name}-{row.partition_index}"
                check(int(row.error_code), where, row.error_message)

    cluster.retry(what, attempt)
