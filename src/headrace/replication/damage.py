"""Repairs replicas with a damaged log: the damaged part is fetched again from other brokers.

First the replica leaves the ISR, in a new leader epoch; only then is its log truncated, from the
damaged segment on, and the fetcher fetches it again. So no broker relies on the truncated records.
If no other replica is in sync, nothing is truncated: undamaged batches are still served.
"""

import logging

from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.errors import KafkaError
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.types import Offset

logger = logging.getLogger(__name__)


class Damage:
    """Repairs the damaged replicas of this broker."""

    def __init__(self, replicas: Replicas, metadata: Metadata, membership: Membership) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._membership = membership

    def repair(self) -> None:
        """Truncate damaged replicas; a retriable KafkaError if the store refuses.

        A replica that cannot be repaired now is reported again at its next read.
        """
        damaged = self._replicas.damaged.offsets
        if not damaged:
            return
        epochs = {partition: partition.leader_epoch for partition in damaged}
        self._membership.give_up_damaged(partition.name for partition in damaged)
        for partition, offset in list(damaged.items()):
            # Without a new epoch the leader may still use the old fetch offset.
            if partition.leader_epoch > epochs[partition] and self._is_given_up(partition):
                _cut(partition, offset)
        damaged.clear()

    def _is_given_up(self, partition: Partition) -> bool:
        """Whether this broker's replica is neither in sync nor eligible."""
        topic = self._metadata.image.topics.get(partition.name.topic)
        if topic is None:
            return False
        state = topic.partitions[partition.name.partition]
        return self._replicas.node_id not in (state.leader, *state.isr, *state.eligible)


def _cut(partition: Partition, offset: Offset) -> None:
    log = partition.replica.log
    index = log.segments.index_of(offset)
    start = log.segments[index].base_offset
    logger.warning(
        "%s is damaged at offset %d: fetching everything from %d on again from broker %d",
        partition.name, offset, start, partition.leader,
    )  # fmt: skip
    try:
        if index:
            partition.replica.truncate_to(start)
        else:
            partition.replica.restart_at(start)
    except KafkaError as error:
        logger.error("cannot truncate %s: %s", partition.name, error.message)
