"""Groups on three brokers, two of which are stopped for some time."""

import datetime
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kio.schema.consumer_group_heartbeat.v1.request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.cluster.image import OFFSETS_TOPIC
from headrace.errors import ErrorCode
from tests.support.cluster import PATIENCE_S, RunningCluster

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "zookeeper.session.timeout.ms": "3000",
}
JOIN = ConsumerGroupHeartbeatRequest(
    group_id=GroupId("billing"),
    member_id="first",
    member_epoch=i32(0),
    rebalance_timeout=i32Timedelta.parse(datetime.timedelta(seconds=60)),
    subscribed_topic_names=(TopicName("orders"),),
    topic_partitions=(),
)


class Member:
    """A member of a consumer group that takes whatever it is assigned."""

    def __init__(self, brokers: Cluster, coordinator: int, name: str) -> None:
        self._brokers = brokers
        self._coordinator = coordinator
        self._request = replace(JOIN, member_id=name)
        self.partitions = 0

    def beat(self) -> ErrorCode:
        answer = self._ask(self._request)
        if answer.error_code:
            return ErrorCode(int(answer.error_code))
        owned = self._request.topic_partitions
        if answer.assignment is not None:
            owned = tuple(
                TopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
                for one in answer.assignment.topic_partitions
            )
            self.partitions = sum(len(one.partitions) for one in owned)
        self._request = replace(
            self._request, member_epoch=answer.member_epoch, topic_partitions=owned
        )
        return ErrorCode.NONE

    def leave(self) -> ErrorCode:
        request = replace(self._request, member_epoch=i32(-1))
        return ErrorCode(int(self._ask(request).error_code))

    def _ask(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        return self._brokers.ask(request, ConsumerGroupHeartbeatResponse, self._coordinator)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_member_whose_leave_was_refused_expires_and_its_partitions_are_read(
    tmp_path: Path,
) -> None:
    with RunningCluster(tmp_path / "metadata", settings=SETTINGS) as cluster:
        cluster.create("orders", 2)
        with Cluster(ClientConfig(parse_bootstrap(cluster.bootstrap_servers))) as brokers:
            coordinator = brokers.retry(
                "find the coordinator", lambda: brokers.coordinator(0, "billing")
            )
        cluster.wait_for(OFFSETS_TOPIC, lambda seen: len(seen.partitions[0].isrs) == 3)
        address = cluster.brokers[coordinator].bootstrap_servers
        with Cluster(ClientConfig(parse_bootstrap(address))) as brokers:
            first, second = (Member(brokers, coordinator, name) for name in ("first", "second"))
            until(lambda: first.beat() is ErrorCode.NONE and first.partitions == 2)
            others = [one for number, one in cluster.brokers.items() if number != coordinator]
            for other in others:
                other.kill()
            alone = (coordinator,)
            cluster.wait_for(OFFSETS_TOPIC, lambda seen: len(seen.partitions[0].isrs) == 1, alone)
            assert first.leave() is ErrorCode.COORDINATOR_NOT_AVAILABLE
            for other in others:
                other.start()
            until(lambda: second.beat() is ErrorCode.NONE and second.partitions == 2)
