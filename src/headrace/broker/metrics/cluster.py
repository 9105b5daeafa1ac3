"""Metrics of this broker's partitions and of the cluster, for `/metrics` and `/health`.

All values are computed from the image in steps, and recomputed when it has changed. As in Kafka, a
leader counts the replicas that are missing, and only the controller counts partitions without a
leader.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.broker.metrics.values import Metrics
from headrace.cluster.elections import effective_min_isr
from headrace.cluster.image import NO_LEADER, Image, PartitionState, Topic
from headrace.cluster.membership import Rules
from headrace.cluster.metadata import Metadata
from headrace.cluster.moves import original
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.types import TopicPartition
from headrace.wire.steps import Steps

_CLEAN, _UNCLEAN = "clean", "unclean"
_STRIDE = 16
"""Topics or partitions between two yields."""


@dataclass(slots=True)
class _Counts:
    leaders: int = 0
    replicas: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    offline: int = 0
    offline_here: int = 0
    example: TopicPartition | None = None


class ClusterMetrics:
    """Computes the gauges from the image at each scrape."""

    def __init__(
        self,
        metrics: Metrics,
        metadata: Metadata,
        replicas: Replicas,
        rules: Callable[[Topic], Rules],
    ) -> None:
        self._metrics = metrics
        self._metadata = metadata
        self._replicas = replicas
        self._rules = rules
        self._counted_for: Image | None = None
        self._counts = _Counts()
        self.kafka_names: dict[str, Callable[[], float]] = {}
        """Kafka's names of these gauges, with their values."""
        self._largest_lag = 0
        metadata.listeners.append(self._changed)
        metrics.prepare(self.count_steps)
        for name, (kafka_name, value) in self._gauges().items():
            metrics.watch(name, value)
            self.kafka_names[kafka_name] = value
        elections = "kafka_controller_controllerstats_uncleanleaderelections_total"
        self.kafka_names[elections] = lambda: metrics.get(
            "headrace_leader_elections_total", _UNCLEAN
        )
        for kind in (_CLEAN, _UNCLEAN):
            metrics.add("headrace_leader_elections_total", 0, kind)
        metrics.watch("headrace_brokers", lambda: len(metadata.image.brokers))
        metrics.watch("headrace_replica_lag_records_max", lambda: self._largest_lag)

    def _gauges(self) -> dict[str, tuple[str, Callable[[], float]]]:
        """Our names, with Kafka's names and the values."""
        manager, controller = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
        return {
            "headrace_leaders": (f"{manager}leadercount", lambda: self._counts.leaders),
            "headrace_replicas": (f"{manager}partitioncount", lambda: self._counts.replicas),
            "headrace_under_replicated_partitions": (
                f"{manager}underreplicatedpartitions",
                lambda: self._counts.under_replicated,
            ),
            "headrace_under_min_isr_partitions": (
                f"{manager}underminisrpartitioncount",
                lambda: self._counts.under_min_isr,
            ),
            "headrace_offline_partitions": (
                f"{controller}offlinepartitionscount",
                lambda: self._counts.offline if self._is_controller else 0,
            ),
            "headrace_is_controller": (
                f"{controller}activecontrollercount",
                lambda: int(self._is_controller),
            ),
        }

    def problems(self) -> list[str]:
        """Problems that clients of this broker notice, as of the last `count_steps`."""
        counts = self._counts
        if not counts.offline_here:
            return []
        many = f"{counts.offline_here} partition(s) with a replica here have no leader"
        return [f"{many}, such as {counts.example}"]

    @property
    def _is_controller(self) -> bool:
        return self._metadata.image.controller_id == self._replicas.node_id

    # -------------------------------------------------------------------------------- counting

    def count_steps(self) -> Steps[None]:
        """Bring the gauges up to date; those of the image only if it has changed."""
        image = self._metadata.image
        if image is not self._counted_for:
            counts = _Counts()
            for number, topic in enumerate(image.topics.values()):
                self._add(topic, counts)
                if not number % _STRIDE:
                    yield
            self._counts, self._counted_for = counts, image
        largest = 0
        for number, partition in enumerate([*self._replicas.leading]):
            largest = max(largest, _lag(partition))
            if not number % _STRIDE:
                yield
        self._largest_lag = largest

    def _add(self, topic: Topic, counts: _Counts) -> None:
        me = self._replicas.node_id
        for index, state in enumerate(topic.partitions):
            here = me in state.replicas
            counts.replicas += here
            if state.leader == NO_LEADER:
                counts.offline += 1
                if here:
                    counts.offline_here += 1
                    counts.example = counts.example or TopicPartition(topic.name, index)
            elif state.leader == me:
                counts.leaders += 1
                if len(state.isr) < len(original(state)):
                    counts.under_replicated += 1
                    least = effective_min_isr(state, self._rules(topic).min_isr)
                    counts.under_min_isr += len(state.isr) < least

    def _changed(self, old: Image, new: Image) -> None:
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is not None and before is not topic and before.id == topic.id:
                for was, is_now in zip(before.partitions, topic.partitions, strict=False):
                    if was is not is_now:
                        self._note(was, is_now)

    def _note(self, was: PartitionState, is_now: PartitionState) -> None:
        if is_now.leader == self._replicas.node_id:
            if was.leader != is_now.leader:
                kind = _CLEAN if is_now.leader in was.isr else _UNCLEAN
                self._metrics.add("headrace_leader_elections_total", 1, kind)
            if set(was.isr) - set(is_now.isr):
                self._metrics.add("headrace_isr_shrinks_total", 1)
            if set(is_now.isr) - set(was.isr):
                self._metrics.add("headrace_isr_expands_total", 1)


def _lag(partition: Partition) -> int:
    """How many records the slowest follower lacks."""
    leadership = partition.leadership
    if leadership is None:
        return 0
    log = partition.replica.log
    return max(
        (log.end_offset - max(one.end, log.start_offset) for one in leadership.followers.values()),
        default=0,
    )
