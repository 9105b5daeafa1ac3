"""The topics of statements: those that exist, those that are created, and offsets in them."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster
from headrace.client.groups import committed_offsets
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, available_offsets, list_offsets
from headrace.client.topics import TopicDescription, create_topics, delete_topics, describe_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.pipelines.running.checkpoints import InputOffsets
from headrace.sql.cluster_access import ClusterAccess
from headrace.sql.errors import StatementRefused
from headrace.sql.sources import SqlSource
from headrace.types import TopicPartition

BEGINNING = -2


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic as it is created if it does not exist."""

    name: str
    partitions: int | None
    """None: it must exist."""
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InputLag:
    """How far a group is in a partition."""

    partition: TopicPartition
    start: int
    end: int
    committed: int | None


async def find_topics(access: ClusterAccess, names: Collection[str]) -> dict[str, TopicDescription]:
    """The topics that exist."""

    def find(cluster: Cluster) -> dict[str, TopicDescription]:
        return {
            name: found
            for name, found in describe_topics(cluster, names).items()
            if found.partitions
        }

    return await access.ask(f"Describing {', '.join(names)}", find)


async def ensure_topic(access: ClusterAccess, wanted: WantedTopic, what: str) -> bool:
    """Whether the topic was created; StatementRefused if it is missing or does not fit.

    `what` is the kind of the statement, for messages.
    """
    found = (await find_topics(access, [wanted.name])).get(wanted.name)
    if found is not None:
        count = len(found.partitions)
        if wanted.partitions is not None and wanted.partitions != count:
            raise StatementRefused(
                f"Topic {wanted.name} exists with {count} partitions, and the statement asks for "
                f"{wanted.partitions}. Leave PARTITIONS out, or name another KAFKA_TOPIC"
            )
        return False
    if wanted.partitions is None:
        raise StatementRefused(
            f"Topic {wanted.name} does not exist. Create it, or add PARTITIONS to the WITH clause "
            f"of CREATE {what} to have it created"
        )
    partitions = wanted.partitions

    def create(cluster: Cluster) -> KafkaError | None:
        refused = create_topics(
            cluster,
            [wanted.name],
            partitions=partitions,
            replication_factor=wanted.replication_factor,
            configs=wanted.configs,
        )
        return refused.get(wanted.name)

    error = await access.ask(f"Creating topic {wanted.name}", create)
    if error is None:
        return True
    if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return False
    raise StatementRefused(f"Topic {wanted.name} cannot be created: {error}")


async def remove_topic(access: ClusterAccess, name: str) -> None:
    """Deletes a topic; one that does not exist is no error."""
    refused = await access.ask(
        f"Deleting topic {name}", lambda cluster: delete_topics(cluster, [name]).get(name)
    )
    if refused is not None and refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise StatementRefused(f"Topic {name} cannot be deleted: {refused}")


async def start_offsets(access: ClusterAccess, sources: Sequence[SqlSource], reset: str) -> str:
    """The property `start` of a query: where it begins to read its sources.

    `latest` becomes the offsets of now, so that the query has all records that follow the
    statement, whenever Spark starts it.
    """
    if reset == "earliest":
        return reset
    names = {each.topic for each in sources}
    tables = {each.topic for each in sources if each.is_table}

    def ask(cluster: Cluster) -> dict[TopicPartition, int]:
        found = describe_topics(cluster, names)
        wanted = {
            TopicPartition(name, index): LATEST
            for name, each in found.items()
            for index in each.partitions
        }
        return list_offsets(cluster, wanted, COMMITTED)

    offsets: dict[str, dict[str, int]] = {}
    for partition, end in (await access.ask("Reading the ends of topics", ask)).items():
        first = BEGINNING if partition.topic in tables else end
        offsets.setdefault(partition.topic, {})[str(partition.partition)] = first
    return json.dumps(offsets, separators=(",", ":"))


async def input_ends(access: ClusterAccess, topics: Collection[str]) -> InputOffsets:
    """The ends of topics for readers of committed records."""
    return await _bounds(access, topics, LATEST)


async def input_starts(access: ClusterAccess, topics: Collection[str]) -> InputOffsets:
    """The first offsets that topics still have."""
    return await _bounds(access, topics, EARLIEST)


async def _bounds(access: ClusterAccess, topics: Collection[str], bound: int) -> InputOffsets:
    found = await access.ask(
        f"Reading the offsets of {', '.join(sorted(topics))}",
        lambda cluster: list_offsets(
            cluster, dict.fromkeys(_partitions(cluster, topics), bound), COMMITTED
        ),
    )
    return by_topic(found)


async def offsets_at(
    access: ClusterAccess, sources: Sequence[SqlSource], time_ms: int
) -> InputOffsets:
    """The first offsets whose records are not older; the end where all are older.

    Tables are read from their beginning.
    """
    names = {each.topic for each in sources}
    tables = {each.topic for each in sources if each.is_table}

    def ask(cluster: Cluster) -> dict[TopicPartition, int]:
        partitions = _partitions(cluster, names)
        found = list_offsets(cluster, dict.fromkeys(partitions, time_ms), COMMITTED)
        late = [each for each, offset in found.items() if offset < 0]
        if late:
            found |= list_offsets(cluster, dict.fromkeys(late, LATEST), COMMITTED)
        return {at: BEGINNING if at.topic in tables else found[at] for at in found}

    return by_topic(await access.ask("Reading offsets by time", ask))


async def quiet_ends(access: ClusterAccess, topic: str) -> dict[str, int] | None:
    """The ends of a topic; None while a transaction is open in it."""

    def ask(cluster: Cluster) -> dict[TopicPartition, int] | None:
        wanted = dict.fromkeys(_partitions(cluster, [topic]), LATEST)
        committed = list_offsets(cluster, wanted, COMMITTED)
        return committed if committed == list_offsets(cluster, wanted) else None

    found = await access.ask(f"Reading the ends of {topic}", ask)
    return None if found is None else {str(at.partition): end for at, end in found.items()}


def _partitions(cluster: Cluster, topics: Collection[str]) -> list[TopicPartition]:
    return [
        TopicPartition(name, index)
        for name, each in describe_topics(cluster, topics).items()
        for index in each.partitions
    ]


def by_topic(offsets: Mapping[TopicPartition, int]) -> InputOffsets:
    """Offsets as Spark's sources have them."""
    found: dict[str, dict[str, int]] = {}
    for at, offset in sorted(offsets.items()):
        found.setdefault(at.topic, {})[str(at.partition)] = offset
    return found


async def lags(access: ClusterAccess, group: str, topics: Collection[str]) -> list[InputLag]:
    """How far a group is in each partition of these topics."""

    def ask(cluster: Cluster) -> list[InputLag]:
        partitions = [
            TopicPartition(name, index)
            for name, each in describe_topics(cluster, topics).items()
            for index in each.partitions
        ]
        starts = available_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
        ends = available_offsets(cluster, dict.fromkeys(partitions, LATEST), COMMITTED)
        committed = committed_offsets(cluster, group, partitions, stable=False)
        return [
            InputLag(
                each,
                starts[each].offset,
                ends[each].offset,
                committed[each].offset if each in committed else None,
            )
            for each in sorted(partitions)
            if each in starts and each in ends
        ]

    return await access.ask(f"Reading the lag of group {group}", ask)
