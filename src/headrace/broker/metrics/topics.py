"""Traffic of topics, and figures of partitions, for `/metrics`."""

from collections.abc import Callable, Iterator

from headrace.broker.metrics.table import PARTITION_METRICS
from headrace.broker.metrics.values import Labels, Metrics
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas

Value = Callable[[Partition], float | None]
"""A figure of a partition; None if it has none to show."""

_TRAFFIC = (
    "records_in", "bytes_in", "records_out", "bytes_out", "replication_bytes_in",
    "replication_bytes_out",
)  # fmt: skip


def watch_topics(metrics: Metrics, replicas: Replicas) -> None:
    """Show what is written to and read from each topic."""
    for field in _TRAFFIC:
        _watch_topic(metrics, f"headrace_topic_{field}_total", replicas, field)


def watch_partitions(metrics: Metrics, replicas: Replicas) -> None:
    """Show offsets, size and replicas of each partition of this broker."""
    metrics.extend(PARTITION_METRICS)
    values: dict[str, Value] = {
        "headrace_partition_leader": lambda one: int(one.leads),
        "headrace_partition_replicas": lambda one: one.replicas,
        "headrace_partition_in_sync_replicas": lambda one: one.isr,
        "headrace_partition_start_offset": start_offset,
        "headrace_partition_end_offset": end_offset,
        "headrace_partition_high_watermark": lambda one: (
            one.replica.committed if one.replica.opened else None
        ),
        "headrace_partition_size_bytes": size_bytes,
    }
    for name, value in values.items():
        watch_partition(metrics, name, replicas, value)


def watch_partition(metrics: Metrics, name: str, replicas: Replicas, value: Value) -> None:
    """Show one figure of each partition of this broker."""

    def series() -> Iterator[tuple[Labels, float]]:
        for partition in replicas.all_partitions():
            shown = value(partition)
            if shown is not None and not partition.closed:
                yield (partition.name.topic, str(partition.name.partition)), shown

    metrics.watch_series(name, series)


def start_offset(partition: Partition) -> float | None:
    """The log start offset; None if the log is not open, as the others."""
    return partition.replica.log.start_offset if partition.replica.opened else None


def end_offset(partition: Partition) -> float | None:
    """The log end offset."""
    return partition.replica.log.end_offset if partition.replica.opened else None


def size_bytes(partition: Partition) -> float | None:
    """The bytes of the segments."""
    return partition.replica.log.segments.size_bytes if partition.replica.opened else None


def by_topic(replicas: Replicas, field: str) -> Iterator[tuple[Labels, float]]:
    """One counter of each topic; the topic with the empty name stands for those over the limit."""
    traffic = replicas.traffic
    for topic, counters in [*traffic.topics.items()]:
        yield (topic,), getattr(counters, field)
    others = getattr(traffic.others, field)
    if others:
        yield ("",), others


def _watch_topic(metrics: Metrics, name: str, replicas: Replicas, field: str) -> None:
    metrics.watch_series(name, lambda: by_topic(replicas, field))
