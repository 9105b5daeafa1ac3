"""Groups of both protocols are described and deleted, on our broker and on Kafka."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer

from headrace.client.cluster import Cluster
from headrace.client.groups import (
    DEAD,
    Committed,
    commit_offsets,
    delete_groups,
    describe_groups,
    list_groups,
)
from headrace.errors import ErrorCode
from headrace.testing.plugin import BrokerFactory
from headrace.types import TopicPartition
from tests.client.conftest import Connect

PATIENCE_S = 60


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[None]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "one",
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    try:
        yield
    finally:
        consumer.close()


@pytest.mark.parametrize(("protocol", "assignor"), [("classic", "range"), ("consumer", "uniform")])
def test_members_are_described_with_their_partitions(
    cluster: Cluster, bootstrap: str, topic: str, group: str, protocol: str, assignor: str
) -> None:
    both = (TopicPartition(topic, 0), TopicPartition(topic, 1))
    with member(bootstrap, group, topic, protocol):
        found = describe_groups(cluster, [group])[group]
        assert (found.type, found.protocol_type) == (protocol, "consumer")
        assert (found.state, found.assignor) == ("Stable", assignor)
        (only,) = found.members
        assert (only.client_id, only.host, only.instance_id) == ("one", "127.0.0.1", None)
        assert only.assignment == both
        assert only.target == (both if protocol == "consumer" else None)
        refused = delete_groups(cluster, [group])
        assert refused[group].code is ErrorCode.NON_EMPTY_GROUP


def test_groups_with_offsets_are_deleted_and_missing_ones_are_dead(
    cluster: Cluster, topic: str, group: str
) -> None:
    commit_offsets(cluster, group, {TopicPartition(topic, 0): Committed(0)})
    missing = f"{group}-missing"
    found = describe_groups(cluster, [missing, group])
    assert [(each.name, each.state) for each in found.values()] == [
        (missing, DEAD),
        (group, "Empty"),
    ]
    refused = delete_groups(cluster, [missing, group])
    assert {name: error.code for name, error in refused.items()} == {
        missing: ErrorCode.GROUP_ID_NOT_FOUND
    }
    assert group not in [each.name for each in list_groups(cluster)[0]]


def test_a_coordinator_that_has_moved_or_hangs_up_is_asked_again(
    headrace_factory: BrokerFactory, connect: Connect, group: str
) -> None:
    broker = headrace_factory()
    cluster = connect(broker.bootstrap_servers)
    broker.fail("ConsumerGroupDescribe", ErrorCode.NOT_COORDINATOR, 1)
    broker.fail("DescribeGroups", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1)
    broker.cut("DescribeGroups", 1)
    assert describe_groups(cluster, [group])[group].state == DEAD
    assert broker.faults_left() == 0
