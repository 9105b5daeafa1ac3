"""Who is in sync, as the leaders here see it: written down when it changes.

A follower that holds everything committed is let in at once; one that has not been as far as its
leader for `replica.lag.time.max.ms` is put out, so that it holds up nobody.
"""

import logging

from headrace.cluster.membership import IsrChange, Membership
from headrace.cluster.metadata import Metadata
from headrace.errors import KafkaError
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

    def expand(self) -> None:
        """Let in who has caught up."""
        waiting = list(self._replicas.isr_wanted)
        self._replicas.isr_wanted.clear()
        changes = []
        for partition in waiting:
            leadership = partition.leadership
            if leadership is None or partition.closed:
                continue
            joining = leadership.joining(partition.high_watermark)
            joining = tuple(one for one in joining if self._is_who_fetched(partition, one))
            if joining:
                changes.append(_change(partition, (*leadership.isr, *joining)))
        self._write(changes)

    def shrink(self) -> None:
        """Put out who lags; in time, since nothing is committed without it."""
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
                changes.append(_change(partition, rest))
        self._write(changes)

    def _is_who_fetched(self, partition: Partition, broker: BrokerId) -> bool:
        """Whether the broker has not restarted since its fetch: it may have lost what it had."""
        known = self._metadata.image.brokers.get(broker)
        leadership = partition.leadership
        assert leadership is not None
        return known is not None and known.epoch == leadership.followers[broker].epoch

    def _write(self, changes: list[IsrChange]) -> None:
        if not changes:
            return
        try:
            self._membership.alter_isr(changes)
        except KafkaError as error:
            logger.warning("cannot write down who is in sync, trying again: %s", error.message)


def _change(partition: Partition, isr: tuple[BrokerId, ...]) -> IsrChange:
    return IsrChange(partition.name, partition.leader_epoch, isr)
