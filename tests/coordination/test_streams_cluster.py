"""A streams group on three brokers, whose coordinator is killed."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

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

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.cluster.image import OFFSETS_TOPIC
from headrace.errors import ErrorCode
from tests.support.cluster import PATIENCE_S, RunningCluster

GROUP = GroupId("word-count")
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "default.replication.factor": "3",
    "group.streams.session.timeout.ms": "60000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
CHANGELOG = beats.TopicInfo(
    name=TopicName("counts"), partitions=i32(0), replication_factor=i16(0), topic_configs=()
)
TOPOLOGY = beats.Topology(
    epoch=i32(0),
    subtopologies=(
        beats.Subtopology(
            subtopology_id="0",
            source_topics=(TopicName("words"),),
            state_changelog_topics=(CHANGELOG,),
            repartition_source_topics=(),
            copartition_groups=(),
        ),
    ),
)
JOIN = StreamsGroupHeartbeatRequest(
    group_id=GROUP,
    member_id="",
    member_epoch=i32(0),
    endpoint_information_epoch=i32(0),
    rebalance_timeout=i32Timedelta.parse(timedelta(seconds=60)),
    topology=TOPOLOGY,
    active_tasks=(),
    standby_tasks=(),
    warmup_tasks=(),
    client_tags=None,
    task_offsets=None,
    task_end_offsets=None,
)


class Member:
    """A member that takes whatever it is assigned, from the coordinator of the moment."""

    def __init__(self, brokers: Cluster, name: str) -> None:
        self._brokers = brokers
        self._request = replace(JOIN, member_id=name, process_id=name)
        self.partitions: tuple[int, ...] = ()

    @property
    def epoch(self) -> int:
        return self._request.member_epoch

    def beat(self) -> ErrorCode:
        coordinator = self._brokers.coordinator(0, GROUP)
        reply = self._brokers.ask(self._request, StreamsGroupHeartbeatResponse, coordinator)
        if reply.error_code:
            return ErrorCode(int(reply.error_code))
        owned = self._request.active_tasks
        if reply.active_tasks is not None:
            owned = tuple(
                beats.TaskIds(subtopology_id=one.subtopology_id, partitions=one.partitions)
                for one in reply.active_tasks
            )
            self.partitions = tuple(each for one in owned for each in one.partitions)
        self._request = replace(
            self._request, member_epoch=reply.member_epoch, active_tasks=owned, topology=None
        )
        return ErrorCode.NONE


def describe(brokers: Cluster) -> DescribedGroup:
    request = StreamsGroupDescribeRequest(group_ids=(GROUP,), include_authorized_operations=False)
    coordinator = brokers.coordinator(0, GROUP)
    found = brokers.ask(request, StreamsGroupDescribeResponse, coordinator).groups[0]
    return replace(found, members=tuple(sorted(found.members, key=lambda one: one.member_id)))


def until(brokers: Cluster, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not brokers.retry("ask the coordinator", holds):
        assert time.monotonic() < deadline
        brokers.forget()
        time.sleep(0.1)


def test_members_keep_their_tasks_and_epochs_when_the_coordinator_is_killed(tmp_path: Path) -> None:
    with RunningCluster(tmp_path / "metadata", settings=SETTINGS) as cluster:
        cluster.create("words", 4)
        with Cluster(ClientConfig(parse_bootstrap(cluster.bootstrap_servers))) as brokers:
            members = [Member(brokers, name) for name in ("first", "second")]

            def settled() -> bool:
                codes = [member.beat() for member in members]
                found = sorted(each for member in members for each in member.partitions)
                return codes == [ErrorCode.NONE] * 2 and found == [0, 1, 2, 3]

            until(brokers, lambda: settled() and describe(brokers).group_state == "Stable")
            before, epochs = describe(brokers), [member.epoch for member in members]
            cluster.wait_for(OFFSETS_TOPIC, lambda seen: len(seen.partitions[0].isrs) == 3)
            cluster.brokers[brokers.coordinator(0, GROUP)].kill()
            brokers.forget()
            until(brokers, settled)
            assert [member.epoch for member in members] == epochs
            assert describe(brokers) == before
