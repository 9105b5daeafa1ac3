"""DeleteTopics deletes by name and by id."""

import uuid
from pathlib import Path

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState

from headrace.apis.topics.delete_topics import delete_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import TopicName, milliseconds
from tests.apis.one_broker import OneBroker

NONE = ErrorCode.NONE


def delete(
    broker: OneBroker, *topics: tuple[str | None, uuid.UUID | None]
) -> list[tuple[str | None, int]]:
    states = tuple(
        DeleteTopicState(name=TopicName(name) if name is not None else None, topic_id=topic_id)
        for name, topic_id in topics
    )
    request = DeleteTopicsRequest(topics=states, timeout=milliseconds(0))
    answer = broker.ask(delete_topics, request)
    return [(one.name, ErrorCode(one.error_code)) for one in answer.responses]


def test_topics_are_deleted_by_name_and_by_id(broker: OneBroker) -> None:
    broker.create("a")
    by_id = broker.create("b").id
    assert delete(broker, ("a", None), (None, by_id)) == [("a", NONE), ("b", NONE)]
    assert not broker.metadata.image.topics
    with pytest.raises(KafkaError):
        broker.replicas.partition("a", 0)


def test_a_refused_deletion_has_a_reason(broker: OneBroker) -> None:
    known = broker.create("t").id
    unknown = uuid.uuid4()
    invalid = ErrorCode.INVALID_REQUEST
    assert delete(broker, ("none", None)) == [("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert delete(broker, (None, unknown)) == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert delete(broker, (None, None)) == [(None, invalid)]
    assert delete(broker, ("t", known)) == [("t", invalid)]
    assert delete(broker, ("t", None), ("t", None)) == [("t", invalid)] * 2
    assert "t" in broker.metadata.image.topics
    assert delete(broker, ("t", None), (None, known)) == [("t", invalid), ("t", NONE)]


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_deletion_can_be_switched_off(tmp_path: Path, version: int, code: ErrorCode) -> None:
    broker = OneBroker(tmp_path, {"delete.topic.enable": "false"})
    broker.create("t")
    state = DeleteTopicState(name=TopicName("t"), topic_id=None)
    request = DeleteTopicsRequest(topics=(state,), timeout=milliseconds(0))
    with pytest.raises(KafkaError, match=r"delete\.topic\.enable") as caught:
        broker.ask(delete_topics, request, version)
    assert caught.value.code is code
    assert "t" in broker.metadata.image.topics
