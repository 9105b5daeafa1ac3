"""A topic with its partitions: leaders, replicas, offsets, bytes, and configs that were changed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from headrace.admin import positions
from headrace.admin.topics import existing_topics, replica_brokers
from headrace.client.brokers import partition_sizes
from headrace.client.cluster import Cluster
from headrace.client.configs import describe_topic_configs
from headrace.client.layout import Held
from headrace.client.topics import TopicDescription
from headrace.types import TopicPartition, encode_uuid


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition; unknown values are None."""

    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    begin: int | None
    end: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic with its partitions and the settings that were changed."""

    name: str
    id: str
    internal: bool
    partitions: list[PartitionView]
    configs: dict[str, str]

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def view_topics(cluster: Cluster, names: Sequence[str]) -> list[TopicView]:
    """The named topics as they are now; NotFound if one does not exist."""
    found = existing_topics(cluster, names)
    partitions = view_partitions(cluster, found)
    configs = describe_topic_configs(cluster, names)
    return [
        TopicView(
            name=topic.name,
            id=encode_uuid(topic.topic_id or UUID(int=0)),
            internal=topic.internal,
            partitions=partitions[topic.name],
            configs={
                each.name: each.value or ""
                for each in configs.get(topic.name, ())
                if each.changed_here
            },
        )
        for topic in found
    ]


def view_partitions(
    cluster: Cluster, topics: Sequence[TopicDescription]
) -> dict[str, list[PartitionView]]:
    """The partitions of these topics as they are now, by topic."""
    indexes = {topic.name: list(topic.partitions) for topic in topics}
    sizes = partition_sizes(cluster, replica_brokers(topics), indexes)
    led = [TopicPartition(topic.name, index) for topic in topics for index in topic.led]
    limits = positions.bounds(cluster, led)
    return {
        topic.name: [
            _partition(TopicPartition(topic.name, index), held, limits, sizes)
            for index, held in topic.partitions.items()
        ]
        for topic in topics
    }


def _partition(
    partition: TopicPartition,
    held: Held,
    limits: Mapping[TopicPartition, positions.PartitionBounds],
    sizes: Mapping[TopicPartition, int],
) -> PartitionView:
    bounds = limits.get(partition)
    return PartitionView(
        partition=partition.partition,
        leader=None if held.leader < 0 else held.leader,
        replicas=list(held.replicas),
        isr=list(held.isr),
        begin=None if bounds is None else bounds.begin,
        end=None if bounds is None else bounds.end,
        size_bytes=sizes.get(partition),
    )
