"""CreateTopics (19), versions 2-7.

A topic has a number of partitions and replicas (-1: the broker's `num.partitions` and
`default.replication.factor`) or a list of replicas for each partition, and configs. The response is
sent when the metadata is written and the folders exist, because the image's listeners create them.
The folders of a fork (config `fork.of`) are built later, in worker threads; it needs the right to
read its parent.

v5 flexible, and the response describes the topic with its configs; v6 the quota on mutations
refuses what exceeds it; v7 topic ids. Not done: create-topic policies. `timeout` is not used,
because nothing waits.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

from headrace.apis.configs.config_entries import BrokerConfigs, topic_entries
from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied, may_with_cluster, may_with_topic
from headrace.cluster.controller import Defaults, NewTopic
from headrace.cluster.fork_rules import FORK_OF, FORK_OFFSETS
from headrace.cluster.image import Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import NO_ERROR, TopicName, error, i8, i16, i32, respond

KRAFT_LOG = "__cluster_metadata"
DESCRIBED_FROM = 5
QUOTA_REFUSES_FROM = 6

_Configs = tuple[CreatableTopicConfigs, ...]


def create_topics(
    services: Services, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    """Create topics; an error of one does not affect the others."""
    times = Counter(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if times[topic.name] == 1 and topic.name != KRAFT_LOG]
    caller = context.caller
    may_all = may_with_cluster(caller, AclOperation.CREATE, silent=True)
    wanted = [
        one
        for one in once
        if (may_all or may_with_topic(caller, AclOperation.CREATE, one.name))
        and all(may_with_topic(caller, AclOperation.READ, parent) for parent in _parents(one))
    ]
    defaults = Defaults(
        partitions=services.settings.integer("num.partitions"),
        replication_factor=services.settings.integer("default.replication.factor"),
    )
    allowed = {one.name for one in wanted}
    refusals = _over_quota(services, wanted, defaults, context)
    refusals |= _not_there_yet(services, wanted)
    wanted = [topic for topic in wanted if topic.name not in refusals]
    results = services.metadata.create_topics(
        [_new_topic(topic) for topic in wanted], defaults, validate_only=request.validate_only
    )
    described = _Describer(services) if context.version >= DESCRIBED_FROM else None
    answers = [
        _refuse(topic.name, result)
        if isinstance(result, KafkaError)
        else _answer(result, described, caller)
        for topic, result in zip(wanted, results, strict=True)
    ]
    answers += [
        _refuse(one.name, denied(ResourceType.TOPIC)) for one in once if one.name not in allowed
    ]
    answers += [
        _refuse(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name, count in times.items()
        if count > 1
    ]
    answers += [_refuse(name, refusal) for name, refusal in refusals.items()]
    if times[TopicName(KRAFT_LOG)] == 1:
        reason = f"{KRAFT_LOG} is reserved for brokers; choose another name"
        answers.append(_refuse(KRAFT_LOG, KafkaError(ErrorCode.INVALID_REQUEST, reason)))
    return respond(partial(CreateTopicsResponse, topics=tuple(answers)))


def _over_quota(
    services: Services, wanted: list[CreatableTopic], defaults: Defaults, context: RequestContext
) -> dict[str, KafkaError]:
    """The topics whose partitions exceed the client's quota, with the error."""
    quota, image = context.caller.quota, services.metadata.image
    refusals: dict[str, KafkaError] = {}
    if quota is None:
        return refusals
    for topic in wanted:
        if topic.name in image.topics:
            continue
        count = len(topic.assignments) or max(topic.num_partitions, 0) or defaults.partitions
        refusal = quota.take_mutations(count, context.version >= QUOTA_REFUSES_FROM)
        if refusal is not None:
            refusals[topic.name] = refusal
    return refusals


def _parents(topic: CreatableTopic) -> list[str]:
    """The topic that this one is to be a fork of, if it is to be one."""
    return [one.value for one in topic.configs if one.name == FORK_OF and one.value]


def _not_there_yet(services: Services, wanted: list[CreatableTopic]) -> dict[str, KafkaError]:
    """The forks with offsets that a parent on this broker does not have.

    If another broker leads the parent, the fork is complete when the parent has the records.
    """
    refusals: dict[str, KafkaError] = {}
    for topic in wanted:
        offsets = [one.value or "" for one in topic.configs if one.name == FORK_OFFSETS]
        for parent in _parents(topic):
            partitions = services.replicas.topic(parent)
            for partition, offset in zip(partitions, ",".join(offsets).split(","), strict=False):
                if not partition.leads or not offset.isdecimal():
                    continue
                stable = partition.replica.last_stable_offset
                if int(offset) > stable:
                    refusals[topic.name] = KafkaError(
                        ErrorCode.INVALID_CONFIG,
                        f"{FORK_OFFSETS}: {offset} is after {stable}, the last stable offset of "
                        f"{partition.name}",
                    )
    return refusals


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((one.partition_index, one.broker_ids) for one in topic.assignments),
        configs=tuple((config.name, config.value) for config in topic.configs),
    )


class _Describer:
    """A topic's configs for the response, built once for all topics with the same configs."""

    def __init__(self, services: Services) -> None:
        self._broker = BrokerConfigs.of(services)
        self._known: dict[tuple[tuple[str, str], ...], _Configs] = {}

    def __call__(self, configs: Mapping[str, str]) -> _Configs:
        key = tuple(configs.items())
        if key not in self._known:
            self._known[key] = tuple(
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=i8(entry.source),
                    is_sensitive=entry.sensitive,
                )
                for entry in topic_entries(self._broker, configs)
            )
        return self._known[key]


def _answer(topic: Topic, described: _Describer | None, caller: Caller) -> CreatableTopicResult:
    if described and not may_with_topic(
        caller, AclOperation.DESCRIBE_CONFIGS, topic.name, silent=True
    ):
        return CreatableTopicResult(
            name=TopicName(topic.name),
            topic_id=topic.id,
            error_code=NO_ERROR,
            error_message=None,
            topic_config_error_code=i16(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            configs=None,
        )
    return CreatableTopicResult(
        name=TopicName(topic.name),
        topic_id=topic.id,
        error_code=NO_ERROR,
        error_message=None,
        num_partitions=i32(len(topic.partitions)),
        replication_factor=i16(len(topic.partitions[0].replicas)),
        configs=described(topic.configs) if described else (),
    )


def _refuse(name: str, refusal: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=TopicName(name),
        topic_id=None,
        error_code=error(refusal.code),
        error_message=refusal.message,
        configs=(),
    )
