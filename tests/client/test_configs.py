"""Configs of topics and brokers, on our broker and on Kafka."""

import time

import pytest

from headrace.client.brokers import describe_cluster
from headrace.client.cluster import Cluster
from headrace.client.configs import alter_configs, describe_configs, topic_config
from headrace.errors import ErrorCode, KafkaError
from headrace.types import ConfigResourceType

PATIENCE_S = 60


def until(cluster: Cluster, topic: str, value: tuple[str | None, str]) -> None:
    """Wait until retention.ms has this value and source."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        configs = describe_configs(cluster, ConfigResourceType.TOPIC, topic)
        found = {each.name: (each.value, each.source) for each in configs}["retention.ms"]
        if found == value:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_a_config_is_set_and_put_back_to_its_default(cluster: Cluster, topic: str) -> None:
    until(cluster, topic, ("604800000", "default"))
    alter_configs(cluster, ConfigResourceType.TOPIC, topic, {"retention.ms": "70000"})
    until(cluster, topic, ("70000", "topic"))
    alter_configs(cluster, ConfigResourceType.TOPIC, topic, {}, ["retention.ms"])
    until(cluster, topic, ("604800000", "default"))


def test_a_bad_value_is_refused_and_names_the_config(cluster: Cluster, topic: str) -> None:
    with pytest.raises(KafkaError, match=r"cleanup\.policy") as caught:
        alter_configs(cluster, ConfigResourceType.TOPIC, topic, {"cleanup.policy": "burn"})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_one_config_of_many_topics_leaves_out_those_that_do_not_exist(
    cluster: Cluster, topic: str
) -> None:
    found = topic_config(cluster, [topic, "nowhere"], "min.insync.replicas")
    assert found == {topic: "1"}


def test_a_broker_describes_its_own_configs(cluster: Cluster) -> None:
    broker = next(iter(describe_cluster(cluster).brokers))
    configs = describe_configs(cluster, ConfigResourceType.BROKER, str(broker))
    assert {"num.partitions", "log.retention.ms"} <= {each.name for each in configs}
