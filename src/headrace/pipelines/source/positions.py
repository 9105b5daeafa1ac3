"""The partitions of a query, and the offsets at which it begins and ends."""

import re
from typing import NamedTuple

from headrace.client.cluster import Cluster, TopicLeaders
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.pipelines.source.options import Position, Selection, SourceOptionError, SourceOptions
from headrace.types import TopicPartition, encode_uuid


class FoundPartitions(NamedTuple):
    """The partitions that a query reads, and the ids of their topics, if brokers have ids."""

    partitions: list[TopicPartition]
    topic_ids: dict[str, str]


def find_partitions(
    cluster: Cluster, selection: Selection, *, all_must_exist: bool
) -> FoundPartitions:
    """The present partitions of the query."""
    topics_now = _find_topics(cluster, selection, all_must_exist)
    existing = [
        TopicPartition(name, number)
        for name, topic in sorted(topics_now.items())
        for number in range(len(topic.leaders))
    ]
    if selection.partitions:
        missing = sorted(set(selection.partitions) - set(existing))
        if missing and all_must_exist:
            count = len(topics_now[missing[0].topic].leaders)
            raise SourceOptionError(
                f"assign: {missing[0].topic} has {count} partitions; {missing[0]} does not exist"
            )
        existing = sorted(set(selection.partitions) - set(missing))
    topic_ids = {
        name: encode_uuid(topic.topic_id)
        for name, topic in topics_now.items()
        if topic.topic_id is not None and any(each.topic == name for each in existing)
    }
    return FoundPartitions(existing, topic_ids)


def _find_topics(
    cluster: Cluster, selection: Selection, all_must_exist: bool
) -> dict[str, TopicLeaders]:
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        topics_now = cluster.retry("listing topics", lambda: cluster.topics(None))
        return {
            name: topic
            for name, topic in topics_now.items()
            if pattern.fullmatch(name) and not topic.internal
        }
    names = selection.topics or sorted({each.topic for each in selection.partitions})
    if all_must_exist:
        return cluster.existing_topics(names)
    return cluster.retry("asking about topics", lambda: cluster.topics(names))


def resolve_start(
    cluster: Cluster, options: SourceOptions, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The start offset of each partition."""
    return _resolve(cluster, options, options.starting, partitions, starting=True)


def resolve_end(
    cluster: Cluster, options: SourceOptions, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """The end offset of each partition, for a batch query."""
    return _resolve(cluster, options, options.ending, partitions, starting=False)


def _resolve(
    cluster: Cluster,
    options: SourceOptions,
    position: Position,
    partitions: list[TopicPartition],
    *,
    starting: bool,
) -> dict[TopicPartition, int]:
    match position.kind:
        case "earliest":
            return list_offsets(cluster, dict.fromkeys(partitions, EARLIEST), options.isolation)
        case "latest":
            return list_offsets(cluster, dict.fromkeys(partitions, LATEST), options.isolation)
        case "offsets":
            _check_complete(position, partitions)
            bounds = {at: value for at, value in position.each.items() if value < 0}
            found = list_offsets(cluster, bounds, options.isolation) if bounds else {}
            return {**position.each, **found}
        case "time" | "times":
            if position.kind == "times":
                _check_complete(position, partitions)
            wanted = {at: position.each.get(at, position.time_ms) for at in partitions}
            return _by_time(cluster, options, position, wanted, starting)


def _by_time(
    cluster: Cluster,
    options: SourceOptions,
    position: Position,
    wanted: dict[TopicPartition, int],
    starting: bool,
) -> dict[TopicPartition, int]:
    found = list_offsets(cluster, wanted, options.isolation)
    young = [at for at, offset in found.items() if offset < 0]
    if young and starting and options.time_not_found == "error":
        times = ", ".join(f"{at} at {wanted[at]}" for at in young)
        raise SourceOptionError(
            f"{position.option}: all records are older in {times}; "
            "startingOffsetsByTimestampStrategy=latest would begin at the end there"
        )
    if young:
        found |= list_offsets(cluster, dict.fromkeys(young, LATEST), options.isolation)
    return found


def _check_complete(position: Position, partitions: list[TopicPartition]) -> None:
    """SourceOptionError unless exactly the partitions that are read have an offset or a time."""
    named, read = set(position.each), set(partitions)
    if named == read:
        return
    missing = ", ".join(str(at) for at in sorted(read - named))
    extra = ", ".join(str(at) for at in sorted(named - read))
    parts = [f"{missing} is missing"] if missing else []
    parts += [f"{extra} is not read by this query"] if extra else []
    raise SourceOptionError(
        f"{position.option} must name all partitions that are read: {'; '.join(parts)}"
    )
