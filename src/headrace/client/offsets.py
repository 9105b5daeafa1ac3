"""ListOffsets: where partitions begin and end, and where a time begins."""

from collections.abc import Mapping

from headrace.client.cluster import Cluster
from headrace.client.errors import check
from headrace.types import TopicPartition
from headrace.wire.primitives import BrokerId, TopicName, i8, i32, i64

LATEST, EARLIEST = -1, -2
UNCOMMITTED, COMMITTED = 0, 1


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int = UNCOMMITTED
) -> dict[TopicPartition, int]:
    """The offset of LATEST, of EARLIEST, or of the first record not older than a time in ms.

    -1 where no record is as young as that. LATEST is the last stable offset for COMMITTED.
    """
    found: dict[TopicPartition, int] = {}

    def attempt() -> None:
        missing = [partition for partition in wanted if partition not in found]
        for broker, topics in cluster.by_leader(missing).items():
            found.update(_ask(cluster, broker, topics, wanted, isolation))

    cluster.patiently("listing offsets", attempt)
    return found


def _ask(
    cluster: Cluster,
    broker: int,
    topics: Mapping[str, list[TopicPartition]],
    wanted: Mapping[TopicPartition, int],
    isolation: int,
) -> dict[TopicPartition, int]:
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
    found: dict[TopicPartition, int] = {}
    for topic in cluster.ask(request, ListOffsetsResponse, broker).topics:
        for row in topic.partitions:
            partition = TopicPartition(str(topic.name), int(row.partition_index))
            check(int(row.error_code), f"listing offsets of {partition}")
            found[partition] = int(row.offset)
    return found
