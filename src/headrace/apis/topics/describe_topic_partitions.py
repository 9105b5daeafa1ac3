"""DescribeTopicPartitions (75), version 0.

Topics in the order of their names, with their partitions, up to the limit of the request. A cursor
in the response marks where the next page begins. Without topics in the request all are described.
"""

from collections.abc import Container, Iterable
from functools import partial

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

from headrace.apis import operations
from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import may_with_topic
from headrace.cluster.controller import check_topic_name
from headrace.cluster.image import INTERNAL_TOPICS, NO_LEADER, Image, PartitionState, Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation
from headrace.wire.primitives import NO_ERROR, BrokerId, TopicName, error, i32, respond
from headrace.wire.steps import Steps

MAX_PARTITIONS = 2000
"""The limit of partitions in one response; Kafka's `max.request.partition.size.limit`."""

_Partition = DescribeTopicPartitionsResponsePartition
_Topic = DescribeTopicPartitionsResponseTopic


def describe_topic_partitions(
    services: Services, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> Steps[DescribeTopicPartitionsResponse]:
    """One page of topics."""
    image = services.metadata.image
    names, first_index = _page_start(image, request)
    left = max(1, min(MAX_PARTITIONS, request.response_partition_limit))
    absent = image.without_listener(context.caller.listener)
    topics = []
    cursor = None
    for name in names:
        yield
        if left == 0:
            cursor = _cursor(name, 0)
            break
        silent = not request.topics
        if not may_with_topic(context.caller, AclOperation.DESCRIBE, name, silent=silent):
            if request.topics:
                topics.append(_without(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        topic = image.topics.get(name)
        if topic is None:
            if request.topics:
                topics.append(_missing(name))
            continue
        start, first_index = first_index, 0
        end = min(len(topic.partitions), start + left)
        allowed = operations.on_topic(context.caller, name)
        topics.append(_describe(topic, start, end, absent, allowed))
        left -= max(0, end - start)
        if end < len(topic.partitions):
            cursor = _cursor(name, end)
            break
    return respond(
        partial(DescribeTopicPartitionsResponse, topics=tuple(topics), next_cursor=cursor)
    )


def _page_start(image: Image, request: DescribeTopicPartitionsRequest) -> tuple[list[str], int]:
    """The names from the cursor on, and the first partition of the first topic."""
    cursor = request.cursor
    wanted: Iterable[str] = {topic.name for topic in request.topics} or image.topics
    if cursor is None:
        return sorted(wanted), 0
    names = sorted(name for name in wanted if name >= cursor.topic_name)
    if request.topics and cursor.topic_name not in names:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the cursor's topic {cursor.topic_name} is not among the requested topics",
        )
    if cursor.partition_index < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the cursor's partition is {cursor.partition_index}; expected 0 or more",
        )
    at_topic = bool(names) and names[0] == cursor.topic_name
    return names, cursor.partition_index if at_topic else 0


def _describe(topic: Topic, start: int, end: int, absent: Container[int], allowed: int) -> _Topic:
    return _Topic(
        error_code=NO_ERROR,
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(_partition(n, topic.partitions[n], absent) for n in range(start, end)),
        topic_authorized_operations=i32(allowed),
    )


def _partition(index: int, state: PartitionState, absent: Container[int]) -> _Partition:
    """A partition; `absent` are brokers that clients of this listener cannot reach."""
    led = state.leader != NO_LEADER and state.leader not in absent
    alone = not (state.isr or state.eligible or state.last_leader == NO_LEADER)
    last_leader = state.last_leader if alone else None
    return _Partition(
        error_code=NO_ERROR if led else error(ErrorCode.LEADER_NOT_AVAILABLE),
        partition_index=i32(index),
        leader_id=BrokerId(state.leader if led else NO_LEADER),
        leader_epoch=i32(state.leader_epoch),
        replica_nodes=tuple(map(BrokerId, state.replicas)),
        isr_nodes=tuple(map(BrokerId, state.isr)),
        eligible_leader_replicas=tuple(map(BrokerId, state.eligible)),
        last_known_elr=() if last_leader is None else (BrokerId(last_leader),),
        offline_replicas=(),
    )


def _missing(name: str) -> _Topic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except KafkaError as refusal:
        code = refusal.code
    return _without(name, code)


def _without(name: str, code: ErrorCode) -> _Topic:
    return _Topic(error_code=error(code), name=TopicName(name), topic_id=None, partitions=())


def _cursor(name: str, partition: int) -> Cursor:
    return Cursor(topic_name=TopicName(name), partition_index=i32(partition))
