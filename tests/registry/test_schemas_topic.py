"""The schemas topic: how it is created, and why it cannot be used."""

import uuid

import pytest

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.configs import topic_config
from headrace.client.topics import describe_topics
from headrace.registry.schemas_topic import TopicLocation, make_topic
from headrace.service.errors import ClusterUnreachable, TopicUnusable
from tests.support.ports import free_port


def test_the_topic_is_created_once_and_compacted(bootstrap: str) -> None:
    location = TopicLocation(bootstrap, f"_schemas-{uuid.uuid4().hex[:8]}")
    make_topic(location, 60)
    make_topic(location, 60)
    with Cluster(client_config({"bootstrap.servers": bootstrap})) as cluster:
        found = describe_topics(cluster, [location.topic])[location.topic]
        assert (len(found.partitions), len(found.partitions[0].replicas)) == (1, 1)
        policy = topic_config(cluster, [location.topic], "cleanup.policy")
    assert policy == {location.topic: "compact"}


def test_a_cluster_that_does_not_answer_is_named() -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ClusterUnreachable, match=f"no Kafka cluster responds at {address}"):
        make_topic(TopicLocation(address), 0.2)


def test_a_security_property_without_effect_is_refused() -> None:
    location = TopicLocation("127.0.0.1:1", properties={"ssl.ca.pem": "x"})
    with pytest.raises(TopicUnusable, match=r"ssl\.ca\.pem is not supported"):
        make_topic(location, 0.2)
