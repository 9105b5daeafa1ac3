"""The brokers of a cluster, the APIs they support, and the sizes of their logs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable, check
from headrace.errors import KafkaError
from headrace.types import TopicPartition
from headrace.wire.primitives import TopicName, i32


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A live broker with its advertised address."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, its controller if there is one, and its live brokers by id."""

    cluster_id: str
    controller: int | None
    brokers: Mapping[int, LiveBroker]


@dataclass(frozen=True, slots=True)
class ApiRange:
    """The versions of one API that a broker supports."""

    key: int
    name: str
    min: int
    max: int


@dataclass(frozen=True, slots=True)
class BrokerSupport:
    """The APIs of a broker and the finalized features of its cluster."""

    apis: tuple[ApiRange, ...]
    features: Mapping[str, int]


def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """The cluster according to one of its brokers."""
    answer = cluster.retry("describing the cluster", lambda: cluster.metadata(()))
    brokers = [
        LiveBroker(int(row.node_id), row.host, int(row.port), row.rack) for row in answer.brokers
    ]
    controller = int(answer.controller_id)
    return ClusterDescription(
        answer.cluster_id or "",
        controller if controller >= 0 else None,
        {each.id: each for each in sorted(brokers, key=lambda each: each.id)},
    )


def describe_support(cluster: Cluster) -> BrokerSupport:
    """The API versions and features that a broker of the cluster reports."""
    from kio.schema.api_versions.v3.request import ApiVersionsRequest
    from kio.schema.api_versions.v3.response import ApiVersionsResponse
    from kio.schema.index import api_key_map

    from headrace import __version__

    request = ApiVersionsRequest(
        client_software_name="headrace", client_software_version=__version__
    )

    def attempt() -> ApiVersionsResponse:
        answer = cluster.ask(request, ApiVersionsResponse)
        check(int(answer.error_code), "asking for API versions")
        return answer

    answer = cluster.retry("asking for API versions", attempt)
    ranges = []
    for row in answer.api_keys:
        words = api_key_map.get(int(row.api_key), "unknown").split("_")
        name = "".join(word.capitalize() for word in words)
        ranges.append(ApiRange(int(row.api_key), name, row.min_version, row.max_version))
    return BrokerSupport(
        tuple(sorted(ranges, key=lambda each: each.key)),
        {str(row.name): int(row.max_version_level) for row in answer.finalized_features},
    )


def partition_sizes(
    cluster: Cluster, brokers: Iterable[int], topics: Mapping[str, Iterable[int]]
) -> dict[TopicPartition, int]:
    """Bytes of each partition's largest replica; brokers that do not respond are left out.

    `topics` has the partitions of each topic.
    """
    from kio.schema.describe_log_dirs.v3.request import (
        DescribableLogDirTopic,
        DescribeLogDirsRequest,
    )
    from kio.schema.describe_log_dirs.v3.response import DescribeLogDirsResponse

    request = DescribeLogDirsRequest(
        topics=tuple(
            DescribableLogDirTopic(topic=TopicName(name), partitions=tuple(map(i32, indexes)))
            for name, indexes in topics.items()
        )
    )
    found: dict[TopicPartition, int] = {}
    for broker in brokers:
        try:
            answer = cluster.ask(request, DescribeLogDirsResponse, broker)
        except (KafkaError, Unreachable):
            continue
        for folder in answer.results:
            for topic in folder.topics:
                for row in topic.partitions:
                    at = TopicPartition(str(topic.name), int(row.partition_index))
                    found[at] = max(found.get(at, 0), int(row.partition_size))
    return found
