"""Topics are described, created, deleted and given partitions, on our broker and on Kafka."""

import time
import uuid
from collections.abc import Callable

import pytest

from headrace.client.cluster import Cluster
from headrace.client.topics import add_partitions, create_topics, delete_topics, describe_topics
from headrace.errors import ErrorCode, KafkaError

PATIENCE_S = 60


def wait_until(true: Callable[[], bool]) -> None:
    """Kafka's brokers hear of a change a moment after its controller has answered."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def test_a_topic_is_created_grows_and_is_deleted(cluster: Cluster) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    assert create_topics(cluster, [name], partitions=2, configs={"retention.ms": "60000"}) == {}
    wait_until(lambda: name in describe_topics(cluster, [name]))
    found = describe_topics(cluster)[name]
    assert (list(found.partitions), found.led, found.internal) == ([0, 1], [0, 1], False)
    assert found.topic_id is not None
    assert all(held.leader in held.isr for held in found.partitions.values())
    add_partitions(cluster, name, 3)
    wait_until(lambda: len(describe_topics(cluster, [name])[name].partitions) == 3)
    assert delete_topics(cluster, [name]) == {}
    wait_until(lambda: name not in describe_topics(cluster, [name]))


def test_errors_are_returned_for_each_topic(cluster: Cluster, topic: str) -> None:
    new = f"t-{uuid.uuid4().hex[:12]}"
    refused = create_topics(cluster, [topic, new])
    assert {name: error.code for name, error in refused.items()} == {
        topic: ErrorCode.TOPIC_ALREADY_EXISTS
    }
    refused = delete_topics(cluster, [new, "nowhere"])
    assert {name: error.code for name, error in refused.items()} == {
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    with pytest.raises(KafkaError) as caught:
        add_partitions(cluster, topic, 1)
    assert caught.value.code is ErrorCode.INVALID_PARTITIONS
