"""Requests to the share coordinator of a share partition, on this broker or on another one.

Errors that a later attempt may not have, such as those of a coordinator that moves, are retried for
some seconds; then they are raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from headrace.cluster.image import NO_LEADER
from headrace.coordination.shares.delivery import DeliveryState, StateBatch
from headrace.coordination.shares.share_records import SharePartitionKey
from headrace.coordination.shares.share_runtime import ShareCoordinator
from headrace.coordination.shares.share_states import (
    ShareState,
    ShareStateWrite,
    coordinator_key,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.peers import Peers
from headrace.types import BrokerId
from headrace.wire.primitives import i8, i16, i32, i64

if TYPE_CHECKING:
    from typing import Any

_Result = TypeVar("_Result")
_Here: TypeAlias = Callable[[], _Result | Coroutine[None, None, _Result]]
_There: TypeAlias = Callable[[BrokerId], Coroutine[None, None, _Result]]

_ATTEMPTS = 9
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_RETRIED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class SharePersister:
    """Stores the state of share partitions."""

    def __init__(self, coordinator: ShareCoordinator, peers: Peers, node_id: BrokerId) -> None:
        self._coordinator = coordinator
        self._peers = peers
        self._node_id = node_id

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start: int) -> None:
        """Create the state of a share partition."""
        await self._ask(
            key,
            lambda: self._coordinator.initialize(key, state_epoch, start),
            lambda broker: self._initialize_there(broker, key, state_epoch, start),
        )

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state of a share partition, for its leader."""
        return await self._ask(
            key,
            lambda: self._coordinator.read(key, leader_epoch),
            lambda broker: self._read_there(broker, key, leader_epoch),
        )

    async def write(self, key: SharePartitionKey, write: ShareStateWrite) -> None:
        """Store changes of a share partition."""
        await self._ask(
            key,
            lambda: self._coordinator.write(key, write),
            lambda broker: self._write_there(broker, key, write),
        )

    async def delete(self, key: SharePartitionKey) -> None:
        """Delete the state of a share partition."""
        await self._ask(
            key,
            lambda: self._coordinator.delete(key),
            lambda broker: self._delete_there(broker, key),
        )

    async def summary(self, key: SharePartitionKey) -> ShareState:
        """The state of a share partition without its batches."""
        return await self._ask(
            key,
            lambda: self._coordinator.summary(key),
            lambda broker: self._summary_there(broker, key),
        )

    async def _ask(
        self, key: SharePartitionKey, here: _Here[_Result], there: _There[_Result]
    ) -> _Result:
        pause_s = _FIRST_PAUSE_S
        for left in reversed(range(_ATTEMPTS)):
            try:
                leader = self._coordinator.topic.leader_of(coordinator_key(key))
                if leader == self._node_id:
                    result = here()
                    return await result if isinstance(result, Coroutine) else result
                if leader == NO_LEADER:
                    raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
                return await there(leader)
            except KafkaError as error:
                if not left or error.code not in _RETRIED:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    # ------------------------------------------------------------------------- other brokers

    async def _initialize_there(
        self, broker: BrokerId, key: SharePartitionKey, state_epoch: int, start: int
    ) -> None:
        from kio.schema.initialize_share_group_state.v0 import request as asked
        from kio.schema.initialize_share_group_state.v0 import response as answered

        row = asked.PartitionData(
            partition=i32(key.partition), state_epoch=i32(state_epoch), start_offset=i64(start)
        )
        topic = asked.InitializeStateData(topic_id=key.topic_id, partitions=(row,))
        request = asked.InitializeShareGroupStateRequest(group_id=key.group_id, topics=(topic,))
        shape = answered.InitializeShareGroupStateResponse
        _only_row(await self._peers.ask(broker, request, shape))

    async def _read_there(
        self, broker: BrokerId, key: SharePartitionKey, leader_epoch: int
    ) -> ShareState:
        from kio.schema.read_share_group_state.v0 import request as asked
        from kio.schema.read_share_group_state.v0 import response as answered

        row = asked.PartitionData(partition=i32(key.partition), leader_epoch=i32(leader_epoch))
        topic = asked.ReadStateData(topic_id=key.topic_id, partitions=(row,))
        request = asked.ReadShareGroupStateRequest(group_id=key.group_id, topics=(topic,))
        shape = answered.ReadShareGroupStateResponse
        found = _only_row(await self._peers.ask(broker, request, shape))
        batches = tuple(
            StateBatch(
                int(one.first_offset), int(one.last_offset), DeliveryState(one.delivery_state),
                int(one.delivery_count),
            )
            for one in found.state_batches
        )  # fmt: skip
        epoch, start = int(found.state_epoch), int(found.start_offset)
        return ShareState(epoch, leader_epoch, start, batches, -1, 0, 0)

    async def _write_there(
        self, broker: BrokerId, key: SharePartitionKey, write: ShareStateWrite
    ) -> None:
        from kio.schema.write_share_group_state.v1 import request as asked
        from kio.schema.write_share_group_state.v1 import response as answered

        row = asked.PartitionData(
            partition=i32(key.partition),
            state_epoch=i32(write.state_epoch),
            leader_epoch=i32(write.leader_epoch),
            start_offset=i64(write.start),
            delivery_complete_count=i32(write.complete_count),
            state_batches=tuple(
                asked.StateBatch(
                    first_offset=i64(one.first),
                    last_offset=i64(one.last),
                    delivery_state=i8(one.state),
                    delivery_count=i16(one.deliveries),
                )
                for one in write.batches
            ),
        )
        topic = asked.WriteStateData(topic_id=key.topic_id, partitions=(row,))
        request = asked.WriteShareGroupStateRequest(group_id=key.group_id, topics=(topic,))
        shape = answered.WriteShareGroupStateResponse
        _only_row(await self._peers.ask(broker, request, shape))

    async def _delete_there(self, broker: BrokerId, key: SharePartitionKey) -> None:
        from kio.schema.delete_share_group_state.v0 import request as asked
        from kio.schema.delete_share_group_state.v0 import response as answered

        row = asked.PartitionData(partition=i32(key.partition))
        topic = asked.DeleteStateData(topic_id=key.topic_id, partitions=(row,))
        request = asked.DeleteShareGroupStateRequest(group_id=key.group_id, topics=(topic,))
        shape = answered.DeleteShareGroupStateResponse
        _only_row(await self._peers.ask(broker, request, shape))

    async def _summary_there(self, broker: BrokerId, key: SharePartitionKey) -> ShareState:
        from kio.schema.read_share_group_state_summary.v1 import request as asked
        from kio.schema.read_share_group_state_summary.v1 import response as answered

        row = asked.PartitionData(partition=i32(key.partition), leader_epoch=i32(-1))
        topic = asked.ReadStateSummaryData(topic_id=key.topic_id, partitions=(row,))
        request = asked.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=(topic,))
        shape = answered.ReadShareGroupStateSummaryResponse
        found = _only_row(await self._peers.ask(broker, request, shape))
        epoch, start = int(found.state_epoch), int(found.start_offset)
        count = int(found.delivery_complete_count)
        return ShareState(epoch, int(found.leader_epoch), start, (), count, 0, 0)


def _only_row(answer: Any) -> Any:
    """The result of the one partition that was asked for; KafkaError if it has an error."""
    row = answer.results[0].partitions[0]
    if row.error_code:
        raise KafkaError(ErrorCode(int(row.error_code)), row.error_message or "")
    return row
