"""The partitions of a target topic, which is created if brokers create topics automatically."""

from headrace.client.cluster import Cluster
from headrace.wire.primitives import TopicName


def ready_topic(cluster: Cluster, name: str) -> int:
    """The number of partitions; a missing topic is requested, as by Kafka's producers."""
    from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
    from kio.schema.metadata.v12.response import MetadataResponse

    found = cluster.retry("asking about topics", lambda: cluster.topics([name]))
    if name not in found:
        request = MetadataRequest(
            topics=(MetadataRequestTopic(topic_id=None, name=TopicName(name)),),
            allow_auto_topic_creation=True,
            include_topic_authorized_operations=False,
        )
        cluster.retry("asking for a topic", lambda: cluster.ask(request, MetadataResponse))
        found = cluster.existing_topics([name])
    return len(found[name].leaders)
