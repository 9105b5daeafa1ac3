"""The cluster, what its brokers support and the sizes of logs, on our broker and on Kafka."""

from headrace.client.brokers import describe_cluster, describe_support, partition_sizes
from headrace.client.cluster import Cluster
from headrace.client.producing import produce
from headrace.types import TopicPartition
from headrace.wire.records import Record, encode_batch


def test_the_cluster_has_an_id_a_controller_and_brokers(cluster: Cluster, bootstrap: str) -> None:
    found = describe_cluster(cluster)
    assert found.cluster_id
    assert found.controller in found.brokers
    assert bootstrap in [f"{each.host}:{each.port}" for each in found.brokers.values()]


def test_a_broker_reports_its_apis_and_features(cluster: Cluster) -> None:
    found = describe_support(cluster)
    apis = {each.name: (each.key, each.min, each.max) for each in found.apis}
    assert apis["Metadata"][0] == 3
    assert apis["Metadata"][2] >= 12
    assert "metadata.version" in found.features or found.features == {}


def test_sizes_are_of_the_largest_replica_and_absent_brokers_are_left_out(
    cluster: Cluster, topic: str
) -> None:
    filled, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(cluster, {filled: encode_batch([Record(0, 1, None, b"x" * 5000)])})
    brokers = [*describe_cluster(cluster).brokers, 4711]
    sizes = partition_sizes(cluster, brokers, {topic: [0, 1]})
    assert sizes[filled] > 5000
    assert sizes[empty] == 0
