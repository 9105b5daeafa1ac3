"""DeleteTopics (20), versions 1-6.

Topics by name, or from v6 on by id. When the response is sent, the topic is deleted from the
metadata; its files are deleted later. Its id is never used again.

v3 TOPIC_DELETION_DISABLED if `delete.topic.enable` is false (INVALID_REQUEST before); v4 flexible;
v5 error messages, and the quota on mutations refuses what exceeds it; v6 topic ids.
"""

import uuid
from collections import Counter
from functools import partial

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied, may_with_cluster, may_with_topic
from headrace.cluster.image import Image
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, TopicName, error, respond

QUOTA_REFUSES_FROM = 5
_DISABLED = "delete.topic.enable is false on this broker"


def delete_topics(
    services: Services, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    """Delete topics; an error of one does not affect the others."""
    if not services.settings.boolean("delete.topic.enable"):
        code = (
            ErrorCode.TOPIC_DELETION_DISABLED if context.version >= 3 else ErrorCode.INVALID_REQUEST
        )
        raise KafkaError(code, _DISABLED)
    image = services.metadata.image
    answers: dict[int, DeletableTopicResult] = {}
    names: dict[int, str] = {}
    times = Counter((topic.name, topic.topic_id) for topic in request.topics)
    ids = {topic.topic_id for topic in request.topics if topic.topic_id is not None}
    may_all = may_with_cluster(context.caller, AclOperation.DELETE, silent=True)
    for place, topic in enumerate(request.topics):
        try:
            if times[topic.name, topic.topic_id] > 1:
                what = "name" if topic.name is not None else "id"
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
            name = _name_of(topic, image, ids)
            if may_all or may_with_topic(context.caller, AclOperation.DELETE, name):
                _check_quota(name, image, context)
                names[place] = name
            else:
                answers[place] = _deny(context.caller, topic, name, image)
        except KafkaError as refusal:
            answers[place] = _answer(topic.name, topic.topic_id, refusal)
    results = services.metadata.delete_topics(list(names.values()))
    for (place, name), result in zip(names.items(), results, strict=True):
        known = image.topics.get(name)
        answers[place] = _answer(name, known.id if known else None, result)
    ordered = tuple(answers[place] for place in sorted(answers))
    return respond(partial(DeleteTopicsResponse, responses=ordered))


def _deny(caller: Caller, topic: DeleteTopicState, name: str, image: Image) -> DeletableTopicResult:
    """A refusal. It has name and id of the topic only if the client may describe it."""
    if may_with_topic(caller, AclOperation.DESCRIBE, name, silent=True):
        known = image.topics.get(name)
        if known is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return _answer(name, None, KafkaError(code, f"unknown topic '{name}'"))
        return _answer(name, known.id, denied(ResourceType.TOPIC))
    return _answer(topic.name, topic.topic_id, denied(ResourceType.TOPIC))


def _check_quota(name: str, image: Image, context: RequestContext) -> None:
    """KafkaError if the partitions of a topic exceed the client's quota."""
    quota, topic = context.caller.quota, image.topics.get(name)
    if quota is None or topic is None:
        return
    strict = context.version >= QUOTA_REFUSES_FROM
    refusal = quota.take_mutations(len(topic.partitions), strict)
    if refusal is not None:
        raise refusal


def _name_of(topic: DeleteTopicState, image: Image, ids: set[uuid.UUID]) -> str:
    if topic.name is not None:
        if topic.topic_id is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
            )
        known = image.topics.get(topic.name)
        if known is not None and known.id in ids:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
        return topic.name
    if topic.topic_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    name = image.names.get(topic.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"unknown topic id {topic.topic_id}")
    return name


def _answer(
    name: str | None, topic_id: uuid.UUID | None, refusal: KafkaError | None
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=TopicName(name) if name is not None else None,
        topic_id=topic_id,
        error_code=error(refusal.code) if refusal else NO_ERROR,
        error_message=refusal.message if refusal else None,
    )
