"""ListOffsets: the start and end offsets of partitions, and offsets by timestamp."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable, check
from headrace.types import TopicPartition
from headrace.wire.primitives import BrokerId, TopicName, i8, i32, i64

if TYPE_CHECKING:
    from kio.schema.list_offsets.v7.response import ListOffsetsPartitionResponse

LATEST, EARLIEST = -1, -2
UNCOMMITTED, COMMITTED = 0, 1


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An offset, and the timestamp of its record if it was searched by time; -1 if missing."""

    offset: int
    timestamp_ms: int


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int = UNCOMMITTED
) -> dict[TopicPartition, int]:
    """The offset of LATEST, of EARLIEST, or of the first record not older than a time in ms.

    -1 if all records are older. With COMMITTED, LATEST is the last stable offset.
    """
    found = find_offsets(cluster, wanted, isolation)
    return {partition: each.offset for partition, each in found.items()}


def find_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int = UNCOMMITTED
) -> dict[TopicPartition, FoundOffset]:
    """Like `list_offsets`, with timestamps and retries."""
    found: dict[TopicPartition, FoundOffset] = {}

    def attempt() -> None:
        missing = [partition for partition in wanted if partition not in found]
        for broker, topics in cluster.by_leader(missing).items():
            for partition, answer in _ask(cluster, broker, topics, wanted, isolation).items():
                found[partition] = _checked(partition, answer)

    cluster.retry("listing offsets", attempt)
    return found


def available_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int = UNCOMMITTED
) -> dict[TopicPartition, FoundOffset]:
    """Like `find_offsets`, in one attempt, with one request to each leader.

    Partitions that do not exist, and those whose leader does not respond, are left out.
    """
    found: dict[TopicPartition, FoundOffset] = {}
    for broker, topics in cluster.led_by(wanted).items():
        try:
            answers = _ask(cluster, broker, topics, wanted, isolation)
        except Unreachable:
            continue
        found |= {
            partition: FoundOffset(int(answer.offset), int(answer.timestamp))
            for partition, answer in answers.items()
            if not answer.error_code
        }
    return found


def end_offsets(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where partitions end, as far as `available_offsets` finds them."""
    found = available_offsets(cluster, dict.fromkeys(partitions, LATEST))
    return {partition: each.offset for partition, each in found.items()}


def _checked(partition: TopicPartition, answer: "ListOffsetsPartitionResponse") -> FoundOffset:
    check(int(answer.error_code), f"listing offsets of {partition}")
    return FoundOffset(int(answer.offset), int(answer.timestamp))


def _ask(
    cluster: Cluster,
    broker: int,
    topics: Mapping[str, list[TopicPartition]],
    wanted: Mapping[TopicPartition, int],
    isolation: int,
) -> "dict[TopicPartition, ListOffsetsPartitionResponse]":
    from kio.schema.list_offsets.v7.request import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )
    from kio.schema.list_offsets.v7.response import ListOffsetsResponse

    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(isolation),
        topics=tuple(
            ListOffsetsTopic(
                name=TopicName(name),
                partitions=tuple(
                    ListOffsetsPartition(
                        partition_index=i32(each.partition), timestamp=i64(wanted[each])
                    )
                    for each in partitions
                ),
            )
            for name, partitions in topics.items()
        ),
    )
    return {
        TopicPartition(str(topic.name), int(row.partition_index)): row
        for topic in cluster.ask(request, ListOffsetsResponse, broker).topics
        for row in topic.partitions
    }
