"""Who is in sync, as the leaders here see it: written down when it changes.

A follower that holds everything committed is let in at once; one that has not been as far as its
leader for `replica.lag.time.max.ms` is put out, so that it holds up nobody.
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
    """Lets followers in and puts them out, for all partitions that this broker leads."""

    def __init__(
        self, replicas: Replicas, metadata: Metadata, membership: Membership, max_lag_ms: int
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._membership = membership
        self._max_lag_ms = max_lag_ms
        self._suspended = False
        # Nobody knows yet whether what was proposed for them has been written down.
        self._unsure: dict[Partition, None] = {}

    def suspended(self) -> None:
        """The store is out of reach: until it is back, nothing is proposed."""
        self._suspended = True

    def connected(self) -> None:
        """The store is back, and the image tells what became of every proposal."""
        self._suspended = False
        for partition in self._unsure:
            if partition.leadership is not None:
                partition.leadership.settle()
                partition.commit_what_all_have()
        self._unsure.clear()

    def expand(self) -> None:
        """Let in who has caught up; KafkaError, worth another try, if the store refuses.

        A follower whose registration this broker has not heard of yet stays wanted: it may have
        nothing more to fetch, so that nobody would think of it again.
        """
        if self._suspended:
            return
        wanted = self._replicas.isr_wanted
        changes: dict[Partition, IsrChange] = {}
        for partition in list(wanted):
            leadership = partition.leadership
            caught_up = () if leadership is None else leadership.joining(partition.high_watermark)
            if leadership is None or partition.closed or not caught_up:
                del wanted[partition]
                continue
            joining = tuple(one for one in caught_up if self._is_who_fetched(partition, one))
            if joining:
                changes[partition] = _change(partition, leadership, (*leadership.isr, *joining))
                leadership.propose(joining)
        if not changes:
            return
        self._unsure.update(dict.fromkeys(changes))
        self._membership.alter_isr(changes.values())
        for partition in changes:
            del self._unsure[partition]
            if partition.leadership is not None:
                partition.leadership.settle()

    def shrink(self) -> None:
        """Put out who lags; KafkaError, worth another try, if the store refuses."""
        if self._suspended:
            return
        now_ms = self._replicas.now_ms()
        changes = []
        for partition in self._replicas.shared_out:
            leadership = partition.leadership
            if leadership is None:
                continue
            end = partition.log.end_offset
            lagging = leadership.lagging(end, now_ms, self._max_lag_ms)
            leadership.keep_time(end, now_ms)
            if lagging:
                logger.warning("%s: brokers %s lag behind and are not in sync any more",
                               partition.name, ", ".join(map(str, lagging)))  # fmt: skip
                rest = tuple(one for one in leadership.isr if one not in lagging)
                changes.append(_change(partition, leadership, rest))
        if changes:
            self._membership.alter_isr(changes)

    def _is_who_fetched(self, partition: Partition, broker: BrokerId) -> bool:
        """Whether the broker has not restarted since its fetch: it may have lost what it had."""
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
