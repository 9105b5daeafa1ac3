"""Expands and shrinks the ISR of the partitions that this broker leads.

A follower that holds everything committed is added immediately. A follower that has not been
caught up for `replica.lag.time.max.ms` is removed, so that it does not delay acks=all.
"""

import logging

from headrace.cluster.membership import IsrChange, Membership
from headrace.cluster.metadata import Metadata
from headrace.replication.leadership import Leadership
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.types import BrokerId

logger = logging.getLogger(__name__)


class InSync:
    """Adds followers to the ISR and removes them, for all partitions that this broker leads."""

    def __init__(
        self, replicas: Replicas, metadata: Metadata, membership: Membership, max_lag_ms: int
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._membership = membership
        self._max_lag_ms = max_lag_ms
        self._suspended = False
        # Partitions whose last ISR proposal has an unknown outcome.
        self._undecided: dict[Partition, None] = {}

    def suspended(self) -> None:
        """The store is unreachable: propose nothing until it is back."""
        self._suspended = True

    def connected(self) -> None:
        """The store is back, and the image shows the outcome of every proposal."""
        self._suspended = False
        for partition in self._undecided:
            if partition.leadership is not None:
                partition.leadership.settle()
                partition.advance_high_watermark()
        self._undecided.clear()

    def expand(self) -> None:
        """Add followers that have caught up; a retriable KafkaError if the store refuses.

        A follower whose registration is not in the image yet is kept for the next attempt: it may
        have nothing more to fetch, and no later fetch would trigger the check again.
        """
        if self._suspended:
            return
        wanted = self._replicas.isr_expansions.offsets
        changes: dict[Partition, IsrChange] = {}
        for partition in list(wanted):
            leadership = partition.leadership
            caught_up = (
                () if leadership is None else leadership.joining(partition.replica.high_watermark)
            )
            if leadership is None or partition.closed or not caught_up:
                del wanted[partition]
                continue
            joining = tuple(one for one in caught_up if self._has_not_restarted(partition, one))
            if joining:
                changes[partition] = _change(partition, leadership, (*leadership.isr, *joining))
                leadership.propose(joining)
        if not changes:
            return
        self._undecided.update(dict.fromkeys(changes))
        self._membership.alter_isr(changes.values())
        for partition in changes:
            del self._undecided[partition]
            if partition.leadership is not None:
                partition.leadership.settle()

    def shrink(self) -> None:
        """Remove lagging followers; a retriable KafkaError if the store refuses."""
        if self._suspended:
            return
        now_ms = self._replicas.now_ms()
        changes = []
        for partition in self._replicas.leading:
            leadership = partition.leadership
            if leadership is None:
                continue
            end = partition.replica.log.end_offset
            lagging = leadership.lagging(end, now_ms, self._max_lag_ms)
            leadership.note_caught_up(end, now_ms)
            if lagging:
                logger.warning("%s: brokers %s lag and leave the ISR",
                               partition.name, ", ".join(map(str, lagging)))  # fmt: skip
                rest = tuple(one for one in leadership.isr if one not in lagging)
                changes.append(_change(partition, leadership, rest))
        if changes:
            self._membership.alter_isr(changes)

    def _has_not_restarted(self, partition: Partition, broker: BrokerId) -> bool:
        """Whether the broker has not restarted since its fetch: it may have lost records."""
        known = self._metadata.image.brokers.get(broker)
        leadership = partition.leadership
        assert leadership is not None
        return known is not None and known.epoch == leadership.followers[broker].epoch


def _change(partition: Partition, leadership: Leadership, isr: tuple[BrokerId, ...]) -> IsrChange:
    starts = tuple(
        (one, leadership.followers[one].epoch)
        for one in isr
        if one in leadership.followers and one not in leadership.isr
    )
    return IsrChange(
        partition.name, partition.leader_epoch, leadership.partition_epoch, isr, starts
    )
