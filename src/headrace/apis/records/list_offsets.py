"""ListOffsets (2), versions 1-11.

Returns an offset for each partition: -1 the end, -2 the beginning, -3 the record with the largest
timestamp, -4 the beginning of the local log, -5 the end of the tiered log, -6 the first record that
is not tiered yet; for any other number the first record whose timestamp is at least that number.
Consumers see the log up to the high
watermark, or with `read_committed` up to the last stable offset; replicas (a replica id, or -2 for
debugging) see all of it.

v2 isolation level; v4 leader epochs in request and response; v5 no change; v6 flexible; v7 allows
-3, v8 -4, v9 -5; v10 a timeout for tiered storage; v11 allows -6.

Not done: tiered storage, so -4 is the same as -2, and -5 and -6 have no offset.
"""

from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import need_topic
from headrace.errors import ErrorCode, KafkaError
from headrace.log.timestamps import (
    BatchSearch,
    LongSearch,
    Searched,
    SearchKey,
    TimestampOffset,
)
from headrace.replication.partition import Partition
from headrace.security.acls import AclOperation
from headrace.wire.primitives import NO_ERROR, error, i32, i64, respond

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
CONSUMER = -1
READ_COMMITTED = 1
NOTHING = (-1, -1, -1)

_Found = tuple[int, int, int]


def list_offsets(
    services: Services, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Coroutine[None, None, ListOffsetsResponse]:
    """Look up each partition; asynchronously, if a large batch has to be searched."""
    response, wanted = _look_up(services, request, context, {})
    return _search(services, request, context, wanted) if wanted else response


async def _search(
    services: Services,
    request: ListOffsetsRequest,
    context: RequestContext,
    wanted: list[BatchSearch],
) -> ListOffsetsResponse:
    """Search large batches until the response is complete. The logs may change meanwhile."""
    searched: dict[SearchKey, TimestampOffset | None] = {}
    while True:
        for search in wanted:
            searched[search.key] = await services.long_batches.search(search)
        response, wanted = _look_up(services, request, context, searched)
        if not wanted:
            return response


def _look_up(
    services: Services, request: ListOffsetsRequest, context: RequestContext, searched: Searched
) -> tuple[ListOffsetsResponse, list[BatchSearch]]:
    """The response, and the searches that are still needed."""
    lacking: list[BatchSearch] = []
    named = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    visible_end = _visible_end(request, context.version)
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            try:
                need_topic(context.caller, AclOperation.DESCRIBE, topic.name)
                if named[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                _check_timestamp(wanted.timestamp, context.version)
                partition = services.replicas.partition(topic.name, wanted.partition_index)
                partition.check_epoch(wanted.current_leader_epoch)
                found = _find(partition, wanted.timestamp, visible_end(partition), searched)
                answers.append(_answer(wanted, found))
            except LongSearch as long:
                lacking.append(long.search)
            except KafkaError as refusal:
                answers.append(_refuse(wanted, refusal.code))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers)))
    return respond(partial(ListOffsetsResponse, topics=tuple(topics))), lacking


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < FIRST_VERSION.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _visible_end(request: ListOffsetsRequest, version: int) -> Callable[[Partition], int]:
    """The end of a log as this client sees it."""
    if request.replica_id != CONSUMER:
        return lambda partition: partition.replica.log.end_offset
    if request.isolation_level == READ_COMMITTED:
        return lambda partition: _settled(partition, version).replica.last_stable_offset
    return lambda partition: _settled(partition, version).replica.high_watermark


def _settled(partition: Partition, version: int) -> Partition:
    """The partition; a retriable error while a new leader does not know the high watermark yet."""
    if not partition.has_current_high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        )
    return partition


def _find(partition: Partition, timestamp: int, end: int, searched: Searched) -> _Found:
    """(timestamp, offset, leader epoch), -1 for missing values."""
    log = partition.replica.log
    if timestamp == LATEST:
        return -1, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset, log.epochs.epoch_at(log.start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    if timestamp == MAX_TIMESTAMP:
        found = log.max_timestamp(searched)
    else:
        found = log.find_timestamp(timestamp, searched)
    if found is None or found.offset >= end:
        return NOTHING
    return found.timestamp, found.offset, found.epoch


def _answer(wanted: ListOffsetsPartition, found: _Found) -> ListOffsetsPartitionResponse:
    timestamp, offset, epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=NO_ERROR,
        timestamp=i64(timestamp),
        offset=i64(offset),
        leader_epoch=i32(epoch),
    )


def _refuse(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=error(code)
    )
