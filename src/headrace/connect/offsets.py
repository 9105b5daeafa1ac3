"""The offsets of connectors (KIP-875): those of sinks in their consumer group, those of sources in
the offsets topic."""

from collections.abc import Mapping, Sequence

from headrace.client.cluster import Cluster
from headrace.client.groups import (
    Committed,
    commit_offsets,
    committed_offsets,
    delete_groups,
    delete_offsets,
)
from headrace.connect.errors import bad_request
from headrace.connect.storage.records import OffsetEntry
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition

COMMIT_TIMEOUT_S = 10.0
"""A topic that does not exist may be a new one, so commits for it are retried."""
TOPIC, PARTITION, OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"


def group_of(name: str, config: Mapping[str, str]) -> str:
    """The consumer group of a sink."""
    return config.get("consumer.override.group.id", f"connect-{name}")


def sink_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """The committed offsets of a sink."""
    try:
        return {at: each.offset for at, each in committed_offsets(cluster, group).items()}
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise


def as_entries(offsets: Mapping[TopicPartition, int]) -> list[OffsetEntry]:
    """Offsets of a sink in the form of the REST interface."""
    return [
        ({TOPIC: at.topic, PARTITION: at.partition}, {OFFSET: offset})
        for at, offset in sorted(offsets.items())
    ]


def parse_sink_offsets(given: Sequence[OffsetEntry]) -> dict[TopicPartition, int | None]:
    """Offsets of a sink from a request; the texts of errors are those of Kafka Connect."""
    found: dict[TopicPartition, int | None] = {}
    for partition, offset in given:
        if TOPIC not in partition or PARTITION not in partition:
            raise bad_request(
                "The partition for a sink connector offset must contain the keys "
                f"'{TOPIC}' and '{PARTITION}'"
            )
        if partition[TOPIC] is None:
            raise bad_request("Kafka topic names must be valid strings and may not be null")
        if partition[PARTITION] is None:
            raise bad_request("Kafka partitions must be valid numbers and may not be null")
        number = _whole(
            partition[PARTITION],
            "Failed to parse the following Kafka partition value in the provided offsets: '{}'. "
            "Partition values for sink connectors need to be integers.",
        )
        at = TopicPartition(str(partition[TOPIC]), number)
        if offset is None:
            found[at] = None
            continue
        if OFFSET not in offset:
            raise bad_request(
                "The offset for a sink connector should either be null or contain the key "
                f"'{OFFSET}'"
            )
        found[at] = _whole(
            offset[OFFSET],
            "Failed to parse the following Kafka offset value in the provided offsets: '{}'. "
            "Offset values for sink connectors need to be integers.",
        )
    return found


def _whole(value: object, message: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise bad_request(message.format(value)) from None


def set_sink(cluster: Cluster, group: str, wanted: Mapping[TopicPartition, int | None]) -> None:
    """Commit these offsets; the offset of a partition with None is deleted."""
    set_now = {at: Committed(offset) for at, offset in wanted.items() if offset is not None}
    if set_now:
        commit_offsets(cluster, group, set_now, timeout_s=COMMIT_TIMEOUT_S)
    deleted = [at for at, offset in wanted.items() if offset is None]
    if deleted:
        delete_offsets(cluster, group, deleted)


def delete_sink(cluster: Cluster, group: str) -> None:
    """Forget all offsets of a sink."""
    for error in delete_groups(cluster, [group]).values():
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise error
