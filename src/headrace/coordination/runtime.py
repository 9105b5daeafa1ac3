"""The coordinator of this broker's groups: runs operations, writes and replays their records.

A shard is a partition of `__consumer_offsets` that this broker leads, read from the log once and
then held in memory. An operation and its records are one step of the event loop: it looks at the
state, its records are appended and replayed, and its replies leave as soon as they are committed
(so that nobody ever hears of something that a crash could undo).

Decisions are made in `groups/` and `offsets.py`; here are the log, the clock and those who wait.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypeVar

from headrace.clock import Clock
from headrace.cluster.controller import Defaults, NewTopic
from headrace.cluster.image import OFFSETS_TOPIC, Image
from headrace.cluster.metadata import Metadata
from headrace.coordination.groups.registry import Groups
from headrace.coordination.load import latest_records, replay_steps
from headrace.coordination.outcome import Outcome, Reply
from headrace.coordination.timers import Timers
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.settings import Settings
from headrace.wire.records import Record, encode_batch

logger = logging.getLogger(__name__)

Operation: TypeAlias = Callable[[Groups, int, int], Outcome]
"""(groups of the shard, the token to reply to, steady clock in ms) -> what it leads to."""

_Response = TypeVar("_Response")

_SMALL_LOG_BYTES = 64 * 1024
"""A log of this size is read on the spot; a larger one in steps, while clients wait and retry."""

_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a failed append means for a client of a group; COORDINATOR_NOT_AVAILABLE otherwise."""


class _Shard:
    """One partition's groups, and how far its log has been written."""

    __slots__ = ("end", "failed", "groups", "index", "partition", "ready", "task")

    def __init__(self, index: int, partition: Partition, groups: Groups) -> None:
        self.index = index
        self.partition = partition
        self.groups = groups
        self.ready = False
        self.failed = False
        self.task: asyncio.Task[None] | None = None
        self.end = 0


class _TimerKey(NamedTuple):
    shard: int
    key: tuple[str, ...]


