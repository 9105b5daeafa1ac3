"""InitializeShareGroupState (83), ReadShareGroupState (84), WriteShareGroupState (85),
DeleteShareGroupState (86) and ReadShareGroupStateSummary (87).

Brokers send them to the share coordinator, the leader of the partition of `__share_group_state` to
which a share partition belongs. Versions 0; 85 and 87 also have version 1, with the number of
offsets whose delivery is complete.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.delete_share_group_state.v0 import request as delete
from kio.schema.delete_share_group_state.v0 import response as deleted
from kio.schema.initialize_share_group_state.v0 import request as initialize
from kio.schema.initialize_share_group_state.v0 import response as initialized
from kio.schema.read_share_group_state.v0 import request as read
from kio.schema.read_share_group_state.v0 import response as was_read
from kio.schema.read_share_group_state_summary.v1 import request as summary
from kio.schema.read_share_group_state_summary.v1 import response as summarized
from kio.schema.write_share_group_state.v1 import request as write
from kio.schema.write_share_group_state.v1 import response as written

from headrace.apis.context import RequestContext, Services
from headrace.coordination.shares.delivery import DeliveryState, StateBatch
from headrace.coordination.shares.share_records import SharePartitionKey
from headrace.coordination.shares.share_states import ShareState, ShareStateWrite
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import NO_ERROR, error, i8, i16, i32, i64

_Result = TypeVar("_Result")
_Row = TypeVar("_Row")


async def initialize_share_group_state(
    services: Services,
    request: initialize.InitializeShareGroupStateRequest,
    _context: RequestContext,
) -> initialized.InitializeShareGroupStateResponse:
    """Create the state of share partitions."""
    coordinator = services.shares.coordinator

    async def one(key: SharePartitionKey, row: Any) -> initialized.PartitionResult:
        await _settled(coordinator.initialize(key, row.state_epoch, row.start_offset))
        return initialized.PartitionResult(partition=row.partition, error_code=NO_ERROR)

    def refuse(row: Any, why: KafkaError) -> initialized.PartitionResult:
        return initialized.PartitionResult(
            partition=row.partition, error_code=error(why.code), error_message=why.message
        )

    topics = await _each(request, one, refuse)
    return initialized.InitializeShareGroupStateResponse(
        results=tuple(
            initialized.InitializeStateResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics
        )
    )


async def read_share_group_state(
    services: Services, request: read.ReadShareGroupStateRequest, _context: RequestContext
) -> was_read.ReadShareGroupStateResponse:
    """The state of share partitions, for the leaders of the partitions."""
    coordinator = services.shares.coordinator

    async def one(key: SharePartitionKey, row: Any) -> was_read.PartitionResult:
        state: ShareState = await _settled(coordinator.read(key, row.leader_epoch))
        return was_read.PartitionResult(
            partition=row.partition,
            error_code=NO_ERROR,
            state_epoch=i32(state.state_epoch),
            start_offset=i64(state.start),
            state_batches=tuple(
                was_read.StateBatch(
                    first_offset=i64(batch.first),
                    last_offset=i64(batch.last),
                    delivery_state=i8(batch.state),
                    delivery_count=i16(batch.deliveries),
                )
                for batch in state.batches
            ),
        )

    def refuse(row: Any, why: KafkaError) -> was_read.PartitionResult:
        return was_read.PartitionResult(
            partition=row.partition,
            error_code=error(why.code),
            error_message=why.message,
            state_epoch=i32(0),
            start_offset=i64(-1),
            state_batches=(),
        )

    topics = await _each(request, one, refuse)
    return was_read.ReadShareGroupStateResponse(
        results=tuple(
            was_read.ReadStateResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics
        )
    )


async def write_share_group_state(
    services: Services, request: write.WriteShareGroupStateRequest, _context: RequestContext
) -> written.WriteShareGroupStateResponse:
    """Store changes of share partitions."""
    coordinator = services.shares.coordinator

    async def one(key: SharePartitionKey, row: Any) -> written.PartitionResult:
        change = ShareStateWrite(
            row.state_epoch, row.leader_epoch, row.start_offset, _batches(row),
            row.delivery_complete_count,
        )  # fmt: skip
        await _settled(coordinator.write(key, change))
        return written.PartitionResult(partition=row.partition, error_code=NO_ERROR)

    def refuse(row: Any, why: KafkaError) -> written.PartitionResult:
        return written.PartitionResult(
            partition=row.partition, error_code=error(why.code), error_message=why.message
        )

    topics = await _each(request, one, refuse)
    return written.WriteShareGroupStateResponse(
        results=tuple(
            written.WriteStateResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics
        )
    )


def _batches(row: write.PartitionData) -> tuple[StateBatch, ...]:
    found = []
    for one in row.state_batches:
        if not 0 <= one.first_offset <= one.last_offset or one.delivery_state not in (0, 2, 4):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{one} is not a state batch")
        state = DeliveryState(one.delivery_state)
        found.append(StateBatch(one.first_offset, one.last_offset, state, one.delivery_count))
    return tuple(found)


async def delete_share_group_state(
    services: Services, request: delete.DeleteShareGroupStateRequest, _context: RequestContext
) -> deleted.DeleteShareGroupStateResponse:
    """Delete the state of share partitions."""
    coordinator = services.shares.coordinator

    async def one(key: SharePartitionKey, row: Any) -> deleted.PartitionResult:
        await _settled(coordinator.delete(key))
        return deleted.PartitionResult(partition=row.partition, error_code=NO_ERROR)

    def refuse(row: Any, why: KafkaError) -> deleted.PartitionResult:
        return deleted.PartitionResult(
            partition=row.partition, error_code=error(why.code), error_message=why.message
        )

    topics = await _each(request, one, refuse)
    return deleted.DeleteShareGroupStateResponse(
        results=tuple(
            deleted.DeleteStateResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics
        )
    )


async def read_share_group_state_summary(
    services: Services,
    request: summary.ReadShareGroupStateSummaryRequest,
    _context: RequestContext,
) -> summarized.ReadShareGroupStateSummaryResponse:
    """The start offsets of share partitions, for administration."""
    coordinator = services.shares.coordinator

    async def one(key: SharePartitionKey, row: Any) -> summarized.PartitionResult:
        state: ShareState = await _settled(coordinator.summary(key))
        return summarized.PartitionResult(
            partition=row.partition,
            error_code=NO_ERROR,
            state_epoch=i32(state.state_epoch),
            leader_epoch=i32(state.leader_epoch),
            start_offset=i64(state.start),
            delivery_complete_count=i32(state.complete_count),
        )

    def refuse(row: Any, why: KafkaError) -> summarized.PartitionResult:
        return summarized.PartitionResult(
            partition=row.partition,
            error_code=error(why.code),
            error_message=why.message,
            state_epoch=i32(0),
            leader_epoch=i32(0),
            start_offset=i64(-1),
        )

    topics = await _each(request, one, refuse)
    return summarized.ReadShareGroupStateSummaryResponse(
        results=tuple(
            summarized.ReadStateSummaryResult(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics
        )
    )


async def _each(
    request: Any,
    one: Callable[[SharePartitionKey, Any], Coroutine[None, None, _Row]],
    refuse: Callable[[Any, KafkaError], _Row],
) -> list[tuple[UUID, tuple[_Row, ...]]]:
    """Handle every partition; an error of one does not affect the others."""
    topics = []
    for topic in request.topics:
        rows = []
        for row in topic.partitions:
            try:
                rows.append(await one(_key(request, topic.topic_id, row.partition), row))
            except KafkaError as why:
                rows.append(refuse(row, why))
        topics.append((topic.topic_id, tuple(rows)))
    return topics


def _key(request: Any, topic_id: UUID | None, partition: int) -> SharePartitionKey:
    if not request.group_id or topic_id is None or partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a share partition needs group and topic id")
    return SharePartitionKey(request.group_id, topic_id, partition)


async def _settled(result: _Result | Coroutine[None, None, _Result]) -> _Result:
    return await result if isinstance(result, Coroutine) else result
