"""OffsetForLeaderEpoch returns the end offsets of epochs."""

from dataclasses import replace

import pytest
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from headrace.apis.records.offset_for_leader_epoch import offset_for_leader_epoch
from headrace.cluster.image import Image, Topic
from headrace.errors import ErrorCode
from headrace.wire.primitives import TopicName, i32
from tests.apis.one_broker import NOW, OneBroker


def end_of(
    broker: OneBroker, epoch: int, current: int = -1, topic: str = "t"
) -> tuple[int, int, int]:
    wanted = OffsetForLeaderPartition(
        partition=i32(0), current_leader_epoch=i32(current), leader_epoch=i32(epoch)
    )
    request = OffsetForLeaderEpochRequest(
        topics=(OffsetForLeaderTopic(topic=TopicName(topic), partitions=(wanted,)),)
    )
    answer = broker.ask(offset_for_leader_epoch, request).topics[0].partitions[0]
    return answer.error_code, answer.leader_epoch, answer.end_offset


def test_the_present_epoch_ends_at_the_end_of_the_log_even_if_that_is_empty(
    broker: OneBroker,
) -> None:
    broker.create("t")
    assert end_of(broker, 0) == (0, 0, 0)
    broker.append("t", [NOW, NOW])
    assert end_of(broker, 0) == (0, 0, 2)


def test_an_epoch_that_is_yet_to_come_has_no_end(broker: OneBroker) -> None:
    broker.create("t")
    broker.append("t", [NOW])
    assert end_of(broker, 5) == (0, -1, -1)


@pytest.mark.parametrize(
    ("topic", "current", "code"),
    [
        ("none", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 3, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_what_cannot_be_answered(
    broker: OneBroker, topic: str, current: int, code: ErrorCode
) -> None:
    broker.create("t")
    assert end_of(broker, 0, current, topic) == (code, -1, -1)


def test_an_epoch_of_which_a_new_leader_has_nothing_ends_where_its_log_does(
    broker: OneBroker,
) -> None:
    """Otherwise a follower that has some of it cuts its log to what it takes for committed."""
    topic = broker.create("t")
    broker.append("t", [NOW, NOW])

    def lead_in_epoch_two(_image: Image) -> list[Topic]:
        return [replace(topic, partitions=(replace(topic.partitions[0], leader_epoch=2),))]

    broker.metadata.alter_partitions(lead_in_epoch_two)
    assert end_of(broker, 1) == (0, 0, 2)
    assert end_of(broker, 3) == (0, -1, -1)
