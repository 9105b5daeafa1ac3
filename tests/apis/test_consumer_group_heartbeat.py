"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, as dispatch calls them."""

import datetime
import uuid
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from kio.schema.consumer_group_heartbeat.v1.request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from headrace.apis.groups.consumer_group_describe import consumer_group_describe
from headrace.apis.groups.consumer_group_heartbeat import consumer_group_heartbeat
from headrace.clock import ManualClock
from headrace.cluster.controller import Alteration, ConfigChange, Operation
from headrace.cluster.image import OFFSETS_TOPIC
from headrace.errors import ErrorCode, KafkaError
from tests.apis.one_broker import OneBroker

JOIN = ConsumerGroupHeartbeatRequest(
    group_id=GroupId("billing"),
    member_id="a",
    member_epoch=i32(0),
    rebalance_timeout=i32Timedelta.parse(datetime.timedelta(seconds=60)),
    subscribed_topic_names=(TopicName("orders"),),
    topic_partitions=(),
)
STAY = replace(
    JOIN,
    rebalance_timeout=i32Timedelta.parse(datetime.timedelta(milliseconds=-1)),
    subscribed_topic_names=None,
    topic_partitions=None,
)


def beat(
    broker: OneBroker, request: ConsumerGroupHeartbeatRequest, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    answer = broker.ask(consumer_group_heartbeat, request, version)
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


def describe(broker: OneBroker, *group_ids: str) -> tuple[DescribedGroup, ...]:
    request = ConsumerGroupDescribeRequest(
        group_ids=tuple(map(GroupId, group_ids)), include_authorized_operations=False
    )
    answer = broker.ask(consumer_group_describe, request)
    assert isinstance(answer, ConsumerGroupDescribeResponse)
    return answer.groups


def test_a_member_joins_stays_and_leaves(broker: OneBroker) -> None:
    topic = broker.create("orders", 2)
    joined = beat(broker, JOIN)
    assert (joined.member_id, joined.member_epoch) == ("a", 1)
    assert joined.heartbeat_interval == datetime.timedelta(seconds=5)
    assert joined.assignment is not None
    (assigned,) = joined.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic.id, (0, 1))
    assert beat(broker, replace(STAY, member_epoch=i32(1))).assignment is None
    assert beat(broker, replace(STAY, member_epoch=i32(-1))).member_epoch == -1
    (group,) = describe(broker, "billing")
    assert (group.group_state, group.members) == ("Empty", ())


def test_the_configs_of_a_group_reach_its_coordinator_at_once(broker: OneBroker) -> None:
    broker.create("orders", 2)
    beat(broker, JOIN)
    change = ConfigChange("consumer.heartbeat.interval.ms", Operation.SET, "6000")
    alteration = Alteration("group", "billing", (change,), broker=broker.services.settings)
    assert broker.metadata.alter_configs([alteration]) == [None]
    answer = beat(broker, replace(STAY, member_epoch=i32(1)))
    assert answer.heartbeat_interval == datetime.timedelta(seconds=6)


def test_a_member_whose_end_could_not_be_written_ends_later(broker: OneBroker) -> None:
    broker.create("orders", 2)
    beat(broker, JOIN)
    log = broker.replicas.partition(OFFSETS_TOPIC, broker.groups.topic.partition_of("billing"))
    clock = cast(ManualClock, broker.services.clock)
    log.isr = 0
    clock.advance(60_000)
    broker.groups.fire_timers()
    (group,) = describe(broker, "billing")
    assert len(group.members) == 1
    log.isr = 1
    clock.advance(10_000)
    broker.groups.fire_timers()
    (group,) = describe(broker, "billing")
    assert group.members == ()


def test_a_group_is_described_with_its_epochs_and_members(broker: OneBroker) -> None:
    topic = broker.create("orders", 2)
    beat(broker, replace(JOIN, server_assignor="range", instance_id="one", rack_id="r"))
    (group,) = describe(broker, "billing")
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "range")
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("a", "one", "r")
    assert (member.client_id, member.member_type) == ("test", 1)
    assert member.subscribed_topic_names == ("orders",)
    assert member.assignment == member.target_assignment
    (owned,) = member.assignment.topic_partitions
    assert (owned.topic_id, owned.topic_name, owned.partitions) == (topic.id, "orders", (0, 1))


def test_groups_that_are_not_there_are_said_not_to_be(broker: OneBroker) -> None:
    codes = [int(one.error_code) for one in describe(broker, "nobody", "")]
    assert codes == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID]


def test_a_group_survives_a_restart(tmp_path: Path) -> None:
    first = OneBroker(tmp_path)
    first.create("orders", 2)
    beat(first, JOIN)
    (before,) = describe(first, "billing")
    first.close()
    second = OneBroker(tmp_path)
    assert describe(second, "billing") == (before,)
    assert beat(second, replace(STAY, member_epoch=i32(1))).member_epoch == 1
    second.close()


def test_a_topic_that_grows_reaches_the_members(broker: OneBroker) -> None:
    beat(broker, JOIN)
    broker.create("orders", 3)
    answer = beat(broker, replace(STAY, member_epoch=i32(1)))
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions[0].partitions == (0, 1, 2)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (replace(JOIN, group_id=GroupId("")), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, member_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, instance_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, rack_id=""), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, rebalance_timeout=STAY.rebalance_timeout), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, topic_partitions=None), ErrorCode.INVALID_REQUEST),
        (
            replace(JOIN, topic_partitions=(TopicPartitions(topic_id=uuid.uuid4()),)),
            ErrorCode.INVALID_REQUEST,
        ),
        (replace(JOIN, subscribed_topic_names=None), ErrorCode.INVALID_REQUEST),
        (replace(STAY, member_epoch=i32(-2)), ErrorCode.INVALID_REQUEST),
        (replace(STAY, member_epoch=i32(-3)), ErrorCode.INVALID_REQUEST),
        (replace(JOIN, server_assignor="sticky"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (replace(JOIN, subscribed_topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (replace(STAY, member_epoch=i32(5)), ErrorCode.GROUP_ID_NOT_FOUND),
        (replace(STAY, member_epoch=i32(-1)), ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_wrong_heartbeat_has_the_error_that_kafka_gives(
    broker: OneBroker, request_: ConsumerGroupHeartbeatRequest, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refusal:
        beat(broker, request_)
    assert refusal.value.code is code


def test_version_0_lets_the_broker_choose_the_member_id(broker: OneBroker) -> None:
    assert beat(broker, replace(JOIN, member_id=""), version=0).member_id
