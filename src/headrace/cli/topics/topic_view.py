"""The output of `topics describe`, as tables and as JSON, from four requests."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.cli import client, output
from headrace.cli.client import ClusterOptions
from headrace.cli.records import positions
from headrace.types import TopicPartition, encode_uuid

if TYPE_CHECKING:
    from headrace.client.layout import Held


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


def look(cluster: ClusterOptions, names: Sequence[str]) -> list[TopicView]:
    """The named topics as they are now."""
    from headrace.client.brokers import partition_sizes
    from headrace.client.configs import describe_configs
    from headrace.types import ConfigResourceType

    views = []
    with client.admin(cluster) as connected:
        found = client.describe_topics(connected, names)
        partitions = {topic.name: list(topic.partitions) for topic in found}
        sizes = partition_sizes(connected, client.replica_brokers(found), partitions)
        for topic in found:
            limits = positions.bounds(connected, topic.name, topic.led) if topic.led else {}
            configs = describe_configs(connected, ConfigResourceType.TOPIC, topic.name)
            views.append(
                TopicView(
                    name=topic.name,
                    id=encode_uuid(topic.topic_id or UUID(int=0)),
                    internal=topic.internal,
                    partitions=[
                        _partition(TopicPartition(topic.name, index), held, limits, sizes)
                        for index, held in topic.partitions.items()
                    ],
                    configs={each.name: each.value or "" for each in configs if each.changed_here},
                )
            )
    return views


def _partition(
    partition: TopicPartition,
    held: "Held",
    limits: Mapping[int, tuple[int, int]],
    sizes: Mapping[TopicPartition, int],
) -> PartitionView:
    begin, end = limits.get(partition.partition, (None, None))
    return PartitionView(
        partition=partition.partition,
        leader=None if held.leader < 0 else held.leader,
        replicas=list(held.replicas),
        isr=list(held.isr),
        begin=begin,
        end=end,
        size_bytes=sizes.get(partition),
    )


def show(topic: TopicView) -> None:
    """The topic for a person."""
    known = [part for part in topic.partitions if part.begin is not None and part.end is not None]
    records = sum((part.end or 0) - (part.begin or 0) for part in known)
    sizes = [part.size_bytes for part in topic.partitions if part.size_bytes is not None]
    facts = {
        "Topic": topic.name,
        "Id": topic.id,
        "Partitions": str(len(topic.partitions)),
        "Records": output.number(records),
        "Size": output.size(sum(sizes)) if sizes else "-",
    }
    for number, (name, value) in enumerate(topic.configs.items()):
        facts["Configs" if number == 0 else " " * number] = f"{name}={value}"
    if not topic.configs:
        facts["Configs"] = "all defaults"
    output.print_facts(facts)
    print()
    output.print_table(
        ("Partition", "Leader", "Replicas", "In sync", "Begin", "End", "Size"),
        [_row(part) for part in topic.partitions],
        numbers=("Partition", "Leader", "Begin", "End", "Size"),
    )
    print()


def _row(part: PartitionView) -> tuple[str, ...]:
    in_sync = ",".join(map(str, part.isr))
    return (
        str(part.partition),
        "[red]none[/]" if part.leader is None else str(part.leader),
        ",".join(map(str, part.replicas)),
        in_sync if len(part.isr) == len(part.replicas) else f"[yellow]{in_sync or 'none'}[/]",
        output.number(part.begin),
        output.number(part.end),
        output.size(part.size_bytes),
    )
