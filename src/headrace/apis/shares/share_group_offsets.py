"""DescribeShareGroupOffsets (90), AlterShareGroupOffsets (91) and DeleteShareGroupOffsets (92).

The offset of a share group in a partition is its start offset: everything below is delivered. It is
changed and deleted only while the group has no members. The lag (v1 of DescribeShareGroupOffsets)
is the number of records that are not delivered yet, or -1 if it is unknown.
"""

from collections.abc import Coroutine, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar
from uuid import UUID

from kio.schema.alter_share_group_offsets.v0 import request as alter
from kio.schema.alter_share_group_offsets.v0 import response as altered
from kio.schema.delete_share_group_offsets.v0 import request as delete
from kio.schema.delete_share_group_offsets.v0 import response as deleted
from kio.schema.describe_share_group_offsets.v1 import request as describe
from kio.schema.describe_share_group_offsets.v1 import response as described

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied, may_with_topic
from headrace.apis.shares.share_lag import lag_of
from headrace.coordination.groups import share
from headrace.coordination.groups.registry import Groups
from headrace.coordination.outcome import Outcome, Token, answer
from headrace.coordination.share_group_records import InitializedTopic
from headrace.coordination.shares.share_records import SharePartitionKey
from headrace.coordination.shares.share_states import UNINITIALIZED
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, TopicName, error, i32, i64, respond

_Result = TypeVar("_Result")


class _GroupOffsets(NamedTuple):
    """What a group knows about the state of its partitions."""

    epoch: int
    is_empty: bool
    topics: Mapping[UUID, InitializedTopic]


# ----------------------------------------------------------------------------------- describing


async def describe_share_group_offsets(
    services: Services, request: describe.DescribeShareGroupOffsetsRequest, context: RequestContext
) -> described.DescribeShareGroupOffsetsResponse:
    """The start offset and the lag of each partition."""
    groups = [await _describe(services, group, context.caller) for group in request.groups]
    return respond(partial(described.DescribeShareGroupOffsetsResponse, groups=tuple(groups)))


async def _describe(
    services: Services, wanted: describe.DescribeShareGroupOffsetsRequestGroup, caller: Caller
) -> described.DescribeShareGroupOffsetsResponseGroup:
    group_id = wanted.group_id
    answered = partial(described.DescribeShareGroupOffsetsResponseGroup, group_id=group_id)
    try:
        if not caller.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            raise denied(ResourceType.GROUP)
        known = await _offsets(services, group_id)
    except KafkaError as why:
        return answered(topics=(), error_code=error(why.code), error_message=why.message)
    if wanted.topics is None:
        asked = [
            (topic.name, sorted(topic.partitions))
            for topic in known.topics.values()
            if may_with_topic(caller, AclOperation.DESCRIBE, topic.name, silent=True)
        ]
    else:
        asked = [(str(topic.topic_name), list(topic.partitions)) for topic in wanted.topics]
    topics = [
        await _describe_topic(services, caller, group_id, name, indexes) for name, indexes in asked
    ]
    return answered(topics=tuple(topics), error_code=NO_ERROR, error_message=None)


async def _describe_topic(
    services: Services, caller: Caller, group_id: str, name: str, indexes: Iterable[int]
) -> described.DescribeShareGroupOffsetsResponseTopic:
    topic = services.metadata.image.topics.get(name)
    rows = []
    for index in indexes:
        try:
            if not may_with_topic(caller, AclOperation.DESCRIBE, name):
                raise denied(ResourceType.TOPIC)
            if topic is None or not 0 <= index < len(topic.partitions):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            key = SharePartitionKey(group_id, topic.id, index)
            rows.append(await _describe_partition(services, name, key))
        except KafkaError as why:
            rows.append(_row(index, -1, 0, -1, why))
    return described.DescribeShareGroupOffsetsResponseTopic(
        topic_name=TopicName(name),
        topic_id=None if topic is None else topic.id,
        partitions=tuple(rows),
    )


async def _describe_partition(
    services: Services, name: str, key: SharePartitionKey
) -> described.DescribeShareGroupOffsetsResponsePartition:
    try:
        state = await services.shares.persister.summary(key)
    except KafkaError as why:
        if why.code is ErrorCode.INVALID_REQUEST:  # there is no state
            return _row(key.partition, UNINITIALIZED, 0, -1, None)
        raise
    lag = await lag_of(services, name, key.partition, state)
    return _row(key.partition, state.start, max(state.leader_epoch, 0), lag, None)


def _row(
    index: int, start: int, leader_epoch: int, lag: int, why: KafkaError | None
) -> described.DescribeShareGroupOffsetsResponsePartition:
    return described.DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(index),
        start_offset=i64(start),
        leader_epoch=i32(leader_epoch),
        lag=i64(lag),
        error_code=NO_ERROR if why is None else error(why.code),
        error_message=None if why is None else why.message,
    )


# ------------------------------------------------------------------------------------- altering


