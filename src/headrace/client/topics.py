"""Topics: describe, create, delete, and add partitions. All calls are retried.

A change whose response was lost is sent again, as Kafka's admin client does: the second request may
then find the topic created or deleted already.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster
from headrace.client.errors import check, error_of
from headrace.client.layout import Held, held
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import TopicName, i16, i32, milliseconds

BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and the replicas of its partitions."""

    name: str
    topic_id: uuid.UUID | None
    internal: bool
    partitions: Mapping[int, Held] = field(default_factory=dict)

    @property
    def led(self) -> list[int]:
        """The partitions that have a leader."""
        return [index for index, each in self.partitions.items() if each.leader >= 0]


def describe_topics(
    cluster: Cluster, names: Iterable[str] | None = None
) -> dict[str, TopicDescription]:
    """The named topics, or all; missing ones are left out."""
    wanted = None if names is None else tuple(names)

    def attempt() -> dict[str, TopicDescription]:
        found: dict[str, TopicDescription] = {}
        for row in cluster.metadata(wanted).topics:
            code = int(row.error_code)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or row.name is None:
                continue
            if wanted is not None and code != ErrorCode.LEADER_NOT_AVAILABLE:
                check(code, f"topic {row.name!r}")
            partitions = {
                int(part.partition_index): held(part)
                for part in sorted(row.partitions, key=lambda part: part.partition_index)
            }
            name = str(row.name)
            found[name] = TopicDescription(name, row.topic_id, row.is_internal, partitions)
        return found

    return cluster.retry("describing topics", attempt)


def create_topics(
    cluster: Cluster,
    names: Sequence[str],
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> dict[str, KafkaError]:
    """Create topics with the same settings, or only check them; returns the errors by topic."""
    from kio.schema.create_topics.v7.request import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )
    from kio.schema.create_topics.v7.response import CreateTopicsResponse

    settings = tuple(
        CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()
    )
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name=TopicName(name),
                num_partitions=i32(partitions),
                replication_factor=i16(replication_factor),
                assignments=(),
                configs=settings,
            )
            for name in names
        ),
        timeout=milliseconds(_timeout_ms(cluster)),
        validate_only=validate_only,
    )

    def attempt() -> dict[str, KafkaError]:
        answer = cluster.ask_controller(request, CreateTopicsResponse)
        return _refused(
            (str(row.name), int(row.error_code), row.error_message) for row in answer.topics
        )

    return cluster.retry("creating topics", attempt)


def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, KafkaError]:
    """Delete topics; returns the errors by topic."""
    from kio.schema.delete_topics.v5.request import DeleteTopicsRequest
    from kio.schema.delete_topics.v5.response import DeleteTopicsResponse

    request = DeleteTopicsRequest(
        topic_names=tuple(map(TopicName, names)), timeout=milliseconds(_timeout_ms(cluster))
    )

    def attempt() -> dict[str, KafkaError]:
        answer = cluster.ask_controller(request, DeleteTopicsResponse)
        return _refused(
            (str(row.name), int(row.error_code), row.error_message) for row in answer.responses
        )

    return cluster.retry("deleting topics", attempt)


def add_partitions(cluster: Cluster, name: str, total: int) -> None:
    """Increase the number of partitions of a topic to `total`."""
    from kio.schema.create_partitions.v3.request import (
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )
    from kio.schema.create_partitions.v3.response import CreatePartitionsResponse

    request = CreatePartitionsRequest(
        topics=(CreatePartitionsTopic(name=TopicName(name), count=i32(total), assignments=None),),
        timeout=milliseconds(_timeout_ms(cluster)),
        validate_only=False,
    )

    def attempt() -> dict[str, KafkaError]:
        answer = cluster.ask_controller(request, CreatePartitionsResponse)
        return _refused(
            (str(row.name), int(row.error_code), row.error_message) for row in answer.results
        )

    for error in cluster.retry("adding partitions", attempt).values():
        raise error


def _timeout_ms(cluster: Cluster) -> int:
    return int(cluster.config.request_timeout_s * 1000)


def _refused(rows: Iterable[tuple[str, int, str | None]]) -> dict[str, KafkaError]:
    """The errors by topic; NOT_CONTROLLER is raised, so that another broker is tried."""
    found: dict[str, KafkaError] = {}
    for name, code, message in rows:
        if code:
            found[name] = error_of(code, f"topic {name!r}", message)
        if code == ErrorCode.NOT_CONTROLLER:
            raise found[name]
    return found
