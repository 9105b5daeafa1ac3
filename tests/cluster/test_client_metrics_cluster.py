"""Client metrics with several brokers: each knows the same subscriptions and the same ids."""

import uuid
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from tests.support.client_metrics import (
    ask_for_subscription,
    connect,
    push,
    pushed_series,
    subscribe,
)
from tests.support.cluster import RunningCluster
from tests.support.otlp import counter, metrics_data, point
from tests.support.ports import free_port
from tests.support.stores import eventually
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.java


def test_a_client_moves_to_another_broker_with_its_ids(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    pages = {1: free_port(), 2: free_port()}
    each = {
        number: {"headrace.metrics.address": f"127.0.0.1:{page}"} for number, page in pages.items()
    }
    metadata = zookeeper.address(f"/{uuid.uuid4().hex[:8]}")
    with RunningCluster(tmp_path / "metadata", 2, metadata=metadata, each=each) as cluster:
        first, second = (
            connect(cluster.brokers[number].bootstrap_servers, "moves") for number in pages
        )
        subscribe(first, "s", metrics="org.apache.kafka.", interval_ms="1000")
        asked = ask_for_subscription(first)
        assert asked.requested_metrics == ("org.apache.kafka.",)
        me = asked.client_instance_id
        data = metrics_data(counter("org.apache.kafka.x", point(1)))
        assert push(first, me, asked.subscription_id, data) == ErrorCode.NONE
        # The other broker hears of the subscription a moment later.
        eventually(
            lambda: push(second, me, asked.subscription_id, data) == ErrorCode.NONE,
            "the second broker knows the subscription",
        )
        for page in pages.values():
            ((name, labels, value),) = pushed_series(page)
            assert (name, labels["client_id"], value) == ("org_apache_kafka_x", "moves", 1)
        first.close()
        second.close()
