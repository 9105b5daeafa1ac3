"""The lag of a share group in a partition: the records that are not delivered yet."""

from headrace.apis.context import Services
from headrace.coordination.shares.share_records import NOT_COUNTED
from headrace.coordination.shares.share_states import UNINITIALIZED, ShareState
from headrace.errors import KafkaError
from headrace.types import BrokerId
from headrace.wire.primitives import TopicName, i8, i32, i64

_UNKNOWN = -1
_LATEST = -1


async def lag_of(services: Services, topic: str, index: int, state: ShareState) -> int:
    """The lag; -1 if it is unknown."""
    if state.start == UNINITIALIZED or state.complete_count == NOT_COUNTED:
        return _UNKNOWN
    try:
        end = await _high_watermark(services, topic, index)
    except KafkaError:
        return _UNKNOWN
    return max(end - state.start - state.complete_count, 0) if end >= 0 else _UNKNOWN


async def _high_watermark(services: Services, topic: str, index: int) -> int:
    partitions = services.replicas.topic(topic)
    if not 0 <= index < len(partitions):
        return _UNKNOWN
    if partitions[index].leads:
        return partitions[index].replica.high_watermark
    return await _ask(services, partitions[index].leader, topic, index)


async def _ask(services: Services, leader: BrokerId, topic: str, index: int) -> int:
    from kio.schema.list_offsets.v8 import request as asked
    from kio.schema.list_offsets.v8.response import ListOffsetsResponse

    row = asked.ListOffsetsPartition(
        partition_index=i32(index), current_leader_epoch=i32(-1), timestamp=i64(_LATEST)
    )
    request = asked.ListOffsetsRequest(
        replica_id=-1,  # type: ignore[arg-type]
        isolation_level=i8(0),
        topics=(asked.ListOffsetsTopic(name=TopicName(topic), partitions=(row,)),),
    )
    answer = await services.peers.ask(leader, request, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    return _UNKNOWN if found.error_code else int(found.offset)
