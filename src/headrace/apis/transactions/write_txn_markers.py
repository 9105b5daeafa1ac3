"""WriteTxnMarkers (27), versions 1-2.

Ends a producer's transaction in the named partitions, with a commit or an abort, and responds when
the markers are committed. Transaction coordinators send it to the leaders of other partitions, and
administrators send it to end a transaction that its coordinator no longer has.

v2 the transaction version. From 2 on a marker has a higher epoch than the transaction that it ends,
so a delayed one never ends the producer's next transaction (KIP-1228).
"""

from asyncio import Future

from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from headrace.apis.context import RequestContext, Services
from headrace.cluster.image import OFFSETS_TOPIC
from headrace.coordination.transactions import BUMPS_AT_END
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.wire.primitives import TopicName, error, i32

_Written = ErrorCode | Future[None]
"""The error code of an append, or the future of its commit."""


async def write_txn_markers(
    services: Services, request: WriteTxnMarkersRequest, _context: RequestContext
) -> WriteTxnMarkersResponse:
    """Write the markers; an error of one partition does not affect the others."""
    # All are appended before the first wait, so that they share one flush.
    written = [
        [
            (
                topic.name,
                [(at, _write(services, marker, topic.name, at)) for at in topic.partition_indexes],
            )
            for topic in marker.topics
        ]
        for marker in request.markers
    ]
    return WriteTxnMarkersResponse(
        markers=tuple(
            [
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=tuple([await _topic_result(name, results) for name, results in topics]),
                )
                for marker, topics in zip(request.markers, written, strict=True)
            ]
        )
    )


def _write(services: Services, marker: WritableTxnMarker, topic: str, index: int) -> _Written:
    """Append one marker; returns an error code, or the future of its commit."""
    producer_id, epoch = marker.producer_id, marker.producer_epoch
    commit, coordinator_epoch = marker.transaction_result, marker.coordinator_epoch
    try:
        if producer_id < 0 or epoch < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a marker needs a producer id and epoch")
        partition = services.replicas.partition(topic, index)
        if marker.transaction_version >= BUMPS_AT_END:
            _check_later_epoch(partition, producer_id, epoch)
        if topic == OFFSETS_TOPIC:
            # The group coordinator has to apply the offsets of the transaction.
            offset = services.groups.append_marker(
                index, producer_id, epoch, commit, coordinator_epoch
            )
        else:
            now_ms = services.clock.now_ms()
            offset = partition.append_marker(producer_id, epoch, commit, coordinator_epoch, now_ms)
    except KafkaError as refusal:
        return refusal.code
    if partition.replica.is_committed(offset + 1):
        return ErrorCode.NONE
    return partition.wait_committed(offset + 1)


def _check_later_epoch(partition: Partition, producer_id: int, epoch: int) -> None:
    producer = partition.replica.log.producers.producers.get(producer_id)
    if producer is not None and producer.transaction_start >= 0 and producer.epoch >= epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{partition.name} has a transaction of epoch {producer.epoch}, which a marker of "
            f"epoch {epoch} does not end",
        )


async def _topic_result(
    name: TopicName, results: list[tuple[i32, _Written]]
) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(
        name=name,
        partitions=tuple(
            [
                WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=error(await _code(written))
                )
                for index, written in results
            ]
        ),
    )


async def _code(written: _Written) -> ErrorCode:
    if isinstance(written, ErrorCode):
        return written
    try:
        await written
    except KafkaError as refusal:
        return refusal.code
    return ErrorCode.NONE
