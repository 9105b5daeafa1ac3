"""The OffsetForLeaderEpoch request of a follower."""

from collections.abc import Iterable

from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from headrace.types import BrokerId, Epoch, TopicPartition
from headrace.wire import primitives
from headrace.wire.primitives import TopicName, i32


def epoch_request(
    me: BrokerId, asked: Iterable[tuple[TopicPartition, Epoch, Epoch]]
) -> OffsetForLeaderEpochRequest:
    """The end offset of an epoch, for each (partition, current leader epoch, requested epoch)."""
    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for (name, index), current, epoch in asked:
        row = OffsetForLeaderPartition(
            partition=i32(index), current_leader_epoch=i32(current), leader_epoch=i32(epoch)
        )
        topics.setdefault(name, []).append(row)
    return OffsetForLeaderEpochRequest(
        replica_id=primitives.BrokerId(me),
        topics=tuple(
            OffsetForLeaderTopic(topic=TopicName(name), partitions=tuple(rows))
            for name, rows in topics.items()
        ),
    )
