"""The base of the coordinators: runs operations, writes their records and replays them.

A shard is a partition of `__consumer_offsets`, or of `__transaction_state`, that this broker leads,
read from the log once and then held in memory. An operation and its records are one step of the
event loop: it reads the state, its records are appended and replayed, and its replies are sent when
the records are committed, so that no client sees a result that a crash could undo. Decisions are
made in `groups/`, `offsets.py` and `transactions.py`; here are the log, the clock and the waiting
requests. The coordinators are in `group_runtime.py` and `transaction_runtime.py`.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headrace.clock import Clock
from headrace.cluster.controller import Defaults, NewTopic
from headrace.cluster.image import NO_LEADER, Image
from headrace.cluster.metadata import Metadata
from headrace.coordination.groups.group import WallTime
from headrace.coordination.load import Latest, latest_records
from headrace.coordination.outcome import AnyReply, Key, Outcome, Result, Timer, Token, Value
from headrace.coordination.timers import Timers
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.settings import Settings
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.records import Record, encode_batch

logger = logging.getLogger(__name__)


class Machine(Protocol):
    """The state of a shard: operations on it return outcomes, and only replaying changes it."""

    wall: WallTime

    def replay(self, key: Key, value: Value | None) -> None: ...

    def loaded(self, now_ms: int) -> Outcome: ...

    def expire(self, key: tuple[str, ...], now_ms: int) -> Outcome: ...

    def withdraw(self, error: ErrorCode) -> list[AnyReply]: ...


_Machine = TypeVar("_Machine", bound=Machine)
_Reply = TypeVar("_Reply")
_Response = TypeVar("_Response")

Operation: TypeAlias = Callable[[_Machine, Token[_Reply], int], Outcome]
"""(state of the shard, the token to reply to, steady clock in ms) -> what it leads to."""

_TRY_AGAIN_MS = 5000
"""How long to wait before a timer or a change of topics whose records were refused is retried."""

_FIRST_LOAD_PAUSE_MS = 1000
_LONGEST_LOAD_PAUSE_MS = 10_000
"""How long to wait before a log that could not be read is tried again, twice as long each time."""

_QUIET_MS = 10_000
"""How often refused records of a shard are logged: each request of each client is refused then."""

_LOAD = ("load",)
"""The key of the timer that reads a log again."""

_TOPICS = ("topics",)
"""The key of the timer that retries a change of topics."""

_SMALL_LOG_BYTES = 64 * 1024
"""A log of this size is read on the spot; a larger one in steps, while clients wait and retry."""

_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What a failed append means for a client of a group; COORDINATOR_NOT_AVAILABLE otherwise."""


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


class _TimerKey(NamedTuple):
    shard: int
    key: tuple[str, ...]


