"""OffsetDelete (47), version 0.

Deletes committed offsets. A consumer group may have members, but offsets of topics to which it
subscribes are not deleted (86). Any other group with members is refused (68).
"""

from collections.abc import Coroutine
from functools import partial

from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import may_with_topic
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation
from headrace.types import TopicPartition
from headrace.wire.primitives import NO_ERROR, TopicName, error, respond


def offset_delete(
    services: Services, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Coroutine[None, None, OffsetDeleteResponse]:
    """Delete the offsets; an error of one partition does not affect the others."""
    topics = services.metadata.image.topics
    hidden = {
        topic.name
        for topic in request.topics
        if not may_with_topic(context.caller, AclOperation.READ, topic.name)
    }
    known = [
        TopicPartition(topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if topic.name not in hidden
        and topic.name in topics
        and 0 <= one.partition_index < len(topics[topic.name].partitions)
    ]

    def answer_each(codes: tuple[ErrorCode, ...]) -> OffsetDeleteResponse:
        return _answer(request, dict(zip(known, codes, strict=True)), hidden)

    try:
        return services.groups.run(
            request.group_id,
            lambda groups, token, _: groups.delete_offsets(request.group_id, known, token),
            answer_each,
        )
    except KafkaError as refusal:
        return respond(partial(OffsetDeleteResponse, error_code=error(refusal.code), topics=()))


def _answer(
    request: OffsetDeleteRequest, results: dict[TopicPartition, ErrorCode], hidden: set[TopicName]
) -> OffsetDeleteResponse:
    def without(topic: str) -> ErrorCode:
        if topic in hidden:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return respond(
        partial(
            OffsetDeleteResponse,
            error_code=NO_ERROR,
            topics=tuple(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        OffsetDeleteResponsePartition(
                            partition_index=one.partition_index,
                            error_code=error(
                                results.get(
                                    TopicPartition(topic.name, one.partition_index),
                                    without(topic.name),
                                )
                            ),
                        )
                        for one in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )
    )
