"""Replication throttling during reassignments, on leaders and followers.

`follower.replication.throttled.rate` bounds the bytes a second of all replicas together that
`follower.replication.throttled.replicas` of their topics names, where they arrive. The settings of
the leader bound what leaves a broker for the followers of the partitions that are named. A replica
that is in sync is never throttled: it would leave the ISR and delay all commits until then.
"""

from headrace.clock import Clock
from headrace.cluster.metadata import Metadata
from headrace.replication.allowance import Allowance
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.types import BrokerId


class Throttle(Allowance):
    """The throttle of this broker's fetches as a follower."""

    def __init__(self, replicas: Replicas, metadata: Metadata, clock: Clock) -> None:
        name = "follower.replication.throttled.rate"
        super().__init__(lambda: replicas.settings_now.integer(name), clock)
        self._replicas = replicas
        self._metadata = metadata

    def applies_to(self, partition: Partition) -> bool:
        """Whether this replica is named, and is not in sync yet."""
        me, index = self._replicas.node_id, partition.name.partition
        if not _is_named(partition.settings.follower_replication_throttled_replicas, index, me):
            return False
        topic = self._metadata.image.topics.get(partition.name.topic)
        return topic is not None and me not in topic.partitions[index].isr


class LeaderThrottle(Allowance):
    """The throttle of what followers fetch here. As in Kafka, in-sync followers count too."""

    def __init__(self, replicas: Replicas, clock: Clock) -> None:
        name = "leader.replication.throttled.rate"
        super().__init__(lambda: replicas.settings_now.integer(name), clock)
        self._me = replicas.node_id

    def applies_to(self, partition: Partition) -> bool:
        """Whether fetches of this partition are counted."""
        named = partition.settings.leader_replication_throttled_replicas
        return _is_named(named, partition.name.partition, self._me) and self.is_on

    def delays(self, partition: Partition, follower: BrokerId) -> bool:
        """Whether this follower of a throttled partition has to wait."""
        leadership = partition.leadership
        in_sync = leadership is None or follower in leadership.isr
        return not in_sync and self.is_exceeded


def _is_named(named: frozenset[str], index: int, broker: BrokerId) -> bool:
    return "*" in named or f"{index}:{broker}" in named