class Runtime(Generic[_Machine]):
    """The common part of the coordinators."""

    def __init__(
        self,
        topic: str,
        settings: Settings,
        clock: Clock,
        metadata: Metadata,
        replicas: Replicas,
        codec: int,
    ) -> None:
        self._topic = topic
        self._settings = settings
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._codec = codec
        self._shards: dict[int, Shard[_Machine]] = {}
        self._timers: Timers[_TimerKey] = Timers()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._tasks: set[asyncio.Task[None]] = set()
        metadata.listeners.append(self._follow)

    # --------------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Begin to read the logs and to let timers fire."""
        self._loop = asyncio.get_running_loop()
        self._spawn(self._load_all())
        self._set_alarm()

    def stop(self) -> None:
        """Stop timers and loading."""
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

    # -------------------------------------------------- what the kinds of coordinators differ in

    def _new_state(self) -> _Machine:
        """The state of a shard that holds nothing yet."""
        raise NotImplementedError

    def _new_topic(self) -> NewTopic:
        """The coordinator's topic, with its settings for creation."""
        raise NotImplementedError

    def _replay_steps(self, state: _Machine, latest: Latest) -> Iterator[None]:
        """Replay what the log holds."""
        raise NotImplementedError

    def _replay_pending(
        self, state: _Machine, producer_id: int, key: Key, value: Value | None
    ) -> None:
        """Replay a record of an open transaction."""
        raise NotImplementedError

    def _settled(self, shard: Shard[_Machine], outcome: Outcome) -> None:
        """Called when an outcome's records are committed."""

    def _topics_changed(
        self, shard: Shard[_Machine], changed: frozenset[str], gone: frozenset[str]
    ) -> Outcome:
        """These topics were created, changed or deleted; `gone` are the deleted ones."""
        return Outcome()

    # --------------------------------------------------------------------- where an id is found

    def partition_of(self, name: str) -> int:
        """The partition of the topic that holds a group or transactional id, made if need be."""
        topic = self._metadata.image.topics.get(self._topic)
        count = len(topic.partitions) if topic is not None else self._create_topic()
        return java_hash(name) % count

    def leader_of(self, name: str) -> int:
        """The broker that coordinates the group or transactional id; -1 while it is unknown."""
        index = self.partition_of(name)
        leader = self._metadata.image.topics[self._topic].partitions[index].leader
        if leader == self._replicas.node_id and not self._replicas.topic(self._topic)[index].leads:
            return NO_LEADER  # this broker has stepped down, and the new leader is not known yet
        return leader

    def _create_topic(self) -> int:
        new = self._new_topic()
        # In a smaller cluster the topic gets fewer replicas than configured.
        factor = min(new.replication_factor, len(self._metadata.image.brokers))
        new = replace(new, replication_factor=factor)
        try:
            topic = self._metadata.create_topic(new, Defaults(1, 1))
        except KafkaError as error:
            known = self._metadata.image.topics.get(self._topic)
            if known is not None:  # another broker was faster
                return len(known.partitions)
            logger.error("cannot create the topic %s: %s", self._topic, error)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from error
        return len(topic.partitions)

    def _shard(self, index: int) -> Shard[_Machine]:
        """The shard, ready to work; KafkaError while it is not."""
        shard = self._shards.get(index)
        if shard is None:
            try:
                partition = self._replicas.partition(self._topic, index)
            except KafkaError as error:
                raise KafkaError(ErrorCode.NOT_COORDINATOR) from error
            shard = self._new_shard(index, partition, _FIRST_LOAD_PAUSE_MS)
        if not shard.partition.leads:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)  # not told yet who does
        if shard.ready:
            return shard
        if shard.failed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, shard.failed)
        if shard.task is None and self._loop is not None:
            shard.task = self._spawn(self._load(shard))
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _new_shard(self, index: int, partition: Partition, pause_ms: int) -> Shard[_Machine]:
        """Take up a shard, and read it now if its log is small."""
        shard = Shard(index, partition, self._new_state(), pause_ms)
        self._shards[index] = shard
        try:
            small = partition.replica.log.size_bytes <= _SMALL_LOG_BYTES
        except KafkaError as error:  # the log cannot even be opened or created
            self._load_failed(shard, error)
        else:
            if small:
                for _ in self._load_steps(shard):
                    pass
        return shard

    def all_states(self) -> Iterator[_Machine]:
        """The state of every shard that this broker leads."""
        topic = self._metadata.image.topics.get(self._topic)
        for index in range(len(topic.partitions) if topic is not None else 0):
            try:
                yield self._shard(index).state
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise

    # ---------------------------------------------------------------------------------- loading

    async def _load_all(self) -> None:
        topic = self._metadata.image.topics.get(self._topic)
        for index in range(len(topic.partitions) if topic is not None else 0):
            try:
                self._shard(index)
            except KafkaError as error:
                shard = self._shards.get(index)
                if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and shard and shard.task:
                    await asyncio.wait([shard.task])
            await asyncio.sleep(0)

    async def _load(self, shard: Shard[_Machine]) -> None:
        for _ in self._load_steps(shard):
            await asyncio.sleep(0)

    def _load_steps(self, shard: Shard[_Machine]) -> Iterator[None]:
        """Read a shard from its log; yields regularly."""
        try:
            partition = shard.partition
            latest = Latest()
            limit = self._replicas.max_decompressed_bytes
            yield from latest_records(partition, limit, latest)
            yield from self._replay_steps(shard.state, latest)
        except Exception as error:  # after any error a half-read state must not be used
            if isinstance(error, KafkaError) and error.code is ErrorCode.CORRUPT_MESSAGE:
                self._replicas.damaged.add(partition, latest.offset)
            self._load_failed(shard, error)
            return
        if self._shards.get(shard.index) is not shard:
            return
        shard.end = partition.replica.log.end_offset
        shard.ready = True
        shard.state.wall.ms = self._clock.now_ms()
        self._apply(shard, shard.state.loaded(self._now_ms()))

    def _load_failed(self, shard: Shard[_Machine], error: Exception) -> None:
        if self._shards.get(shard.index) is not shard:
            return
        shard.failed = f"cannot read the state in {shard.partition.name}: {error}"
        known = isinstance(error, KafkaError | OSError | ValueError)
        logger.error(
            "%s; retrying in %d s", shard.failed, shard.pause_ms // 1000,
            exc_info=None if known else error,
        )  # fmt: skip
        self._set_timers(shard, [Timer(_LOAD, self._now_ms() + shard.pause_ms)])

    def _load_again(self, failed: Shard[_Machine]) -> None:
        """Retry: the disk may have room again, or the process free descriptors."""
        pause_ms = min(2 * failed.pause_ms, _LONGEST_LOAD_PAUSE_MS)
        self._new_shard(failed.index, failed.partition, pause_ms)
        with suppress(KafkaError):
            self._shard(failed.index)  # a large log is read step by step

    # --------------------------------------------------------------------------------- running

    def run(
        self,
        name: str,
        operation: Operation[_Machine, _Reply],
        finish: Callable[[_Reply], _Response],
    ) -> _Response | Coroutine[None, None, _Response]:
        """Run an operation on a group or transactional id; the response, or the wait for it.

        `finish` makes the response of what the operation replies. KafkaError from the operation,
        or as its reply, is raised.
        """
        result = self._run(name, operation)
        if isinstance(result, asyncio.Future):
            return _finish(result, finish)
        return finish(_unless_error(result))

    def run_each(
        self,
        operations: Sequence[tuple[str, Operation[_Machine, _Reply]]],
        finish: Callable[[list[Result[_Reply]]], _Response],
    ) -> _Response | Coroutine[None, None, _Response]:
        """Run operations on several ids; what each replied, or its KafkaError, in that order."""
        results: list[Result[_Reply] | asyncio.Future[Result[_Reply]]] = []
        for name, operation in operations:
            try:
                results.append(self._run(name, operation))
            except KafkaError as error:
                results.append(error)
        at_once = [result for result in results if not isinstance(result, asyncio.Future)]
        if len(at_once) == len(results):
            return finish(at_once)
        return _finish_each(results, finish)

    def _run(
        self, name: str, operation: Operation[_Machine, _Reply]
    ) -> Result[_Reply] | asyncio.Future[Result[_Reply]]:
        """What the operation replies (a KafkaError is not raised), or a future of it."""
        shard = self._shard(self.partition_of(name))
        token: Token[_Reply] = Token()
        shard.state.wall.ms = self._clock.now_ms()
        self._apply(shard, operation(shard.state, token, self._now_ms()), token.answer)
        if token.answered:
            return token.response
        future: asyncio.Future[Result[_Reply]] = asyncio.get_running_loop().create_future()
        token.when_answered(partial(_set_result, future))
        return future

    def _apply(
        self,
        shard: Shard[_Machine],
        outcome: Outcome,
        refuse: Callable[[KafkaError], None] | None = None,
    ) -> bool:
        """Write the records of an operation and apply its outcome; False if the write fails.

        In that case the operation did not happen: only its own request gets the error, through
        `refuse`; other waiting requests keep waiting.
        """
        if outcome.sessions:
            self._set_timers(shard, outcome.sessions)
        if outcome.records:
            try:
                self._append(shard, outcome)
            except KafkaError as error:
                self._log_refusal(shard, error)
                if refuse is not None:
                    refuse(_for_client(error))
                return False
        for effect in outcome.effects:
            effect()
        if outcome.timers:
            self._set_timers(shard, outcome.timers)
        if not outcome.replies and not outcome.ended:
            return True
        if shard.partition.replica.is_committed(shard.end):
            for reply in outcome.replies:
                reply.send()
            self._settled(shard, outcome)
        else:
            committed = shard.partition.wait_committed(shard.end)
            committed.add_done_callback(
                lambda done: self._committed(shard, outcome, done.exception())
            )
        return True

    def _log_refusal(self, shard: Shard[_Machine], error: KafkaError) -> None:
        now_ms = self._now_ms()
        if now_ms >= shard.quiet_until_ms:
            shard.quiet_until_ms = now_ms + _QUIET_MS
            logger.error(
                "cannot write to %s: %s; more of these are not logged for %d s",
                shard.partition.name, error, _QUIET_MS // 1000,
            )  # fmt: skip

    def _set_timers(self, shard: Shard[_Machine], timers: Sequence[Timer]) -> None:
        soonest = False
        for key, at_ms in timers:
            soonest = self._timers.set(_TimerKey(shard.index, key), at_ms) or soonest
        if soonest:
            self._set_alarm()

    def _append(self, shard: Shard[_Machine], outcome: Outcome) -> None:
        now_ms = shard.state.wall.ms
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
            batch = encode_batch(records, codec=self._codec)
        else:
            producer_id, epoch = outcome.producer
            batch = encode_batch(
                records, 0, self._codec, producer_id, epoch, attributes=TRANSACTIONAL
            )
        shard.end = shard.partition.append_own(batch, now_ms) + len(records)
        for key, value in outcome.records:
            if outcome.producer is None:
                shard.state.replay(key, value)
            else:
                self._replay_pending(shard.state, producer_id, key, value)

    def _committed(
        self, shard: Shard[_Machine], outcome: Outcome, error: BaseException | None
    ) -> None:
        if error is None:
            for reply in outcome.replies:
                reply.send()
            if self._shards.get(shard.index) is shard:
                self._settled(shard, outcome)
            return
        failure = error if isinstance(error, KafkaError) else KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        )  # fmt: skip
        for reply in outcome.replies:
            reply.fail(_for_client(failure))
        if self._shards.get(shard.index) is shard:
            # The log may not keep what memory holds. If this broker still leads, it reads the log
            # again at once: timers and unfinished transactions must not wait for a request.
            self._unload(shard.index, ErrorCode.NOT_COORDINATOR)
            if shard.partition.leads and self._loop is not None:
                self._spawn(self._load_all())

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
        """Run all due timers."""
        # A millisecond more: the loop may wake up a little early, and now_ms is cut to whole ones.
        now_ms = self._now_ms() + 1
        for index, key in self._timers.due(now_ms):
            shard = self._shards.get(index)
            if shard is not None and key == _LOAD:
                self._load_again(shard)
                continue
            if shard is None or not shard.ready:
                continue
            if key == _TOPICS:
                self._tell_of_topics(shard)
                continue
            if not self._expire(shard, key, now_ms):
                self._timers.set(_TimerKey(index, key), now_ms + _TRY_AGAIN_MS)

    def _expire(self, shard: Shard[_Machine], key: tuple[str, ...], now_ms: int) -> bool:
        """Run a timer of a shard; False if it must be retried."""
        shard.state.wall.ms = self._clock.now_ms()
        try:
            return self._apply(shard, shard.state.expire(key, now_ms))
        except Exception:  # the other timers have to fire all the same
            logger.exception("the timer %s of %s failed", key, shard.partition.name)
            return False

    def _follow(self, old: Image, new: Image) -> None:
        """Topics came, changed or went, or the configs of groups changed."""
        before, after = old.topics.get(self._topic), new.topics.get(self._topic)
        if before is not None and (after is None or after.id != before.id):
            for index in list(self._shards):
                self._unload(index, ErrorCode.NOT_COORDINATOR)
        elif before is not after:
            self._follow_leaders()
        unchanged = old.topics is new.topics and old.group_configs is new.group_configs
        if not self._shards or unchanged:
            return
        changed = frozenset(
            name
            for name in old.topics.keys() | new.topics.keys()
            if old.topics.get(name) is not new.topics.get(name)
        )
        gone = frozenset(name for name in changed if name not in new.topics)
        for shard in list(self._shards.values()):
            if shard.ready:
                shard.topics_changed |= changed
                shard.topics_gone |= gone
                self._tell_of_topics(shard)

    def _tell_of_topics(self, shard: Shard[_Machine]) -> None:
        """Apply changes of topics to a shard, now or when its log accepts records again."""
        shard.state.wall.ms = self._clock.now_ms()
        if self._apply(shard, self._topics_changed(shard, shard.topics_changed, shard.topics_gone)):
            shard.topics_changed = shard.topics_gone = frozenset()
        else:
            self._set_timers(shard, [Timer(_TOPICS, self._now_ms() + _TRY_AGAIN_MS)])

    def _follow_leaders(self) -> None:
        """Drop shards that other brokers lead now, and load those that this broker leads."""
        for index, shard in list(self._shards.items()):
            partition = shard.partition
            if not partition.leads or partition.leader_epoch != shard.epoch:
                self._unload(index, ErrorCode.NOT_COORDINATOR)
        if self._loop is not None:
            self._spawn(self._load_all())

    def _unload(self, index: int, error: ErrorCode) -> None:
        shard = self._shards.pop(index, None)
        if shard is None:
            return
        if shard.task is not None:
            shard.task.cancel()
        self._timers.cancel_where(lambda key: key.shard == index)
        for reply in shard.state.withdraw(error):
            reply.send()

    def _sweep(self, look: Callable[[_Machine], Outcome]) -> None:
        """Run the periodic work of every shard."""
        for shard in list(self._shards.values()):
            if shard.ready:
                shard.state.wall.ms = self._clock.now_ms()
                self._apply(shard, look(shard.state))

    async def _every(self, setting: str, work: Callable[[], None]) -> None:
        interval = self._settings.integer(setting) / 1000
        while True:
            await asyncio.sleep(interval)
            try:
                work()
            except Exception:
                logger.exception("recurring work on %s failed; it is tried again", self._topic)


@lru_cache(4096)
def java_hash(text: str) -> int:
    """A string's hash as Java computes it, without the sign: it chooses a group's partition."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def _for_client(error: KafkaError) -> KafkaError:
    """The client's error for a failed append."""
    code = _APPEND_ERRORS.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return KafkaError(code, error.message)


def _set_result(future: asyncio.Future[_Response], response: _Response) -> None:
    if not future.done():  # it is done if the client is gone
        future.set_result(response)


def _unless_error(result: Result[_Reply]) -> _Reply:
    if isinstance(result, KafkaError):
        raise result
    return result


async def _finish(
    future: asyncio.Future[Result[_Reply]], finish: Callable[[_Reply], _Response]
) -> _Response:
    return finish(_unless_error(await future))


async def _finish_each(
    results: list[Result[_Reply] | asyncio.Future[Result[_Reply]]],
    finish: Callable[[list[Result[_Reply]]], _Response],
) -> _Response:
    return finish([await one if isinstance(one, asyncio.Future) else one for one in results])