class Coordinator:
    """The groups that this broker coordinates."""

    def __init__(
        self, settings: Settings, clock: Clock, metadata: Metadata, replicas: Replicas
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._codec = settings.integer("offsets.topic.compression.codec")
        self._shards: dict[int, _Shard] = {}
        self._timers: Timers[_TimerKey] = Timers()
        self._token = 0
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._answered: dict[int, object] = {}
        self._current = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._tasks: set[asyncio.Task[None]] = set()
        metadata.listeners.append(self._follow)

    # --------------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Begin to read the logs, to let timers fire and to look for offsets that are too old."""
        self._loop = asyncio.get_running_loop()
        self._spawn(self._load_all())
        self._spawn(self._expire_offsets())
        self._set_alarm()

    def stop(self) -> None:
        """Let nothing happen any more; what was written stays."""
        for task in self._tasks:
            task.cancel()
        if self._alarm is not None:
            self._alarm.cancel()
        self._loop = None

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        assert self._loop is not None
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # ------------------------------------------------------------------- where a group is found

    def partition_of(self, group_id: str) -> int:
        """The partition of the offsets topic that holds the group, made if it is not there yet."""
        topic = self._metadata.image.topics.get(OFFSETS_TOPIC)
        count = len(topic.partitions) if topic is not None else self._create_topic()
        return java_hash(group_id) % count

    def leader_of(self, group_id: str) -> int:
        """The broker that coordinates the group."""
        index = self.partition_of(group_id)
        return self._metadata.image.topics[OFFSETS_TOPIC].partitions[index].leader

    def _create_topic(self) -> int:
        wanted = self._settings.integer("offsets.topic.replication.factor")
        new = NewTopic(
            OFFSETS_TOPIC,
            self._settings.integer("offsets.topic.num.partitions"),
            # A cluster that is smaller than its settings hope for works all the same.
            min(wanted, len(self._metadata.image.brokers)),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(self._settings.integer("offsets.topic.segment.bytes"))),
            ),
        )
        try:
            topic = self._metadata.create_topic(new, Defaults(1, 1))
        except KafkaError as error:
            logger.error("cannot create the topic %s: %s", OFFSETS_TOPIC, error)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        return len(topic.partitions)

    def _shard(self, index: int) -> _Shard:
        """The shard, ready to work; KafkaError while it is not."""
        shard = self._shards.get(index)
        if shard is None:
            try:
                partition = self._replicas.partition(OFFSETS_TOPIC, index)
            except KafkaError as error:
                raise KafkaError(ErrorCode.NOT_COORDINATOR) from error
            groups = Groups(self._settings, self._metadata.image)
            shard = self._shards[index] = _Shard(index, partition, groups)
            if partition.log.size_bytes <= _SMALL_LOG_BYTES:
                for _ in self._load_steps(shard):
                    pass
        if shard.ready:
            return shard
        if shard.failed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if shard.task is None and self._loop is not None:
            shard.task = self._spawn(self._load(shard))
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def all_groups(self) -> Iterator[Groups]:
        """The groups of every shard that this broker leads, for ListGroups."""
        topic = self._metadata.image.topics.get(OFFSETS_TOPIC)
        for index in range(len(topic.partitions) if topic is not None else 0):
            try:
                yield self._shard(index).groups
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise

    # ---------------------------------------------------------------------------------- loading

    async def _load_all(self) -> None:
        topic = self._metadata.image.topics.get(OFFSETS_TOPIC)
        for index in range(len(topic.partitions) if topic is not None else 0):
            try:
                self._shard(index)
            except KafkaError as error:
                shard = self._shards.get(index)
                if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and shard and shard.task:
                    await asyncio.wait([shard.task])
            await asyncio.sleep(0)

    async def _load(self, shard: _Shard) -> None:
        for _ in self._load_steps(shard):
            await asyncio.sleep(0)

    def _load_steps(self, shard: _Shard) -> Iterator[None]:
        """Read a shard from its log; yields wherever others may have their turn."""
        try:
            partition = shard.partition
            latest: dict[bytes, bytes | None] = {}
            limit = self._replicas.max_decompressed_bytes
            yield from latest_records(partition, limit, latest)
            yield from replay_steps(shard.groups, latest)
        except (KafkaError, OSError, ValueError) as error:
            logger.error("cannot read the groups in %s: %s", shard.partition.name, error)
            shard.failed = True
            return
        if self._shards.get(shard.index) is not shard:
            return
        shard.end = partition.high_watermark
        shard.ready = True
        shard.groups.image = self._metadata.image
        shard.groups.wall.ms = self._clock.now_ms()
        self._apply(shard, shard.groups.loaded(self._now_ms()))

    # --------------------------------------------------------------------------------- running

    def run(
        self, group_id: str, operation: Operation, finish: Callable[[object], _Response]
    ) -> _Response | Coroutine[None, None, _Response]:
        """Run an operation on a group; the response, or the wait for it.

        `finish` makes the response of what the operation replies. KafkaError from the operation,
        or as its reply, is raised.
        """
        result = self._run(group_id, operation)
        if isinstance(result, asyncio.Future):
            return _finish(result, finish)
        return finish(_unless_error(result))

    def run_each(
        self,
        operations: Sequence[tuple[str, Operation]],
        finish: Callable[[list[object]], _Response],
    ) -> _Response | Coroutine[None, None, _Response]:
        """Run operations on several groups; what each replied, or its KafkaError, in that order."""
        results: list[object] = []
        for group_id, operation in operations:
            try:
                results.append(self._run(group_id, operation))
            except KafkaError as error:
                results.append(error)
        if not any(isinstance(result, asyncio.Future) for result in results):
            return finish(results)
        return _finish_each(results, finish)

    def _run(self, group_id: str, operation: Operation) -> object:
        """What the operation replies (a KafkaError is not raised), or a future of it."""
        shard = self._shard(self.partition_of(group_id))
        self._token = token = self._token + 1
        self._current = token
        shard.groups.wall.ms = self._clock.now_ms()
        self._apply(shard, operation(shard.groups, token, self._now_ms()))
        if token in self._answered:
            return self._answered.pop(token)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        # A client that is gone waits for nothing: its token is answered into the void.
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        return future

    def _apply(self, shard: _Shard, outcome: Outcome) -> None:
        if outcome.timers:
            soonest = False
            for key, at_ms in outcome.timers:
                soonest = self._timers.set(_TimerKey(shard.index, key), at_ms) or soonest
            if soonest:
                self._set_alarm()
        if outcome.records:
            try:
                self._append(shard, outcome)
            except KafkaError as error:
                logger.error("cannot write to %s: %s", shard.partition.name, error)
                self._deliver(_failed(outcome.replies, error))
                return
        if not outcome.replies:
            return
        if shard.partition.is_committed(shard.end):
            self._deliver(outcome.replies)
        else:
            committed = shard.partition.wait_committed(shard.end)
            committed.add_done_callback(
                lambda done: self._committed(shard, outcome.replies, done.exception())
            )

    def _append(self, shard: _Shard, outcome: Outcome) -> None:
        now_ms = shard.groups.wall.ms
        try:
            records = [
                Record(0, now_ms, key.encode(), None if value is None else value.encode())
                for key, value in outcome.records
            ]
        except struct.error as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"a name is longer than a record can hold: {error}"
            ) from error
        batch = encode_batch(records, codec=self._codec)
        shard.end = shard.partition.append_own(batch, now_ms) + len(records)
        for key, value in outcome.records:
            shard.groups.replay(key, value)

    def _committed(
        self, shard: _Shard, replies: Sequence[Reply], error: BaseException | None
    ) -> None:
        if error is None:
            self._deliver(replies)
            return
        failure = error if isinstance(error, KafkaError) else KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        )  # fmt: skip
        self._deliver(_failed(replies, failure))
        # What memory holds is not what the log will: it is read again when it is next needed.
        self._unload(shard.index, ErrorCode.NOT_COORDINATOR)

    def _deliver(self, replies: Sequence[Reply]) -> None:
        for token, response in replies:
            future = self._waiting.get(token)
            if future is not None:
                if not future.done():
                    future.set_result(response)
            elif token == self._current:
                self._answered[token] = response

    # ------------------------------------------------------------------------ timers and changes

    def _set_alarm(self) -> None:
        next_ms = self._timers.next_ms()
        if self._loop is None or next_ms is None:
            return
        if self._alarm is not None:
            if self._alarm_ms <= next_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = next_ms
        delay = max(next_ms / 1000 - self._clock.monotonic(), 0)
        self._alarm = self._loop.call_later(delay, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.fire_timers()
        self._set_alarm()

    def fire_timers(self) -> None:
        """Let everything happen whose time has come."""
        # A millisecond more: the loop may wake up a little early, and now_ms is cut to whole ones.
        now_ms = self._now_ms() + 1
        for index, key in self._timers.due(now_ms):
            shard = self._shards.get(index)
            if shard is not None and shard.ready:
                shard.groups.wall.ms = self._clock.now_ms()
                self._apply(shard, shard.groups.expire(key, now_ms))

    def _follow(self, old: Image, new: Image) -> None:
        """Topics came, changed or went."""
        before, after = old.topics.get(OFFSETS_TOPIC), new.topics.get(OFFSETS_TOPIC)
        if before is not None and (after is None or after.id != before.id):
            for index in list(self._shards):
                self._unload(index, ErrorCode.NOT_COORDINATOR)
        if not self._shards or old.topics is new.topics:
            return
        changed = frozenset(
            name
            for name in old.topics.keys() | new.topics.keys()
            if old.topics.get(name) is not new.topics.get(name)
        )
        for shard in list(self._shards.values()):
            if shard.ready:
                shard.groups.wall.ms = self._clock.now_ms()
                outcome = shard.groups.topics_changed(new, changed, self._now_ms())
                self._apply(shard, outcome)

    def _unload(self, index: int, error: ErrorCode) -> None:
        shard = self._shards.pop(index, None)
        if shard is None:
            return
        if shard.task is not None:
            shard.task.cancel()
        self._timers.cancel_where(lambda key: key.shard == index)
        self._deliver(shard.groups.withdraw(error))

    async def _expire_offsets(self) -> None:
        interval = self._settings.integer("offsets.retention.check.interval.ms") / 1000
        while True:
            await asyncio.sleep(interval)
            self.expire_offsets()

    def expire_offsets(self) -> None:
        """Delete offsets that nobody has used for their retention, and groups without any."""
        for shard in list(self._shards.values()):
            if shard.ready:
                shard.groups.wall.ms = self._clock.now_ms()
                self._apply(shard, shard.groups.expire_offsets())


@lru_cache(4096)
def java_hash(text: str) -> int:
    """A string's hash as Java computes it, without the sign: it chooses a group's partition."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def _failed(replies: Sequence[Reply], error: KafkaError) -> list[Reply]:
    code = _APPEND_ERRORS.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return [Reply(reply.token, KafkaError(code, error.message)) for reply in replies]


def _unless_error(result: object) -> object:
    if isinstance(result, KafkaError):
        raise result
    return result


async def _finish(
    future: asyncio.Future[object], finish: Callable[[object], _Response]
) -> _Response:
    return finish(_unless_error(await future))


async def _finish_each(
    results: list[object], finish: Callable[[list[object]], _Response]
) -> _Response:
    return finish([await one if isinstance(one, asyncio.Future) else one for one in results])
