"""Creates the topics of dead letters."""

from collections.abc import Mapping

from headrace.client.brokers import describe_cluster
from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.topics import create_topics
from headrace.connect.error_handling import ErrorHandling
from headrace.errors import ErrorCode


def create_letter_topic(config: Mapping[str, str], client: Mapping[str, str]) -> None:
    """Create the topic of a connector's dead letters, if it has one that does not exist.

    It has one partition, as with Kafka Connect, and no more replicas than there are brokers.
    """
    handling = ErrorHandling.of(config)
    if handling.topic is None:
        return
    with Cluster(client_config(dict(client))) as cluster:
        known = cluster.retry("asking about topics", lambda: cluster.topics([handling.topic or ""]))
        if handling.topic in known:
            return
        replicas = min(handling.replication_factor, len(describe_cluster(cluster).brokers))
        failed = create_topics(
            cluster, [handling.topic], partitions=1, replication_factor=max(1, replicas)
        )
    error = failed.get(handling.topic)
    if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise error
