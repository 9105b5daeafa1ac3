"""The shards of a coordinator: partitions of its topic that this broker leads, held in memory.

A shard is read from its log when this broker becomes the leader, and dropped when another broker
does. Until it is read, requests fail with COORDINATOR_LOAD_IN_PROGRESS. A log that cannot be read
is tried again, at growing intervals.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from headrace.clock import Clock
from headrace.coordination.coordinator_tasks import CoordinatorTasks
from headrace.coordination.coordinator_topic import CoordinatorTopic
from headrace.coordination.load import Latest, latest_records
from headrace.coordination.outcome import AnyReply, Key, Outcome, Timer, Value
from headrace.coordination.shard_timers import ShardTimers
from headrace.coordination.wall_time import WallTime
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.records import Record, encode_batch

logger = logging.getLogger(__name__)

LOAD = ("load",)
"""The key of the timer that reads a log again."""

_FIRST_LOAD_PAUSE_MS = 1000
_LONGEST_LOAD_PAUSE_MS = 10_000
"""How long to wait before a log that could not be read is tried again, twice as long each time."""

_QUIET_MS = 10_000
"""How often failed appends to a shard are logged: they fail for every request of every client."""

_SMALL_LOG_BYTES = 64 * 1024
"""A log of this size is read at once; a larger one in steps, while clients retry."""


class Machine(Protocol):
    """The state of a shard: operations on it return outcomes, and only replaying changes it."""

    wall: WallTime

    def replay(self, key: Key, value: Value | None) -> None: ...

    def replay_pending(self, producer_id: int, key: Key, value: Value | None) -> None: ...

    def loaded(self, now_ms: int) -> Outcome: ...

    def expire(self, key: tuple[str, ...], now_ms: int) -> Outcome: ...

    def withdraw(self, error: ErrorCode) -> list[AnyReply]: ...


_Machine = TypeVar("_Machine", bound=Machine)


class Shard(Generic[_Machine]):
    """One partition's state, and how far its log has been written."""

    __slots__ = (
        "end", "epoch", "failed", "index", "partition", "pause_ms", "quiet_until_ms", "ready",
        "state", "task", "topics_changed", "topics_gone",
    )  # fmt: skip

    def __init__(self, index: int, partition: Partition, state: _Machine, pause_ms: int) -> None:
        self.index = index
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.state = state
        self.ready = False
        self.failed = ""
        """Why the log could not be read, if it could not; it is tried again after `pause_ms`."""
        self.pause_ms = pause_ms
        self.quiet_until_ms = 0
        self.task: asyncio.Task[None] | None = None
        self.end = 0
        self.topics_changed: frozenset[str] = frozenset()
        """Topics whose change could not be written yet."""
        self.topics_gone: frozenset[str] = frozenset()
        """Topics whose deletion could not be written yet."""

    def append(self, outcome: Outcome, codec: int) -> None:
        """Append the records of an outcome to the log, and replay them."""
        now_ms = self.state.wall.ms
        try:
            records = [
                Record(0, now_ms, key.encode(), None if value is None else value.encode())
                for key, value in outcome.records
            ]
        except struct.error as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"a name is longer than a record can hold: {error}"
            ) from error
        if outcome.producer is None:
            batch = encode_batch(records, codec=codec)
        else:
            producer_id, epoch = outcome.producer
            batch = encode_batch(records, 0, codec, producer_id, epoch, attributes=TRANSACTIONAL)
        self.end = self.partition.append_own(batch, now_ms) + len(records)
        for key, value in outcome.records:
            if outcome.producer is None:
                self.state.replay(key, value)
            else:
                self.state.replay_pending(producer_id, key, value)

    def log_refusal(self, error: KafkaError, now_ms: int) -> None:
        """Log that records could not be appended, unless that was logged recently."""
        if now_ms >= self.quiet_until_ms:
            self.quiet_until_ms = now_ms + _QUIET_MS
            logger.error(
                "cannot write to %s: %s; more of these are not logged for %d s",
                self.partition.name, error, _QUIET_MS // 1000,
            )  # fmt: skip


