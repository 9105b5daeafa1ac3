"""ShareGroupHeartbeat (76), version 1.

The request of a member of a share group (KIP-932): it joins (epoch 0), stays, or leaves (epoch -1).
The response has the member's epoch, and its partitions if they changed or if the member sent its
topics. The state of partitions that the group has not read yet is initialized before the response,
so that they are assigned at once.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import need_topic
from headrace.coordination import consumer_records
from headrace.coordination.groups import share
from headrace.coordination.groups.registry import Groups
from headrace.coordination.groups.share import (
    JOINING,
    LEAVING,
    ShareHeartbeat,
    ShareHeartbeatReply,
)
from headrace.coordination.outcome import Outcome, Token, answer
from headrace.coordination.shares.share_records import SharePartitionKey
from headrace.coordination.shares.share_states import UNINITIALIZED
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation
from headrace.wire.primitives import NO_ERROR, i32, milliseconds, respond


def share_group_heartbeat(
    services: Services, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse | Coroutine[None, None, ShareGroupHeartbeatResponse]:
    """Process the heartbeat of a member; respond with its epoch and assignment."""
    _check(request)
    for name in request.subscribed_topic_names or ():
        need_topic(context.caller, AclOperation.DESCRIBE, name)
    beat = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=request.subscribed_topic_names,
        client_id=context.client_id,
        client_host=context.caller.host,
    )
    result = _beat(services, beat)
    if isinstance(result, ShareHeartbeatReply) and not result.uninitialized:
        return _respond(result)
    return _finish(services, beat, result)


def _beat(
    services: Services, beat: ShareHeartbeat
) -> ShareHeartbeatReply | Coroutine[None, None, ShareHeartbeatReply]:
    return services.groups.run(
        beat.group_id, lambda groups, token, now: share.heartbeat(groups, beat, token, now), _same
    )


def _same(reply: ShareHeartbeatReply) -> ShareHeartbeatReply:
    return reply


async def _finish(
    services: Services,
    beat: ShareHeartbeat,
    result: ShareHeartbeatReply | Coroutine[None, None, ShareHeartbeatReply],
) -> ShareGroupHeartbeatResponse:
    reply = result if isinstance(result, ShareHeartbeatReply) else await result
    if reply.uninitialized and await _initialize(services, beat.group_id, reply):
        again = _beat(services, replace(beat, epoch=reply.epoch))
        reply = again if isinstance(again, ShareHeartbeatReply) else await again
    return _respond(reply)


async def _initialize(services: Services, group_id: str, reply: ShareHeartbeatReply) -> bool:
    """Initialize the state of partitions; whether they can be assigned now."""
    persister = services.shares.persister
    keys = [
        SharePartitionKey(group_id, topic_id, index)
        for topic_id, indexes in reply.uninitialized.items()
        for index in sorted(indexes)
    ]
    try:
        for some in _parts(keys):
            await asyncio.gather(
                *(persister.initialize(key, reply.group_epoch, UNINITIALIZED) for key in some)
            )
        stored = services.groups.run(
            group_id, partial(_set_initialized, group_id, reply.uninitialized), bool
        )
        return await stored if isinstance(stored, Coroutine) else stored
    except KafkaError:
        # The member gets its other partitions; a later heartbeat tries again.
        services.groups.run(group_id, partial(_forget, group_id, reply.uninitialized), bool)
        return False


_AT_ONCE = 100


def _parts(keys: list[SharePartitionKey]) -> list[list[SharePartitionKey]]:
    return [keys[at : at + _AT_ONCE] for at in range(0, len(keys), _AT_ONCE)]


def _set_initialized(
    group_id: str,
    partitions: consumer_records.Assignment,
    groups: Groups,
    token: Token[bool],
    _now_ms: int,
) -> Outcome:
    return share.find(groups, group_id).set_initialized(partitions).merge(answer(token, True))


def _forget(
    group_id: str,
    partitions: consumer_records.Assignment,
    groups: Groups,
    token: Token[bool],
    _now_ms: int,
) -> Outcome:
    share.find(groups, group_id).ready.failed(partitions)
    return answer(token, True)


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """INVALID_REQUEST unless all fields are set that are required at this epoch."""
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if not request.member_id:
        raise _invalid("MemberId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOINING and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVING:
        raise _invalid(f"MemberEpoch is {request.member_epoch}, but must be at least -1.")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)


def _respond(reply: ShareHeartbeatReply) -> ShareGroupHeartbeatResponse:
    return respond(
        partial(
            ShareGroupHeartbeatResponse,
            error_code=NO_ERROR,
            error_message=None,
            member_id=reply.member_id,
            member_epoch=i32(reply.epoch),
            heartbeat_interval=milliseconds(reply.heartbeat_interval_ms),
            assignment=None if reply.assigned is None else _assignment(reply.assigned),
        )
    )


def _assignment(assigned: consumer_records.Assignment) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(map(i32, sorted(partitions))))
            for topic_id, partitions in assigned.items()
        )
    )
