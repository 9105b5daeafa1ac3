"""Connects the metrics of a broker process with what they show."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from headrace.apis.routes import ROUTES
from headrace.broker.acceptor import Acceptor
from headrace.broker.build import BrokerParts
from headrace.broker.metrics.cluster import ClusterMetrics
from headrace.broker.metrics.damage import watch_damage
from headrace.broker.metrics.values import Labels
from headrace.broker.quotas.connection_limits import ConnectionLimits
from headrace.errors import ErrorCode
from headrace.prometheus import Histogram
from headrace.settings import Settings
from headrace.wire.steps import Steps


class ServerMetrics:
    """The sources of all metrics of one broker."""

    def __init__(
        self,
        parts: BrokerParts,
        settings: Settings,
        acceptors: Sequence[Acceptor],
        connections: ConnectionLimits,
        offline_folders: Callable[[], float],
        sync_seconds: Histogram,
    ) -> None:
        self._parts = parts
        self._settings = settings
        self._acceptors = acceptors
        self._connections = connections
        self._offline_folders = offline_folders
        self._sync_seconds = sync_seconds
        self._open_transactions, self._oldest_s = 0, 0.0
        self.cluster = ClusterMetrics(parts.metrics, parts.metadata, parts.replicas, parts.rules)

    def watch(self) -> None:
        """Register all metrics; called only if there is a page."""
        # Imported here, so that a broker without a page starts faster.
        from headrace.broker.metrics.topics import watch_partitions, watch_topics

        self._watch_clients()
        self._watch_disk()
        self._watch_transactions()
        metrics, replicas = self._parts.metrics, self._parts.replicas
        metrics.append(self._parts.services.render_client_metrics)
        watch_topics(metrics, replicas)
        of_partitions = self._settings.boolean("headrace.metrics.partitions")
        if of_partitions:
            watch_partitions(metrics, replicas)
        if self._settings.boolean("headrace.metrics.kafka.names"):
            from headrace.broker.metrics.kafka_names import (
                watch_kafka_names,
                watch_kafka_partition_names,
            )

            watch_kafka_names(
                metrics,
                self.cluster,
                self._parts,
                lambda: self._connections.per_listener,
                self._offline_folders,
            )
            if of_partitions:
                watch_kafka_partition_names(metrics, replicas)

    def _watch_clients(self) -> None:
        parts, metrics, connections = self._parts, self._parts.metrics, self._connections
        metrics.watch("headrace_connections", lambda: len(parts.connections))
        metrics.watch_each("headrace_listener_connections", lambda: connections.per_listener)
        metrics.watch_each("headrace_connections_accepted_total", lambda: connections.accepted)
        metrics.watch_series("headrace_authentications_total", self._authentications)
        metrics.watch("headrace_receive_bytes", lambda: parts.memory.held_bytes)
        metrics.watch("headrace_receive_waits", lambda: parts.memory.waiting)
        metrics.watch_each("headrace_requests_total", parts.dispatch.requests)
        metrics.watch_each("headrace_request_seconds", parts.dispatch.times)
        metrics.watch_series(
            "headrace_fetch_wait_seconds", lambda: [((), parts.dispatch.fetch_waits)]
        )
        metrics.watch_series("headrace_request_errors_total", self._errors)
        metrics.watch_each(
            "headrace_certificate_days_left",
            lambda: {
                acceptor.listener.name: acceptor.tls.days_left
                for acceptor in self._acceptors
                if acceptor.tls is not None
            },
        )

    def _watch_disk(self) -> None:
        parts, metrics = self._parts, self._parts.metrics
        metrics.watch_series("headrace_fsync_seconds", lambda: [((), self._sync_seconds)])
        metrics.watch("headrace_log_dirs_offline", self._offline_folders)
        metrics.watch_series("headrace_log_dir_free_bytes", lambda: self._space(free=True))
        metrics.watch_series("headrace_log_dir_size_bytes", lambda: self._space(free=False))
        watch_damage(metrics, parts.directories)
        metrics.watch("headrace_replica_moves", lambda: parts.replicas.moves.under_way)

    def _space(self, *, free: bool) -> Iterator[tuple[Labels, float]]:
        for directory in self._parts.directories.healthy:
            with suppress(OSError):  # a folder that has just failed
                found = os.statvfs(directory.path)
                blocks = found.f_bavail if free else found.f_blocks
                yield (directory.path,), blocks * found.f_frsize

    def _watch_transactions(self) -> None:
        metrics = self._parts.metrics
        metrics.prepare(self._count_transactions)
        metrics.watch("headrace_transactions_open", lambda: self._open_transactions)
        metrics.watch("headrace_transaction_oldest_seconds", lambda: self._oldest_s)

    def _errors(self) -> Iterator[tuple[Labels, float]]:
        for (key, code), count in [*self._parts.services.errors.counts.items()]:
            yield (ROUTES[key].name, _error_name(code)), count

    def _authentications(self) -> Iterator[tuple[Labels, float]]:
        yield from self._parts.services.audit.logins.items()
        for acceptor in self._acceptors:
            if acceptor.tls is not None:
                yield (acceptor.listener.name, "TLS", "failure"), acceptor.tls_failures

    def _count_transactions(self) -> Steps[None]:
        coordinator = self._parts.services.transactions_if_started
        if coordinator is not None:
            counted = yield from coordinator.count_open_steps()
            self._open_transactions, self._oldest_s = counted


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:  # another broker's, in a response that was passed on
        return str(code)