class Shards(Generic[_Machine]):
    """The shards by partition index."""

    def __init__(
        self,
        topic: CoordinatorTopic,
        replicas: Replicas,
        clock: Clock,
        timers: ShardTimers,
        tasks: CoordinatorTasks,
        new_state: Callable[[], _Machine],
        replay: Callable[[_Machine, Latest], Iterator[None]],
        loaded: Callable[[Shard[_Machine]], None],
        new_latest: Callable[[], Latest] = Latest,
    ) -> None:
        """`replay` replays what the log holds in steps; `loaded` is called when it is done.

        `new_latest` makes what collects the records of a log.
        """
        self._topic = topic
        self._replicas = replicas
        self._clock = clock
        self._timers = timers
        self._tasks = tasks
        self._new_state = new_state
        self._replay = replay
        self._loaded = loaded
        self._new_latest = new_latest
        self._shards: dict[int, Shard[_Machine]] = {}

    def __len__(self) -> int:
        return len(self._shards)

    def find(self, index: int) -> Shard[_Machine] | None:
        """The shard, ready or not, if it is held."""
        return self._shards.get(index)

    def holds(self, shard: Shard[_Machine]) -> bool:
        """Whether this shard was not dropped or replaced."""
        return self._shards.get(shard.index) is shard

    def ready(self) -> list[Shard[_Machine]]:
        """The shards that have been read."""
        return [shard for shard in self._shards.values() if shard.ready]

    def get(self, index: int) -> Shard[_Machine]:
        """The shard; KafkaError while it is not ready."""
        shard = self._shards.get(index)
        if shard is None:
            shard = self._take_up(index, self._topic.partition(index), _FIRST_LOAD_PAUSE_MS)
        if not shard.partition.leads:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)  # the new leader is not known yet
        if shard.ready:
            return shard
        if shard.failed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, shard.failed)
        if shard.task is None and self._tasks.are_running:
            shard.task = self._tasks.spawn(self._load(shard))
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def states(self) -> Iterator[_Machine]:
        """The state of every shard that this broker leads; KafkaError if one is not ready."""
        for index in range(self._topic.partition_count()):
            try:
                yield self.get(index).state
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise

    # ---------------------------------------------------------------------------------- loading

    def load_all(self) -> None:
        """Begin to read every shard that this broker leads, if the coordinator is started."""
        if self._tasks.are_running:
            self._tasks.spawn(self._load_all())

    async def _load_all(self) -> None:
        for index in range(self._topic.partition_count()):
            try:
                self.get(index)
            except KafkaError as error:
                shard = self._shards.get(index)
                if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and shard and shard.task:
                    await asyncio.wait([shard.task])
            await asyncio.sleep(0)

    def load_again(self, failed: Shard[_Machine]) -> None:
        """Retry: the disk may have room again, or the process free descriptors."""
        pause_ms = min(2 * failed.pause_ms, _LONGEST_LOAD_PAUSE_MS)
        self._take_up(failed.index, failed.partition, pause_ms)
        with suppress(KafkaError):
            self.get(failed.index)  # a large log is read step by step

    def _take_up(self, index: int, partition: Partition, pause_ms: int) -> Shard[_Machine]:
        """Create a shard, and read it now if its log is small."""
        shard = Shard(index, partition, self._new_state(), pause_ms)
        self._shards[index] = shard
        try:
            small = partition.replica.log.segments.size_bytes <= _SMALL_LOG_BYTES
        except KafkaError as error:  # the log cannot be opened or created
            self._load_failed(shard, error)
        else:
            if small:
                for _ in self._load_steps(shard):
                    pass
        return shard

    async def _load(self, shard: Shard[_Machine]) -> None:
        for _ in self._load_steps(shard):
            await asyncio.sleep(0)

    def _load_steps(self, shard: Shard[_Machine]) -> Iterator[None]:
        """Read a shard from its log; yields regularly."""
        partition = shard.partition
        latest = self._new_latest()
        try:
            limit = self._replicas.max_decompressed_bytes
            yield from latest_records(partition, limit, latest)
            yield from self._replay(shard.state, latest)
        except Exception as error:  # a partly read state must not be used after any error
            if isinstance(error, KafkaError) and error.code is ErrorCode.CORRUPT_MESSAGE:
                self._replicas.damaged.add(partition, latest.offset)
            self._load_failed(shard, error)
            return
        if not self.holds(shard):
            return
        shard.end = partition.replica.log.end_offset
        shard.ready = True
        shard.state.wall.ms = self._clock.now_ms()
        self._loaded(shard)

    def _load_failed(self, shard: Shard[_Machine], error: Exception) -> None:
        if not self.holds(shard):
            return
        shard.failed = f"cannot read the state in {shard.partition.name}: {error}"
        known = isinstance(error, KafkaError | OSError | ValueError)
        logger.error(
            "%s; retrying in %d s", shard.failed, shard.pause_ms // 1000,
            exc_info=None if known else error,
        )  # fmt: skip
        self._timers.set(shard.index, [Timer(LOAD, self._timers.now_ms() + shard.pause_ms)])

    # --------------------------------------------------------------------------------- dropping

    def follow_leaders(self) -> None:
        """Drop shards that other brokers lead now, and load those that this broker leads."""
        for shard in list(self._shards.values()):
            partition = shard.partition
            if not partition.leads or partition.leader_epoch != shard.epoch:
                self.unload(shard)
        self.load_all()

    def unload_all(self) -> None:
        """Drop all shards: the topic was deleted."""
        for shard in list(self._shards.values()):
            self.unload(shard)

    def unload(self, shard: Shard[_Machine]) -> None:
        """Drop a shard; requests that wait get NOT_COORDINATOR."""
        if not self.holds(shard):
            return
        del self._shards[shard.index]
        if shard.task is not None:
            shard.task.cancel()
        self._timers.cancel_all(shard.index)
        for reply in shard.state.withdraw(ErrorCode.NOT_COORDINATOR):
            reply.send()
