"""The coordinator of this broker's groups.

It runs operations on `groups/` and `offsets.py` with `runtime.py`, and ends transactions in the
partitions of `__consumer_offsets` that this broker leads.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.clock import Clock
from headrace.cluster.controller import NewTopic
from headrace.cluster.image import OFFSETS_TOPIC
from headrace.cluster.metadata import Metadata
from headrace.coordination.groups.group import SHARE
from headrace.coordination.groups.registry import Groups
from headrace.coordination.load import Latest, replay_steps
from headrace.coordination.outcome import Outcome
from headrace.coordination.runtime import Runtime
from headrace.coordination.shards import Shard
from headrace.errors import KafkaError
from headrace.replication.replicas import Replicas
from headrace.settings import Settings


class GroupCoordinator(Runtime[Groups]):
    """The groups that this broker coordinates."""

    def __init__(
        self, settings: Settings, clock: Clock, metadata: Metadata, replicas: Replicas
    ) -> None:
        codec = settings.integer("offsets.topic.compression.codec")
        super().__init__(OFFSETS_TOPIC, settings, clock, metadata, replicas, codec)

    def start(self) -> None:
        """Begin to read the logs, to let timers fire and to expire offsets."""
        super().start()
        interval_ms = self._settings.integer("offsets.retention.check.interval.ms")
        self._tasks.repeat(interval_ms, self.expire_offsets)

    def _new_state(self) -> Groups:
        return Groups(self._settings, self._metadata.image)

    def _new_topic(self) -> NewTopic:
        return NewTopic(
            OFFSETS_TOPIC,
            self._settings.integer("offsets.topic.num.partitions"),
            self._settings.integer("offsets.topic.replication.factor"),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(self._settings.integer("offsets.topic.segment.bytes"))),
            ),
        )

    def _replay_steps(self, state: Groups, latest: Latest) -> Iterator[None]:
        yield from replay_steps(state, latest)
        state.image = self._metadata.image

    def _topics_changed(
        self, shard: Shard[Groups], changed: frozenset[str], gone: frozenset[str]
    ) -> Outcome:
        image = self._metadata.image
        return shard.state.topics_changed(image, changed, gone, self._timers.now_ms())

    def holds_share_group(self, group_id: str) -> bool:
        """Whether this is a share group that this broker coordinates now."""
        try:
            groups = self.shards.get(self.topic.partition_of(group_id)).state.groups
        except KafkaError:
            return False
        return group_id in groups and groups[group_id].kind == SHARE

    def expire_offsets(self) -> None:
        """Delete expired offsets, and empty groups without offsets."""
        self._sweep(Groups.expire_offsets)

    def append_marker(
        self, index: int, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int
    ) -> int:
        """End a transaction in a partition of the offsets topic; the marker's offset.

        KafkaError while the groups in it are being loaded; the caller tries again.
        """
        shard = self.shards.get(index)
        offset = shard.partition.append_marker(
            producer_id, epoch, commit, coordinator_epoch, self._clock.now_ms()
        )
        shard.end = offset + 1
        shard.state.end_transaction(producer_id, commit)
        return offset
