"""Numbers about this broker, as Prometheus reads them: the table of metrics, and their values.

A metric that is not in the table cannot be set. Labels are kept in the order of the row.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """One row: a name, what it counts, the labels that tell its values apart."""

    name: str
    kind: Literal["counter", "gauge"]
    doc: str
    labels: tuple[str, ...] = ()


_GROUP = ("group", "topic", "partition")

METRICS = (
    Metric("headrace_connections", "gauge", "Clients that are connected."),
    Metric("headrace_receive_bytes", "gauge", "Memory of unfinished and large requests, which "
           "queued.max.request.bytes bounds."),
    Metric("headrace_receive_waits", "gauge", "Connections that are not read because that memory "
           "is used up."),
    Metric("headrace_certificate_days_left", "gauge", "Days until the certificate of a listener "
           "expires.", ("listener",)),
    Metric("headrace_requests_total", "counter", "Requests of clients and of other brokers.",
           ("api",)),
    Metric("headrace_throttle_seconds_total", "counter", "Time that clients were told to wait "
           "because they had used up a quota; user or client_id is empty where the quota does not "
           "tell them apart.", ("quota", "user", "client_id")),
    Metric("headrace_retention_passes_total", "counter", "Looks for segments to delete."),
    Metric("headrace_retention_pass_seconds", "gauge", "Duration of the last look."),
    Metric("headrace_retention_deleted_segments_total", "counter", "Segments that retention "
           "deleted, by the setting that asked for it.", ("topic", "reason")),
    Metric("headrace_retention_deleted_bytes_total", "counter", "Bytes of those segments.",
           ("topic", "reason")),
    Metric("headrace_retention_unread_records_total", "counter", "Offsets that retention deleted "
           "before the group had read them.", ("group", "topic")),
    Metric("headrace_retention_held_bytes", "gauge", "Bytes that are due and kept for "
           "retention.hold.groups.", ("topic", "partition")),
    Metric("headrace_retention_left_seconds", "gauge", "Time until retention.ms deletes what the "
           "group reads next; only of groups within retention.warn.ratio.", _GROUP),
    Metric("headrace_retention_left_bytes", "gauge", "Bytes until retention.bytes or "
           "retention.hold.bytes deletes it, likewise.", _GROUP),
    Metric("headrace_retention_left_records", "gauge", "Records until retention.messages deletes "
           "it, likewise.", _GROUP),
    Metric("headrace_compaction_runs_total", "counter", "Compactions of a log that ended, by how: "
           "finished, given_up because the log had changed, failed.", ("result",)),
    Metric("headrace_compaction_read_bytes_total", "counter", "Bytes of batches that finished "
           "compactions read.", ("topic",)),
    Metric("headrace_compaction_read_records_total", "counter", "Records that they read.",
           ("topic",)),
    Metric("headrace_compaction_removed_bytes_total", "counter", "Bytes that they removed.",
           ("topic",)),
    Metric("headrace_compaction_removed_records_total", "counter", "Records that they removed.",
           ("topic",)),
    Metric("headrace_compaction_seconds_total", "counter", "Time that finished compactions took."),
    Metric("headrace_compaction_last_seconds", "gauge", "Duration of the last one."),
    Metric("headrace_compaction_last_end_timestamp_seconds", "gauge", "When it ended, in seconds "
           "since 1970; 0 if there was none since the start."),
    Metric("headrace_compaction_last_look_timestamp_seconds", "gauge", "When logs were last asked "
           "whether they are due; if that is long ago, compaction hangs."),
    Metric("headrace_compaction_max_dirty_ratio", "gauge", "Of all compacted logs the largest "
           "share of bytes that could be compacted and were not yet, at the last look."),
    Metric("headrace_compaction_in_progress", "gauge", "Logs that are being compacted."),
    Metric("headrace_compaction_uncleanable_partitions", "gauge", "Partitions whose compaction "
           "failed; it is tried again, less and less often."),
    Metric("headrace_compaction_uncleanable_bytes", "gauge", "What waits in them for compaction."),
    Metric("headrace_log_dirs_offline", "gauge", "Data folders that are offline."),
    Metric("headrace_damaged_partitions", "gauge", "Partitions with damage that is known."),
    Metric("headrace_damaged_offsets", "gauge", "Offsets that cannot be read because of damage."),
    Metric("headrace_replica_moves", "gauge", "Replicas on their way to another data folder."),
    Metric("headrace_brokers", "gauge", "Brokers in the cluster, as this one sees it."),
    Metric("headrace_is_controller", "gauge", "1 if this broker is the controller, else 0."),
    Metric("headrace_leaders", "gauge", "Partitions that this broker leads."),
    Metric("headrace_replicas", "gauge", "Partitions of which this broker has a replica."),
    Metric("headrace_under_replicated_partitions", "gauge", "Partitions that this broker leads "
           "and of which a replica is not in sync."),
    Metric("headrace_under_min_isr_partitions", "gauge", "Those of them with fewer replicas in "
           "sync than min.insync.replicas: they take no acks=all."),
    Metric("headrace_offline_partitions", "gauge", "Partitions of the cluster without a leader; "
           "only the controller counts them, others say 0."),
    Metric("headrace_isr_shrinks_total", "counter", "Replicas fell out of sync, of partitions "
           "that this broker leads."),
    Metric("headrace_isr_expands_total", "counter", "Replicas came in sync, likewise."),
    Metric("headrace_clock_jumps_total", "counter", "Times that the wall clock jumped by five "
           "seconds or more, compared with the monotonic clock.", ("direction",)),
    Metric("headrace_clock_behind_seconds", "gauge", "How far the wall clock is behind the latest "
           "time that it has shown since the start."),
    Metric("headrace_replica_lag_records_max", "gauge", "Records that the slowest follower of "
           "any partition led here lacks."),
)  # fmt: skip


class Metrics:
    """The values of all metrics of one broker."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[str, ...], float]] = {row.name: {} for row in METRICS}
        self._sources: dict[str, Callable[[], float]] = {}
        self._counts: dict[str, Callable[[], Mapping[str, float]]] = {}
        self._texts: list[Callable[[], str]] = []

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Let a counter grow."""
        values = self._values[name]
        values[labels] = values.get(labels, 0) + amount

    def set(self, name: str, value: float, *labels: str) -> None:
        """Say what a gauge shows."""
        self._values[name][labels] = value

    def clear(self, name: str) -> None:
        """Forget all values of a gauge."""
        self._values[name].clear()

    def watch(self, name: str, source: Callable[[], float]) -> None:
        """Register a callback that returns a gauge's value at each scrape."""
        self._sources[name] = source

    def watch_each(self, name: str, source: Callable[[], Mapping[str, float]]) -> None:
        """Likewise for a metric with one label: the values by that."""
        self._counts[name] = source

    def append(self, text: Callable[[], str]) -> None:
        """Register a callback that returns further metrics as text at each scrape."""
        self._texts.append(text)

    def render(self) -> str:
        """Everything in Prometheus' text format."""
        lines = []
        for row in METRICS:
            values = self._values[row.name]
            if row.name in self._sources:
                values[()] = self._sources[row.name]()
            elif row.name in self._counts:
                values = {(label,): count for label, count in self._counts[row.name]().items()}
            elif not row.labels:
                values.setdefault((), 0)
            lines.append(f"# HELP {row.name} {row.doc}")
            lines.append(f"# TYPE {row.name} {row.kind}")
            for labels, value in values.items():
                shown = ",".join(
                    f'{label}="{_escaped(text)}"'
                    for label, text in zip(row.labels, labels, strict=True)
                )
                lines.append(f"{row.name}{{{shown}}} {value}" if shown else f"{row.name} {value}")
        return "\n".join(lines) + "\n" + "".join(text() for text in self._texts)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
