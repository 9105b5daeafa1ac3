"""A topic as `topics describe` shows it: gathered from four questions, told in two ways."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headrace.cli import client, direct, output, positions
from headrace.cli.client import Cluster

if TYPE_CHECKING:
    from confluent_kafka import TopicPartitionInfo


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition; what nobody could tell is None."""

    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    begin: int | None
    end: int | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic with its partitions and the settings that somebody changed."""

    name: str
    id: str
    internal: bool
    partitions: list[PartitionView]
    configs: dict[str, str]

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def look(cluster: Cluster, names: Sequence[str]) -> list[TopicView]:
    """The named topics as they are now."""
    from headrace.cli import config_changes

    admin = client.admin(cluster)
    found = client.describe_topics(cluster, admin, names)
    nodes = {
        (str(node.host), int(node.port))
        for topic in found
        for part in topic.partitions
        for node in part.replicas
        if node.host
    }
    counts = {str(topic.name): len(topic.partitions) for topic in found}
    sizes = direct.partition_sizes(cluster, sorted(nodes), counts)
    views = []
    for topic in found:
        name = str(topic.name)
        led = [part.id for part in topic.partitions if part.leader is not None]
        limits = positions.bounds(cluster, admin, name, led) if led else {}
        configs = config_changes.current(cluster, "topic", name)
        views.append(
            TopicView(
                name=name,
                # The library prints ids in plain base64; Kafka's own tools use the URL-safe kind.
                id=str(topic.topic_id).replace("+", "-").replace("/", "_"),
                internal=bool(topic.is_internal),
                partitions=[_partition(name, part, limits, sizes) for part in topic.partitions],
                configs={each.name: each.value or "" for each in configs if each.changed_here},
            )
        )
    return views


def _partition(
    topic: str,
    part: "TopicPartitionInfo",
    limits: Mapping[int, tuple[int, int]],
    sizes: Mapping[tuple[str, int], int],
) -> PartitionView:
    begin, end = limits.get(part.id, (None, None))
    return PartitionView(
        partition=part.id,
        leader=None if part.leader is None else part.leader.id,
        replicas=[node.id for node in part.replicas],
        isr=[node.id for node in part.isr],
        begin=begin,
        end=end,
        size_bytes=sizes.get((topic, part.id)),
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
