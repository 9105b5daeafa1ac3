"""CreatePartitions (37), versions 0-3.

Increases the number of partitions of topics. New replicas are placed as the request says, or on the
least-loaded brokers. Existing records stay in their partitions.

v2 flexible; v3 the quota on mutations refuses what exceeds it. `timeout` is not used, because
nothing waits.
"""

from collections import Counter
from functools import partial

from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import denied, may_with_topic
from headrace.cluster.controller import Growth
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, TopicName, error, respond

QUOTA_REFUSES_FROM = 3


def create_partitions(
    services: Services, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Add partitions; an error of one topic does not affect the others."""
    times = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if times[topic.name] == 1]
    allowed = {
        one.name for one in once if may_with_topic(context.caller, AclOperation.ALTER, one.name)
    }
    wanted = [_growth(topic) for topic in once if topic.name in allowed]
    over_quota = _over_quota(services, wanted, context)
    wanted = [growth for growth in wanted if growth.name not in over_quota]
    results = services.metadata.create_partitions(wanted, validate_only=request.validate_only)
    answers = [_answer(growth.name, result) for growth, result in zip(wanted, results, strict=True)]
    answers += [
        _answer(one.name, denied(ResourceType.TOPIC)) for one in once if one.name not in allowed
    ]
    answers += [
        _answer(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name, count in times.items()
        if count > 1
    ]
    answers += [_answer(name, refusal) for name, refusal in over_quota.items()]
    return respond(partial(CreatePartitionsResponse, results=tuple(answers)))


def _over_quota(
    services: Services, wanted: list[Growth], context: RequestContext
) -> dict[str, KafkaError]:
    """The topics whose new partitions exceed the client's quota, with the error."""
    quota, image = context.caller.quota, services.metadata.image
    refusals: dict[str, KafkaError] = {}
    if quota is None:
        return refusals
    for growth in wanted:
        topic = image.topics.get(growth.name)
        count = growth.count - len(topic.partitions) if topic is not None else 0
        if count > 0:
            refusal = quota.take_mutations(count, context.version >= QUOTA_REFUSES_FROM)
            if refusal is not None:
                refusals[growth.name] = refusal
    return refusals


def _growth(topic: CreatePartitionsTopic) -> Growth:
    assignments = topic.assignments
    return Growth(
        name=topic.name,
        count=topic.count,
        assignments=None
        if assignments is None
        else tuple(assignment.broker_ids for assignment in assignments),
    )


def _answer(name: str, refusal: KafkaError | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=TopicName(name),
        error_code=error(refusal.code) if refusal else NO_ERROR,
        error_message=refusal.message if refusal else None,
    )
