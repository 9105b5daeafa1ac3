"""CreateTopics creates valid topics, and refuses the others with Kafka's error codes."""

from pathlib import Path

import pytest
from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreatableTopicResult

from headrace.apis.context import Caller, RequestContext
from headrace.apis.security.acls import create_acls
from headrace.apis.topics.create_topics import create_topics
from headrace.errors import ErrorCode
from headrace.security.acls import AclOperation, ResourceType
from headrace.wire.primitives import TopicName, i8, i16, i32
from tests.apis.one_broker import NEWEST, OneBroker

NONE = ErrorCode.NONE


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(factor),
        assignments=(),
        configs=tuple(
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )


def create(
    broker: OneBroker, *topics: CreatableTopic, validate_only: bool = False, version: int = NEWEST
) -> dict[str, CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    answer = broker.ask(create_topics, request, version)
    return {result.name: result for result in answer.topics}


def test_a_created_topic_is_described_and_its_logs_are_there(broker: OneBroker) -> None:
    result = create(broker, topic("t", 3, retention_ms="5"))["t"]
    assert (ErrorCode(result.error_code), result.error_message) == (NONE, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.topic_id == broker.metadata.image.topics["t"].id
    assert result.configs is not None
    configs = {config.name: config for config in result.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
    assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("604800000", 5)
    assert broker.replicas.partition("t", 2).replica.log.end_offset == 0


def test_minus_one_takes_the_settings_of_the_broker(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, {"num.partitions": "4"})
    assert create(broker, topic("t", -1, -1))["t"].num_partitions == 4


def test_old_versions_get_no_configs(broker: OneBroker) -> None:
    assert create(broker, topic("t"), version=4)["t"].configs == ()


def test_a_name_that_comes_twice_is_refused_once_and_not_created(broker: OneBroker) -> None:
    request = CreateTopicsRequest(topics=(topic("t"), topic("t"), topic("u")))
    answer = broker.ask(create_topics, request)
    assert [(one.name, ErrorCode(one.error_code)) for one in answer.topics] == [
        ("u", NONE),
        ("t", ErrorCode.INVALID_REQUEST),
    ]
    assert set(broker.metadata.image.topics) == {"u"}


def test_validation_creates_nothing(broker: OneBroker) -> None:
    results = create(broker, topic("t", 3), topic("a/b"), validate_only=True)
    assert ErrorCode(results["t"].error_code) == NONE
    assert results["t"].num_partitions == 3
    assert ErrorCode(results["a/b"].error_code) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not broker.metadata.image.topics
    assert not broker.replicas.topic("t")


@pytest.mark.parametrize(
    ("wanted", "code", "words"),
    [
        (topic("t"), ErrorCode.TOPIC_ALREADY_EXISTS, "'t' already exists"),
        (topic("../x"), ErrorCode.INVALID_TOPIC_EXCEPTION, "letters"),
        (topic("n", 0), ErrorCode.INVALID_PARTITIONS, "larger than 0"),
        (topic("n", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, "2 time"),
        (topic("n", retention_ms="x"), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (topic("n", no_such="x"), ErrorCode.INVALID_CONFIG, "no.such"),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "choose another"),
    ],
)
def test_a_refusal_has_a_code_and_a_reason(
    broker: OneBroker, wanted: CreatableTopic, code: ErrorCode, words: str
) -> None:
    broker.create("t")
    result = create(broker, wanted)[wanted.name]
    assert ErrorCode(result.error_code) == code
    assert result.error_message is not None
    assert words in result.error_message
    assert (result.num_partitions, result.replication_factor) == (-1, -1)


def test_a_fork_needs_the_right_to_read_its_parent(tmp_path: Path) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    broker = OneBroker(tmp_path, {"authorizer.class.name": authorizer})
    broker.create("orders")
    caller = Caller("10.0.0.7:1")
    broker.services.admit(caller)

    def allow(name: str, operation: AclOperation) -> None:
        row = AclCreation(
            resource_type=i8(ResourceType.TOPIC), resource_name=name, resource_pattern_type=i8(3),
            principal="User:ANONYMOUS", host="*", operation=i8(operation), permission_type=i8(3),
        )  # fmt: skip
        broker.ask(create_acls, CreateAclsRequest(creations=(row,)))

    def fork() -> ErrorCode:
        new = topic("test", -1, -1, fork_of="orders", fork_offsets="0")
        request = CreateTopicsRequest(topics=(new,))
        answer = create_topics(broker.services, request, RequestContext(NEWEST, "test", caller))
        return ErrorCode(answer.topics[0].error_code)

    allow("test", AclOperation.CREATE)
    assert fork() is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allow("orders", AclOperation.READ)
    assert fork() is NONE
    broker.close()
