"""The share coordinator of this broker: the state of share partitions in `__share_group_state`.

It runs operations on `share_states.py` with `coordination/runtime.py`. Unlike the other
coordinators' topics this one is not compacted, because an update does not replace the one before
it. From time to time new snapshots of everything are written, and the older records are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TypeVar

from headrace.clock import Clock
from headrace.cluster.controller import NewTopic
from headrace.cluster.image import SHARE_STATE_TOPIC
from headrace.cluster.metadata import Metadata
from headrace.coordination.load import Latest
from headrace.coordination.outcome import Outcome
from headrace.coordination.records import UnknownRecord
from headrace.coordination.runtime import Operation, Runtime
from headrace.coordination.shards import Shard
from headrace.coordination.shares.share_records import (
    SNAPSHOT,
    SharePartitionKey,
    ShareSnapshotKey,
    ShareUpdateKey,
    decode_key,
    decode_snapshot,
    decode_update,
)
from headrace.coordination.shares.share_states import (
    ShareState,
    ShareStates,
    ShareStateWrite,
    coordinator_key,
)
from headrace.errors import KafkaError
from headrace.replication.replicas import Replicas
from headrace.settings import Settings

logger = logging.getLogger(__name__)

_Reply = TypeVar("_Reply")

_PRUNE_INTERVAL_MS = 300_000
_PRUNE_FROM_RECORDS = 10_000
"""Records of a log that a new snapshot of everything makes superfluous."""
_STEP_RECORDS = 500


class ShareHistory(Latest):
    """The records of a log: of each share partition the last snapshot and the updates after it."""

    __slots__ = ("history",)

    def __init__(self) -> None:
        super().__init__()
        self.history: dict[bytes, list[bytes]] = {}
        """By the key without its type."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Add a record."""
        of = key[2:]
        if int.from_bytes(key[:2], "big") == SNAPSHOT:
            if value is None:
                self.history.pop(of, None)
            else:
                self.history[of] = [value]
        elif value is not None and of in self.history:
            self.history[of].append(value)


class ShareCoordinator(Runtime[ShareStates]):
    """The share partitions whose state this broker keeps."""

    def __init__(
        self, settings: Settings, clock: Clock, metadata: Metadata, replicas: Replicas
    ) -> None:
        codec = settings.integer("share.coordinator.state.topic.compression.codec")
        super().__init__(
            SHARE_STATE_TOPIC, settings, clock, metadata, replicas, codec, ShareHistory
        )

    def start(self) -> None:
        """Begin to read the logs, and to delete records that are not needed."""
        super().start()
        self._tasks.repeat(_PRUNE_INTERVAL_MS, self.prune)

    def _new_state(self) -> ShareStates:
        return ShareStates(
            self._settings.integer("share.coordinator.snapshot.update.records.per.snapshot")
        )

    def _new_topic(self) -> NewTopic:
        settings = self._settings
        factor = min(
            settings.integer("share.coordinator.state.topic.replication.factor"),
            len(self._metadata.image.brokers),
        )
        in_sync = min(settings.integer("share.coordinator.state.topic.min.isr"), factor)
        segment_bytes = settings.integer("share.coordinator.state.topic.segment.bytes")
        return NewTopic(
            SHARE_STATE_TOPIC,
            settings.integer("share.coordinator.state.topic.num.partitions"),
            factor,
            configs=(
                ("cleanup.policy", "delete"),
                ("compression.type", "producer"),
                ("min.insync.replicas", str(in_sync)),
                ("retention.bytes", "-1"),
                ("retention.ms", "-1"),
                ("segment.bytes", str(segment_bytes)),
            ),
        )

    def _replay_steps(self, state: ShareStates, latest: Latest) -> Iterator[None]:
        assert isinstance(latest, ShareHistory)
        count = 0
        for of, values in latest.history.items():
            try:
                _, key = decode_key(b"\0\0" + of)
                state.replay(ShareSnapshotKey(key), decode_snapshot(values[0]))
                for value in values[1:]:
                    state.replay(ShareUpdateKey(key), decode_update(value))
                    count += 1
                    if not count % _STEP_RECORDS:
                        yield
            except UnknownRecord as error:
                logger.warning("skipping share state that cannot be read: %s", error)
            count += 1
            if not count % _STEP_RECORDS:
                yield

    def _topics_changed(
        self, shard: Shard[ShareStates], changed: frozenset[str], gone: frozenset[str]
    ) -> Outcome:
        return shard.state.without_topics(self._metadata.image.names) if gone else Outcome()

    # --------------------------------------------------------------------------------- operations

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start: int
    ) -> Coroutine[None, None, None] | None:
        """Create the state of a share partition; KafkaError if its epoch is fenced."""
        return self._on(key, lambda states, token, _: states.initialize(
            key, state_epoch, start, token
        ))  # fmt: skip

    def read(
        self, key: SharePartitionKey, leader_epoch: int
    ) -> ShareState | Coroutine[None, None, ShareState]:
        """The state of a share partition, for the partition's leader in this epoch."""
        return self._on(key, lambda states, token, _: states.read(key, leader_epoch, token))

    def write(
        self, key: SharePartitionKey, write: ShareStateWrite
    ) -> Coroutine[None, None, None] | None:
        """Store changes of a share partition."""
        return self._on(key, lambda states, token, _: states.write(key, write, token))

    def delete(self, key: SharePartitionKey) -> Coroutine[None, None, None] | None:
        """Delete the state of a share partition."""
        return self._on(key, lambda states, token, _: states.delete(key, token))

    def summary(self, key: SharePartitionKey) -> ShareState | Coroutine[None, None, ShareState]:
        """The state of a share partition, for administration."""
        return self._on(key, lambda states, token, _: states.summary(key, token))

    def _on(
        self, key: SharePartitionKey, operation: Operation[ShareStates, _Reply]
    ) -> _Reply | Coroutine[None, None, _Reply]:
        identity: Callable[[_Reply], _Reply] = _same
        return self.run(coordinator_key(key), operation, identity)

    # ------------------------------------------------------------------------------------ pruning

    def prune(self) -> None:
        """Replace long logs by new snapshots."""
        for shard in self.shards.ready():
            log = shard.partition.replica.log
            superfluous = log.end_offset - log.start_offset - len(shard.state.states)
            if superfluous >= _PRUNE_FROM_RECORDS:
                self.replace_log(shard)

    def replace_log(self, shard: Shard[ShareStates]) -> None:
        """Write snapshots of everything, and delete the records before them once committed."""
        shard.state.wall.ms = self._clock.now_ms()
        first = shard.partition.replica.log.end_offset
        outcome: Outcome = shard.state.snapshots()
        outcome.effects.append(partial(self._delete_when_committed, shard, first))
        self._apply(shard, outcome)

    def _delete_when_committed(self, shard: Shard[ShareStates], first: int) -> None:
        replica = shard.partition.replica
        if replica.is_committed(shard.end):
            _delete(shard, first)
            return
        committed = shard.partition.wait_committed(shard.end)
        committed.add_done_callback(
            lambda done: None if done.exception() is not None else _delete(shard, first)
        )


def _delete(shard: Shard[ShareStates], first: int) -> None:
    try:
        shard.partition.replica.delete_records(first)
    except KafkaError as error:
        logger.warning("cannot delete old records of %s: %s", shard.partition.name, error)


def _same(reply: _Reply) -> _Reply:
    return reply
