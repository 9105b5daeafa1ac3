"""OffsetFetch (9), versions 1-10.

Returns committed offsets of groups, for the requested partitions or for all. For a partition
without a committed offset, and for a group that does not exist, the offset is -1, without an error.

v1-7 one group; v2 all partitions (null) and an error for the whole group; v5 leader epochs;
v6 flexible; v7 `require_stable`: UNSTABLE_OFFSET_COMMIT while an open transaction may change the
offset; v8 several groups; v9 members of consumer groups (KIP-848); v10 topic ids instead of
names: an unknown one gets UNKNOWN_TOPIC_ID.
"""

from collections.abc import Coroutine, Mapping
from functools import partial

from kio.schema.offset_fetch.v10.response import OffsetFetchResponsePartitions

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied, may_with_topic
from headrace.cluster.image import Image
from headrace.coordination.groups.registry import Groups
from headrace.coordination.outcome import Outcome, Result, Token, answer
from headrace.coordination.records import OffsetCommit
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.types import TopicPartition
from headrace.wire.offset_messages import (
    FetchedGroup,
    FetchedTopic,
    GroupToFetch,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TopicToFetch,
)
from headrace.wire.primitives import NO_ERROR, TopicName, error, i32, i64, respond

NO_OFFSET = -1
FIRST_WITH_IDS = 10

_Partitions = Mapping[int, OffsetCommit]
_Fetched = tuple[Mapping[str, _Partitions], frozenset[TopicPartition]]
"""Offsets by topic, and the partitions whose offsets an open transaction may change."""
_NONE: _Partitions = {}


def offset_fetch(
    services: Services, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Coroutine[None, None, OffsetFetchResponse]:
    """The offsets of each group, or its error."""

    def answer_all(results: list[Result[_Fetched]]) -> OffsetFetchResponse:
        image = services.metadata.image
        groups = tuple(map(partial(_answer, context, image), request.groups, results))
        return respond(partial(OffsetFetchResponse, groups=groups))

    return services.groups.run_each(
        [
            (group.group_id, partial(_fetch, context.caller, group, request.require_stable))
            for group in request.groups
        ],
        answer_all,
    )


def _fetch(
    caller: Caller,
    asked: GroupToFetch,
    stable: bool,
    groups: Groups,
    token: Token[_Fetched],
    _now_ms: int,
) -> Outcome:
    if not caller.may(AclOperation.DESCRIBE, ResourceType.GROUP, asked.group_id):
        return answer(token, denied(ResourceType.GROUP))
    offsets = groups.fetch(asked.group_id, asked.member_id, asked.member_epoch)
    unstable = groups.offsets.pending(asked.group_id) if stable else frozenset()
    return answer(token, (offsets, unstable))


def _answer(
    context: RequestContext, image: Image, asked: GroupToFetch, result: Result[_Fetched]
) -> FetchedGroup:
    caller = context.caller
    code = NO_ERROR
    known: Mapping[str, _Partitions] = {}
    unstable: frozenset[TopicPartition] = frozenset()
    if isinstance(result, KafkaError):
        code = error(result.code)
        if result.code is ErrorCode.GROUP_AUTHORIZATION_FAILED and context.version > 1:
            return FetchedGroup(group_id=asked.group_id, topics=(), error_code=code)
    else:
        known, unstable = result
    by_id = context.version >= FIRST_WITH_IDS
    if asked.topics is None:
        everything = (
            _asked(image, name, tuple(found))
            for name, found in known.items()
            # With ids, a topic that no longer exists cannot be named.
            if not by_id or name in image.topics
        )
        topics = tuple(
            _topic(topic, topic.name, known[topic.name], unstable)
            for topic in everything
            if may_with_topic(caller, AclOperation.DESCRIBE, topic.name, silent=True)
        )
    else:
        topics = tuple(
            _asked_topic(
                caller, topic, image.name_of(topic.topic_id) if by_id else topic.name, known,
                unstable,
            )
            for topic in asked.topics
        )  # fmt: skip
    return FetchedGroup(group_id=asked.group_id, topics=topics, error_code=code)


def _asked(image: Image, name: str, partitions: tuple[int, ...]) -> TopicToFetch:
    topic = image.topics.get(name)
    return TopicToFetch(
        topic_id=None if topic is None else topic.id,
        name=TopicName(name),
        partition_indexes=tuple(map(i32, partitions)),
    )


def _asked_topic(
    caller: Caller,
    asked: TopicToFetch,
    name: str | None,
    known: Mapping[str, _Partitions],
    unstable: frozenset[TopicPartition],
) -> FetchedTopic:
    """The offsets of a topic; `name` is None if no topic has the id."""
    if name is None:
        return _refused_topic(asked, ErrorCode.UNKNOWN_TOPIC_ID)
    if not may_with_topic(caller, AclOperation.DESCRIBE, name):
        return _refused_topic(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return _topic(asked, name, known.get(name, _NONE), unstable)


def _topic(
    asked: TopicToFetch, name: str, known: _Partitions, unstable: frozenset[TopicPartition]
) -> FetchedTopic:
    return FetchedTopic(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=tuple(
            _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if unstable and TopicPartition(name, index) in unstable
            else _partition(index, known.get(index))
            for index in asked.partition_indexes
        ),
    )


def _refused_topic(asked: TopicToFetch, code: ErrorCode) -> FetchedTopic:
    return FetchedTopic(
        name=asked.name,
        topic_id=asked.topic_id,
        partitions=tuple(_nothing(index, code) for index in asked.partition_indexes),
    )


def _nothing(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=i32(index),
        committed_offset=i64(NO_OFFSET),
        metadata="",
        error_code=error(code),
    )


def _partition(index: int, found: OffsetCommit | None) -> OffsetFetchResponsePartitions:
    if found is None:
        return _nothing(index, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=i32(index),
        committed_offset=i64(found.offset),
        committed_leader_epoch=i32(found.leader_epoch),
        metadata=found.metadata,
        error_code=NO_ERROR,
    )
