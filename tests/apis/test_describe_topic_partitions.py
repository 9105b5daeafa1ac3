"""DescribeTopicPartitions describes topics page by page."""

import pytest
from kio.schema.describe_topic_partitions.v0 import request as pages
from kio.schema.describe_topic_partitions.v0.response import DescribeTopicPartitionsResponse

from headrace.apis.topics.describe_topic_partitions import describe_topic_partitions
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import TopicName, i32
from tests.apis.one_broker import OneBroker

NONE = ErrorCode.NONE


Where = tuple[str, int]


def page(
    broker: OneBroker, *names: str, limit: int = 2000, cursor: Where | None = None
) -> DescribeTopicPartitionsResponse:
    request = pages.DescribeTopicPartitionsRequest(
        topics=tuple(pages.TopicRequest(name=TopicName(name)) for name in names),
        response_partition_limit=i32(limit),
        cursor=pages.Cursor(topic_name=TopicName(cursor[0]), partition_index=i32(cursor[1]))
        if cursor
        else None,
    )
    return broker.ask_in_steps(describe_topic_partitions, request)


def test_all_topics_come_in_pages_by_name(broker: OneBroker) -> None:
    for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
        broker.create(name, partitions)
    for limit in range(1, 8):
        seen: list[Where] = []
        cursor: Where | None = None
        while True:
            answer = page(broker, limit=limit, cursor=cursor)
            found = [(str(t.name), p.partition_index) for t in answer.topics for p in t.partitions]
            assert len(found) <= limit
            seen += found
            if answer.next_cursor is None:
                break
            cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)], limit


def test_a_partition_is_described(broker: OneBroker) -> None:
    created = broker.create("t")
    (topic,) = page(broker, "t").topics
    assert (ErrorCode(topic.error_code), topic.topic_id) == (NONE, created.id)
    assert topic.topic_authorized_operations == 0xDF8
    (partition,) = topic.partitions
    assert (partition.leader_id, partition.leader_epoch) == (1, 0)
    assert partition.replica_nodes == partition.isr_nodes == (1,)
    assert partition.offline_replicas == ()


def test_named_topics_that_are_missing_say_so(broker: OneBroker) -> None:
    broker.create("t")
    assert [(t.name, ErrorCode(t.error_code)) for t in page(broker, "t", "x", "a/b").topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", NONE),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("cursor", [("u", 0), ("t", -1)])
def test_a_cursor_that_makes_no_sense_is_refused(broker: OneBroker, cursor: Where) -> None:
    broker.create("t")
    with pytest.raises(KafkaError, match="cursor") as caught:
        page(broker, "t", cursor=cursor)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_cursor_at_a_topic_that_was_deleted_goes_on_with_the_next(broker: OneBroker) -> None:
    broker.create("c", 2)
    (topic,) = page(broker, cursor=("b", 7)).topics
    assert [p.partition_index for p in topic.partitions] == [0, 1]
