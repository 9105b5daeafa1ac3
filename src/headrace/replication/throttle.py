"""How fast replicas that are being moved are copied, at either end.

`follower.replication.throttled.rate` bounds the bytes a second of all replicas together that
`follower.replication.throttled.replicas` of their topics names, where they arrive. The settings of
the leader bound what leaves a broker for the followers of the partitions that are named. A replica
that is in sync is never held up: it would fall out of sync, and hold up everybody.
"""

from headrace.clock import Clock
from headrace.cluster.metadata import Metadata
from headrace.replication.allowance import Allowance
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.types import BrokerId


class Throttle(Allowance):
    """Of what this broker copies as a follower."""

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
    """Of what this broker gives to followers. As in Kafka, those in sync use it up too."""

    def __init__(self, replicas: Replicas, clock: Clock) -> None:
        name = "leader.replication.throttled.rate"
        super().__init__(lambda: replicas.settings_now.integer(name), clock)
        self._me = replicas.node_id

    def applies_to(self, partition: Partition) -> bool:
        """Whether what leaves this broker of the partition is counted."""
        named = partition.settings.leader_replication_throttled_replicas
        return _is_named(named, partition.name.partition, self._me) and self.is_on

    def holds_up(self, partition: Partition, follower: BrokerId) -> bool:
        """Whether this follower of a partition that is counted has to wait."""
        leadership = partition.leadership
        in_sync = leadership is None or follower in leadership.isr
        return not in_sync and self.is_overdrawn


def _is_named(named: frozenset[str], index: int, broker: BrokerId) -> bool:
    return "*" in named or f"{index}:{broker}" in named
