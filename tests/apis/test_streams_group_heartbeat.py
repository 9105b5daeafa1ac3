"""StreamsGroupHeartbeat and StreamsGroupDescribe, as dispatch calls them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import (
    DescribedGroup,
    StreamsGroupDescribeResponse,
)
from kio.schema.streams_group_heartbeat.v0 import request as beats
from kio.schema.streams_group_heartbeat.v0.request import StreamsGroupHeartbeatRequest
from kio.schema.streams_group_heartbeat.v0.response import StreamsGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i16, i32, i32Timedelta

from headrace.apis.context import Caller, RequestContext
from headrace.apis.groups.streams_group_describe import streams_group_describe
from headrace.apis.groups.streams_group_heartbeat import streams_group_heartbeat
from headrace.coordination.groups.streams.topic_setup import (
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.security.guard import Permissions
from tests.apis.one_broker import OneBroker

SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
CHANGELOG = beats.TopicInfo(
    name=TopicName("counts"),
    partitions=i32(0),
    replication_factor=i16(1),
    topic_configs=(beats.KeyValue(key="cleanup.policy", value="compact"),),
)
PART = beats.Subtopology(
    subtopology_id="0",
    source_topics=(TopicName("words"),),
    state_changelog_topics=(CHANGELOG,),
    repartition_source_topics=(),
    copartition_groups=(),
)
STAY = StreamsGroupHeartbeatRequest(
    group_id=GroupId("app"),
    member_id="a",
    member_epoch=i32(1),
    endpoint_information_epoch=i32(0),
    rebalance_timeout=i32Timedelta.parse(timedelta(milliseconds=-1)),
    active_tasks=None,
    standby_tasks=None,
    warmup_tasks=None,
    client_tags=None,
    task_offsets=None,
    task_end_offsets=None,
)
JOIN = replace(
    STAY,
    member_epoch=i32(0),
    rebalance_timeout=i32Timedelta.parse(timedelta(seconds=60)),
    topology=beats.Topology(epoch=i32(0), subtopologies=(PART,)),
    active_tasks=(),
    standby_tasks=(),
    warmup_tasks=(),
    process_id="p",
)


@dataclass
class _Denied:
    """Permissions of a client that may do everything but this."""

    denied: tuple[AclOperation, str]

    def allows(self, operation: AclOperation, kind: ResourceType, name: str, _silent: bool) -> bool:
        if self.denied[0] is AclOperation.CREATE and kind is ResourceType.CLUSTER:
            return False
        return (operation, name) != self.denied


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    found = OneBroker(tmp_path, SETTINGS)
    yield found
    found.close()


def _caller(operation: AclOperation, name: str) -> Caller:
    caller = Caller("127.0.0.1:1")
    caller.permissions = cast("Permissions", _Denied((operation, name)))
    return caller


def beat(
    broker: OneBroker, request: StreamsGroupHeartbeatRequest, caller: Caller | None = None
) -> StreamsGroupHeartbeatResponse:
    context = RequestContext(0, "test", caller or Caller("127.0.0.1:1"))
    answer = streams_group_heartbeat(broker.services, request, context)
    assert isinstance(answer, StreamsGroupHeartbeatResponse)
    return answer


def describe(broker: OneBroker, caller: Caller | None = None) -> DescribedGroup:
    request = StreamsGroupDescribeRequest(
        group_ids=(GroupId("app"),), include_authorized_operations=False
    )
    context = RequestContext(0, "test", caller or Caller("127.0.0.1:1"))
    answer = streams_group_describe(broker.services, request, context)
    assert isinstance(answer, StreamsGroupDescribeResponse)
    return answer.groups[0]


def _status(answer: StreamsGroupHeartbeatResponse) -> list[int]:
    return [one.status_code for one in answer.status or ()]


def test_internal_topics_are_created_with_their_configs(broker: OneBroker) -> None:
    assert _status(beat(broker, JOIN)) == [MISSING_SOURCE_TOPICS]
    broker.create("words", 3)
    answer = beat(broker, JOIN)
    assert _status(answer) == [MISSING_INTERNAL_TOPICS]
    topic = broker.metadata.image.topics["counts"]
    assert len(topic.partitions) == 3
    assert topic.configs == {"cleanup.policy": "compact"}
    answer = beat(broker, JOIN)
    assert _status(answer) == []
    assert answer.active_tasks is not None
    assert [one.partitions for one in answer.active_tasks] == [(0, 1, 2)]
    found = describe(broker)
    assert (found.group_state, found.assignment_epoch) == ("Stable", answer.member_epoch)
    assert found.topology is not None
    assert found.topology.subtopologies is not None
    (changelog,) = found.topology.subtopologies[0].state_changelog_topics
    assert (changelog.name, changelog.partitions) == ("counts", 3)
    assert found.members[0].assignment == found.members[0].target_assignment


def test_a_topic_that_cannot_be_created_is_named_with_the_reason(broker: OneBroker) -> None:
    broker.create("words", 2)
    wide = replace(PART, state_changelog_topics=(replace(CHANGELOG, replication_factor=i16(3)),))
    topology = beats.Topology(epoch=i32(0), subtopologies=(wide,))
    (status,) = beat(broker, replace(JOIN, topology=topology)).status or ()
    assert "Creation failed: counts (" in status.status_detail
    assert describe(broker).group_state == "NotReady"


def test_internal_topics_need_the_right_to_create_them(broker: OneBroker) -> None:
    broker.create("words", 2)
    (status,) = beat(broker, JOIN, _caller(AclOperation.CREATE, "counts")).status or ()
    assert status.status_detail.endswith("; Unauthorized to CREATE on topics counts.")
    assert "counts" not in broker.metadata.image.topics
    beat(broker, JOIN, _caller(AclOperation.CREATE, "others"))
    assert "counts" in broker.metadata.image.topics


@pytest.mark.parametrize("topic", ["words", "counts"])
def test_a_client_must_be_allowed_to_describe_all_topics(broker: OneBroker, topic: str) -> None:
    broker.create("words", 2)
    denied = _caller(AclOperation.DESCRIBE, topic)
    with pytest.raises(KafkaError) as refusal:
        beat(broker, JOIN, denied)
    assert refusal.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    beat(broker, JOIN)
    found = describe(broker, denied)
    assert (int(found.error_code), found.topology) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    found = describe(broker, _caller(AclOperation.DESCRIBE, "app"))
    assert int(found.error_code) == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_the_same_subtopology_twice_is_refused(broker: OneBroker) -> None:
    topology = beats.Topology(epoch=i32(0), subtopologies=(PART, PART))
    with pytest.raises(KafkaError) as refusal:
        beat(broker, replace(JOIN, topology=topology))
    assert refusal.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    with pytest.raises(KafkaError) as refusal:
        beat(broker, STAY)
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
