"""Kafka's own metrics by the names that the JMX exporter gives them with Strimzi's rules.

They let dashboards and alert rules for Apache Kafka work unchanged. The values are those of our own
metrics.
"""

from collections.abc import Callable, Iterator, Mapping

from headrace.apis.routes import FETCH, PRODUCE, Route
from headrace.broker.build import BrokerParts
from headrace.broker.metrics.cluster import ClusterMetrics
from headrace.broker.metrics.table import KAFKA_METRICS, KAFKA_PARTITION_METRICS
from headrace.broker.metrics.topics import (
    by_topic,
    end_offset,
    size_bytes,
    start_offset,
    watch_partition,
)
from headrace.broker.metrics.values import Labels, Metrics
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas

_SERVER = "kafka_server_brokertopicmetrics_"


def watch_kafka_names(
    metrics: Metrics,
    cluster: ClusterMetrics,
    parts: BrokerParts,
    connections: Callable[[], Mapping[str, float]],
    offline_folders: Callable[[], float],
) -> None:
    """Show the figures of the broker."""
    metrics.extend(KAFKA_METRICS)
    replicas = parts.replicas
    for name, field in (
        ("messagesin", "records_in"), ("bytesin", "bytes_in"), ("bytesout", "bytes_out"),
    ):  # fmt: skip
        _watch_topics(metrics, f"{_SERVER}{name}_total", replicas, field)
    for name, field in (
        ("replicationbytesin", "replication_bytes_in"),
        ("replicationbytesout", "replication_bytes_out"),
    ):
        _watch_total(metrics, f"{_SERVER}{name}_total", replicas, field)
    for name, route in (("produce", PRODUCE), ("fetch", FETCH)):
        _watch_requests(metrics, name, route, parts)
    for name, value in cluster.kafka_names.items():
        metrics.watch(name, value)
    metrics.watch("kafka_log_logmanager_offlinelogdirectorycount", offline_folders)
    metrics.watch_each("kafka_server_socket_server_metrics_connection_count", connections)


def watch_kafka_partition_names(metrics: Metrics, replicas: Replicas) -> None:
    """Show the figures of each partition."""
    metrics.extend(KAFKA_PARTITION_METRICS)
    for name, value in (
        ("kafka_log_log_size", size_bytes),
        ("kafka_log_log_logstartoffset", start_offset),
        ("kafka_log_log_logendoffset", end_offset),
        ("kafka_cluster_partition_underminisr", lambda one: _in_sync_above_least(one, below=True)),
        ("kafka_cluster_partition_atminisr", lambda one: _in_sync_above_least(one, below=False)),
    ):
        watch_partition(metrics, name, replicas, value)


def _in_sync_above_least(partition: Partition, *, below: bool) -> float | None:
    if not partition.leads:
        return None
    least = min(partition.settings.min_insync_replicas, partition.replicas)
    return int(partition.isr < least if below else partition.isr == least)


def _watch_topics(metrics: Metrics, name: str, replicas: Replicas, field: str) -> None:
    def series() -> Iterator[tuple[Labels, float]]:
        yield (), getattr(replicas.traffic.total(), field)
        yield from by_topic(replicas, field)

    metrics.watch_series(name, series)


def _watch_total(metrics: Metrics, name: str, replicas: Replicas, field: str) -> None:
    def total() -> float:
        value: int = getattr(replicas.traffic.total(), field)
        return value

    metrics.watch(name, total)


def _watch_requests(metrics: Metrics, name: str, route: Route, parts: BrokerParts) -> None:
    requests, errors = parts.dispatch.requests, parts.services.errors
    metrics.watch(f"{_SERVER}total{name}requests_total", lambda: requests().get(route.name, 0))
    metrics.watch(f"{_SERVER}failed{name}requests_total", lambda: errors.of(route.key))
