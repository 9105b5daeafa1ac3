"""A group's committed offsets: read them, write them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.client.cluster import GROUP, Cluster
from headrace.client.errors import check
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