async def alter_share_group_offsets(
    services: Services, request: alter.AlterShareGroupOffsetsRequest, context: RequestContext
) -> altered.AlterShareGroupOffsetsResponse:
    """Set start offsets; nothing is locked or delivered from there on."""
    group_id = request.group_id
    known = await _empty(services, group_id)
    done: dict[UUID, set[int]] = {}
    topics = []
    for wanted in request.topics:
        name = str(wanted.topic_name)
        topic = services.metadata.image.topics.get(name)
        rows = []
        for row in wanted.partitions:
            why = None
            try:
                if not may_with_topic(context.caller, AclOperation.READ, name):
                    raise denied(ResourceType.TOPIC)
                if topic is None or not 0 <= row.partition_index < len(topic.partitions):
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                key = SharePartitionKey(group_id, topic.id, row.partition_index)
                await services.shares.persister.initialize(key, known.epoch, row.start_offset)
                done.setdefault(topic.id, set()).add(row.partition_index)
            except KafkaError as failed:
                why = failed
            rows.append(
                altered.AlterShareGroupOffsetsResponsePartition(
                    partition_index=row.partition_index,
                    error_code=NO_ERROR if why is None else error(why.code),
                    error_message=None if why is None else why.message,
                )
            )
        topics.append(
            altered.AlterShareGroupOffsetsResponseTopic(
                topic_name=wanted.topic_name,
                topic_id=None if topic is None else topic.id,
                partitions=tuple(rows),
            )
        )
    if done:
        partitions = {topic_id: frozenset(indexes) for topic_id, indexes in done.items()}
        await _settled(
            services.groups.run(
                group_id,
                lambda groups, token, _: (
                    share.find(groups, group_id)
                    .set_initialized(partitions)
                    .merge(answer(token, True))
                ),
                bool,
            )
        )
    return respond(
        partial(
            altered.AlterShareGroupOffsetsResponse,
            error_code=NO_ERROR,
            error_message=None,
            responses=tuple(topics),
        )
    )


# ------------------------------------------------------------------------------------- deleting


async def delete_share_group_offsets(
    services: Services, request: delete.DeleteShareGroupOffsetsRequest, context: RequestContext
) -> deleted.DeleteShareGroupOffsetsResponse:
    """Delete the state of topics: the group begins there as a new group does."""
    group_id = request.group_id
    known = await _empty(services, group_id)
    results = []
    for wanted in request.topics:
        name, why = str(wanted.topic_name), None
        found = [topic_id for topic_id, topic in known.topics.items() if topic.name == name]
        try:
            if not may_with_topic(context.caller, AclOperation.READ, name):
                raise denied(ResourceType.TOPIC)
            if not found:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    "There is no offset information to delete.",
                )
            await delete_state(services, group_id, {key: known.topics[key] for key in found})
        except KafkaError as failed:
            why = failed
        results.append(
            deleted.DeleteShareGroupOffsetsResponseTopic(
                topic_name=wanted.topic_name,
                topic_id=found[0] if found else None,
                error_code=NO_ERROR if why is None else error(why.code),
                error_message=None if why is None else why.message,
            )
        )
    return respond(
        partial(
            deleted.DeleteShareGroupOffsetsResponse,
            error_code=NO_ERROR,
            error_message=None,
            responses=tuple(results),
        )
    )


async def delete_state(
    services: Services, group_id: str, topics: Mapping[UUID, InitializedTopic]
) -> None:
    """Delete the state of topics of a group, and then note in the group that they have none."""
    for topic_id, topic in topics.items():
        for index in sorted(topic.partitions):
            await services.shares.persister.delete(SharePartitionKey(group_id, topic_id, index))
    await _settled(
        services.groups.run(
            group_id,
            lambda groups, token, _: (
                share.find(groups, group_id).set_deleted([*topics]).merge(answer(token, True))
            ),
            bool,
        )
    )


async def delete_state_of_empty(services: Services, group_id: str) -> None:
    """Delete all state of a share group that has no members."""
    known = await _offsets(services, group_id)
    if known.is_empty and known.topics:
        await delete_state(services, group_id, known.topics)


# ----------------------------------------------------------------------------------- the group


async def _offsets(services: Services, group_id: str) -> _GroupOffsets:
    def operation(groups: Groups, token: Token[_GroupOffsets], _now_ms: int) -> Outcome:
        group = share.find(groups, group_id)
        return answer(token, _GroupOffsets(group.epoch, group.is_empty(), group.ready.topics))

    return await _settled(services.groups.run(group_id, operation, _same))


def _same(offsets: _GroupOffsets) -> _GroupOffsets:
    return offsets


async def _empty(services: Services, group_id: str) -> _GroupOffsets:
    """The same; NON_EMPTY_GROUP if the group has members."""
    known = await _offsets(services, group_id)
    if not known.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"The group {group_id} has members.")
    return known


async def _settled(result: _Result | Coroutine[None, None, _Result]) -> _Result:
    return await result if isinstance(result, Coroutine) else result
