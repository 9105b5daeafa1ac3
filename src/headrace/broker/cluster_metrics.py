"""Metrics of this broker's partitions and of the cluster, for `/metrics` and `/health`.

All values are computed from the image, and recomputed when it has changed. As in Kafka, a leader
counts the replicas that are missing, and only the controller counts partitions without a leader.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.broker.metrics import Metrics
from headrace.cluster.elections import effective_min_isr
from headrace.cluster.image import NO_LEADER, Image, PartitionState, Topic
from headrace.cluster.membership import Rules
from headrace.cluster.metadata import Metadata
from headrace.cluster.moves import original
from headrace.replication.replicas import Replicas
from headrace.types import TopicPartition


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
        metadata.listeners.append(self._changed)
        for name, value in (
            ("headrace_leaders", lambda counts: counts.leaders),
            ("headrace_replicas", lambda counts: counts.replicas),
            ("headrace_under_replicated_partitions", lambda counts: counts.under_replicated),
            ("headrace_under_min_isr_partitions", lambda counts: counts.under_min_isr),
            ("headrace_offline_partitions", self._offline),
        ):
            self._watch(name, value)
        metrics.watch("headrace_is_controller", lambda: int(self._is_controller))
        metrics.watch("headrace_brokers", lambda: len(metadata.image.brokers))
        metrics.watch("headrace_replica_lag_records_max", self._largest_lag)

    def problems(self) -> list[str]:
        """Problems that clients of this broker notice."""
        counts = self._count()
        if not counts.offline_here:
            return []
        many = f"{counts.offline_here} partition(s) with a replica here have no leader"
        return [f"{many}, such as {counts.example}"]

    def _watch(self, name: str, value: Callable[[_Counts], int]) -> None:
        self._metrics.watch(name, lambda: value(self._count()))

    @property
    def _is_controller(self) -> bool:
        return self._metadata.image.controller_id == self._replicas.node_id

    def _offline(self, counts: _Counts) -> int:
        return counts.offline if self._is_controller else 0

    def _largest_lag(self) -> int:
        """The largest lag of any follower of a partition that this broker leads."""
        largest = 0
        for partition in self._replicas.shared_out:
            leadership = partition.leadership
            if leadership is None:
                continue
            log = partition.log
            for follower in leadership.followers.values():
                largest = max(largest, log.end_offset - max(follower.end, log.start_offset))
        return largest

    # -------------------------------------------------------------------------------- counting

    def _count(self) -> _Counts:
        image = self._metadata.image
        if image is not self._counted_for:
            self._counted_for = image
            self._counts = _Counts()
            for topic in image.topics.values():
                self._add(topic)
        return self._counts

    def _add(self, topic: Topic) -> None:
        me, counts = self._replicas.node_id, self._counts
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
            if set(was.isr) - set(is_now.isr):
                self._metrics.add("headrace_isr_shrinks_total", 1)
            if set(is_now.isr) - set(was.isr):
                self._metrics.add("headrace_isr_expands_total", 1)
