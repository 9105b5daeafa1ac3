"""Fetch of many partitions at once: the first batches from an offset on, in one attempt.

It is for properties of single records, such as their time, and for following many partitions.
`fetching.py` reads whole ranges.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable, check, error_of
from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from headrace.wire.primitives import TopicName, i8, i32, i64, milliseconds

if TYPE_CHECKING:
    from kio.schema.fetch.v12.response import PartitionData

PARTITION_BYTES = 20_000
"""More than a batch of the default size; a larger batch is fetched alone."""
PARTITIONS_AT_ONCE = 200
LARGE_BATCH_BYTES = 1 << 20
WAIT_MS = 100
MAX_BYTES = 50 << 20


@dataclass(frozen=True, slots=True)
class FirstBatches:
    """The response for one partition: whole and partial batches, or an error."""

    records: bytes
    log_start: int
    high_watermark: int
    error: ErrorCode | None = None
    last_stable: int = -1
    aborted: tuple[tuple[int, int], ...] = ()
    """Producer id and first offset of aborted transactions, for `read_committed`."""


def first_batches(
    cluster: Cluster, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, FirstBatches]:
    """The first batches from these offsets on; every position is below its partition's end.

    Partitions that do not exist, have no leader or may not be described, and those of
    leaders that do not respond, are left out.
    """
    found: dict[TopicPartition, FirstBatches] = {}
    for broker, topics in cluster.led_by(positions).items():
        partitions = [each for rows in topics.values() for each in rows]
        for at in range(0, len(partitions), PARTITIONS_AT_ONCE):
            wanted = {each: positions[each] for each in partitions[at : at + PARTITIONS_AT_ONCE]}
            try:
                found |= fetch_partitions(cluster, broker, wanted, PARTITION_BYTES)
                for large in _too_large(found, wanted):
                    # The first partition of a request gets one batch of any size.
                    found |= fetch_partitions(
                        cluster, broker, {large: wanted[large]}, LARGE_BATCH_BYTES
                    )
            except Unreachable:
                break
    return found


def _too_large(
    found: Mapping[TopicPartition, FirstBatches], wanted: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    """Partitions with records and an empty response: their first batch is over the limit."""
    return [
        each
        for each, offset in wanted.items()
        if each in found
        and found[each].error is None
        and not found[each].records
        and offset < found[each].high_watermark
    ]


def fetch_partitions(
    cluster: Cluster,
    broker: int,
    wanted: Mapping[TopicPartition, int],
    partition_bytes: int,
    isolation: int = 0,
    wait_ms: int = WAIT_MS,
) -> dict[TopicPartition, FirstBatches]:
    """The first batches of partitions that this broker leads, in one attempt."""
    from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
    from kio.schema.fetch.v12.response import FetchResponse

    topics: dict[str, list[FetchPartition]] = {}
    for partition, offset in wanted.items():
        topics.setdefault(partition.topic, []).append(
            FetchPartition(
                partition=i32(partition.partition),
                fetch_offset=i64(offset),
                partition_max_bytes=i32(partition_bytes),
            )
        )
    request = FetchRequest(
        max_wait=milliseconds(wait_ms),
        min_bytes=i32(1),
        max_bytes=i32(min(partition_bytes * len(wanted), MAX_BYTES)),
        isolation_level=i8(isolation),
        topics=tuple(
            FetchTopic(topic=TopicName(name), partitions=tuple(rows))
            for name, rows in topics.items()
        ),
        forgotten_topics_data=(),
    )
    answer = cluster.ask(request, FetchResponse, broker)
    check(int(answer.error_code), "fetching records")
    return {
        TopicPartition(str(topic.topic), int(row.partition_index)): _first_batches(row)
        for topic in answer.responses
        for row in topic.partitions
    }


def _first_batches(row: "PartitionData") -> FirstBatches:
    return FirstBatches(
        bytes(row.records or b""),
        int(row.log_start_offset),
        int(row.high_watermark),
        error_of(int(row.error_code), "").code if row.error_code else None,
        int(row.last_stable_offset),
        tuple(
            (int(each.producer_id), int(each.first_offset))
            for each in row.aborted_transactions or ()
        ),
    )
