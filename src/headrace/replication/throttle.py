"""How fast this broker copies replicas that are being moved to it.

`follower.replication.throttled.rate` bounds the bytes a second of all replicas together that
`follower.replication.throttled.replicas` of their topics names. A replica that is in sync is never
held up: it would fall out of sync, and hold up everybody.
"""

from headrace.clock import Clock
from headrace.cluster.metadata import Metadata
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.settings.setting import LONG_MAX


class Throttle:
    """Keeps the account of what was copied; a partition waits while it is overdrawn."""

    def __init__(self, replicas: Replicas, metadata: Metadata, clock: Clock) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._clock = clock
        self._debt_bytes = 0.0
        self._counted_s = 0.0

    @property
    def is_on(self) -> bool:
        """Whether there is a bound at all."""
        return self._rate() < LONG_MAX

    @property
    def is_overdrawn(self) -> bool:
        """Whether more was copied than the rate allows so far."""
        return self._debt(self._rate()) > 0

    def applies_to(self, partition: Partition) -> bool:
        """Whether this replica is named, and is not in sync yet."""
        named = partition.settings.follower_throttled_replicas
        me, index = self._replicas.node_id, partition.name.partition
        if "*" not in named and f"{index}:{me}" not in named:
            return False
        topic = self._metadata.image.topics.get(partition.name.topic)
        return topic is not None and me not in topic.partitions[index].isr

    def copied(self, count_bytes: int) -> None:
        """So much has come."""
        rate = self._rate()
        self._debt_bytes = self._debt(rate) + count_bytes

    def _rate(self) -> int:
        return self._replicas.settings_now.integer("follower.replication.throttled.rate")

    def _debt(self, rate: int) -> float:
        now_s = self._clock.monotonic()
        self._debt_bytes = max(0.0, self._debt_bytes - rate * (now_s - self._counted_s))
        self._counted_s = now_s
        return self._debt_bytes
