"""The committed offsets of a group, read with the project's own client.

librdkafka's admin client is not used: it dereferences a null pointer when the coordinator returns
NOT_COORDINATOR to OffsetFetch, as a Kafka does that has just made `__consumer_offsets`.
"""

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.groups import committed_offsets


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """The offset of each partition that has one."""
    with Cluster(ClientConfig(parse_bootstrap(bootstrap), client_id="test")) as cluster:
        found = committed_offsets(cluster, group, timeout_s=60)
    return {(at.topic, at.partition): one.offset for at, one in found.items()}
