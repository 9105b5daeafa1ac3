"""The base of the coordinators: runs operations, writes their records and replays them.

An operation and its records are one step of the event loop: it reads the state of a shard, its
records are appended and replayed, and its replies are sent when the records are committed, so that
no client sees a result that a crash could undo. Decisions are made in `groups/`, `offsets.py` and
`transactions.py`; shards are read and dropped in `shards.py`. The coordinators are in
`group_runtime.py` and `transaction_runtime.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from headrace.clock import Clock
from headrace.cluster.controller import NewTopic
from headrace.cluster.image import Image
from headrace.cluster.metadata import Metadata
from headrace.coordination.coordinator_tasks import CoordinatorTasks
from headrace.coordination.coordinator_topic import CoordinatorTopic
from headrace.coordination.load import Latest
from headrace.coordination.outcome import Outcome, Result, Timer, Token
from headrace.coordination.shard_timers import ShardTimers
from headrace.coordination.shards import LOAD, Machine, Shard, Shards
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.replicas import Replicas
from headrace.settings import Settings

logger = logging.getLogger(__name__)

_Machine = TypeVar("_Machine", bound=Machine)
_Reply = TypeVar("_Reply")
_Response = TypeVar("_Response")

Operation: TypeAlias = Callable[[_Machine, Token[_Reply], int], Outcome]
"""(state of the shard, the token to reply to, steady clock in ms) -> its result."""

_TRY_AGAIN_MS = 5000
"""How long to wait before a timer or a change of topics whose records were refused is retried."""

_TOPICS = ("topics",)
"""The key of the timer that retries a change of topics."""

_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error that a client gets for a failed append; COORDINATOR_NOT_AVAILABLE for all others."""


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
        new_latest: Callable[[], Latest] = Latest,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metadata = metadata
        self._replicas = replicas
        self._codec = codec
        self._timers = ShardTimers(clock, self.fire_timers)
        self._tasks = CoordinatorTasks()
        self.topic = CoordinatorTopic(topic, self._new_topic, metadata, replicas)
        self.shards: Shards[_Machine] = Shards(
            self.topic, replicas, clock, self._timers, self._tasks,
            self._new_state, self._replay_steps, self._loaded, new_latest,
        )  # fmt: skip
        metadata.listeners.append(self._follow)

    def start(self) -> None:
        """Begin to read the logs and to let timers fire; needs a running event loop."""
        self._tasks.start()
        self.shards.load_all()
        self._timers.start()

    def stop(self) -> None:
        """Stop timers and loading."""
        self._tasks.stop()
        self._timers.stop()

    # ------------------------------------------------------------- defined by each coordinator

    def _new_state(self) -> _Machine:
        """The state of an empty shard."""
        raise NotImplementedError

    def _new_topic(self) -> NewTopic:
        """The coordinator's topic, with its settings for creation."""
        raise NotImplementedError

    def _replay_steps(self, state: _Machine, latest: Latest) -> Iterator[None]:
        """Replay what the log holds."""
        raise NotImplementedError

    def _settled(self, shard: Shard[_Machine], outcome: Outcome) -> None:
        """Called when an outcome's records are committed."""

    def _topics_changed(
        self, shard: Shard[_Machine], changed: frozenset[str], gone: frozenset[str]
    ) -> Outcome:
        """These topics were created, changed or deleted; `gone` are the deleted ones."""
        return Outcome()

    # --------------------------------------------------------------------------------- running

    def run(
        self,
        name: str,
        operation: Operation[_Machine, _Reply],
        finish: Callable[[_Reply], _Response],
    ) -> _Response | Coroutine[None, None, _Response]:
        """Run an operation on a group or transactional id; the response, or a coroutine of it.

        `finish` makes the response from the reply of the operation. KafkaError from the operation,
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
        shard = self.shards.get(self.topic.partition_of(name))
        token: Token[_Reply] = Token()
        shard.state.wall.ms = self._clock.now_ms()
        self._apply(shard, operation(shard.state, token, self._timers.now_ms()), token.answer)
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
            self._timers.set(shard.index, outcome.sessions)
        if outcome.records:
            try:
                shard.append(outcome, self._codec)
            except KafkaError as error:
                shard.log_refusal(error, self._timers.now_ms())
                if refuse is not None:
                    refuse(_for_client(error))
                return False
        for effect in outcome.effects:
            effect()
        if outcome.timers:
            self._timers.set(shard.index, outcome.timers)
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

    def _committed(
        self, shard: Shard[_Machine], outcome: Outcome, error: BaseException | None
    ) -> None:
        if error is None:
            for reply in outcome.replies:
                reply.send()
            if self.shards.holds(shard):
                self._settled(shard, outcome)
            return
        failure = error if isinstance(error, KafkaError) else KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, str(error)
        )  # fmt: skip
        for reply in outcome.replies:
            reply.fail(_for_client(failure))
        if self.shards.holds(shard):
            # The log may lack what memory holds. If this broker still leads, it reads the log again
            # at once: timers and unfinished transactions must not wait for a request.
            self.shards.unload(shard)
            if shard.partition.leads:
                self.shards.load_all()

    def _loaded(self, shard: Shard[_Machine]) -> None:
        self._apply(shard, shard.state.loaded(self._timers.now_ms()))

    # ------------------------------------------------------------------------ timers and changes

    def fire_timers(self) -> None:
        """Run all due timers."""
        # One more: the loop may wake up slightly early, and now_ms is rounded down.
        now_ms = self._timers.now_ms() + 1
        for index, key in self._timers.due(now_ms):
            shard = self.shards.find(index)
            if shard is not None and key == LOAD:
                self.shards.load_again(shard)
                continue
            if shard is None or not shard.ready:
                continue
            if key == _TOPICS:
                self._tell_of_topics(shard)
                continue
            if not self._expire(shard, key, now_ms):
                self._timers.set(index, [Timer(key, now_ms + _TRY_AGAIN_MS)])

    def _expire(self, shard: Shard[_Machine], key: tuple[str, ...], now_ms: int) -> bool:
        """Run a timer of a shard; False if it must be retried."""
        shard.state.wall.ms = self._clock.now_ms()
        try:
            return self._apply(shard, shard.state.expire(key, now_ms))
        except Exception:  # the other timers must fire nevertheless
            logger.exception("the timer %s of %s failed", key, shard.partition.name)
            return False

    def _follow(self, old: Image, new: Image) -> None:
        """Apply a new image: topics or configs of groups may have changed."""
        before, after = old.topics.get(self.topic.name), new.topics.get(self.topic.name)
        if before is not None and (after is None or after.id != before.id):
            self.shards.unload_all()
        elif before is not after:
            self.shards.follow_leaders()
        unchanged = old.topics is new.topics and old.group_configs is new.group_configs
        if not self.shards or unchanged:
            return
        changed = frozenset(
            name
            for name in old.topics.keys() | new.topics.keys()
            if old.topics.get(name) is not new.topics.get(name)
        )
        gone = frozenset(name for name in changed if name not in new.topics)
        for shard in self.shards.ready():
            shard.topics_changed |= changed
            shard.topics_gone |= gone
            self._tell_of_topics(shard)

    def _tell_of_topics(self, shard: Shard[_Machine]) -> None:
        """Apply changes of topics to a shard, now or when its log accepts records again."""
        shard.state.wall.ms = self._clock.now_ms()
        if self._apply(shard, self._topics_changed(shard, shard.topics_changed, shard.topics_gone)):
            shard.topics_changed = shard.topics_gone = frozenset()
        else:
            self._timers.set(shard.index, [Timer(_TOPICS, self._timers.now_ms() + _TRY_AGAIN_MS)])

    def _sweep(self, look: Callable[[_Machine], Outcome]) -> None:
        """Run the periodic work of every shard."""
        for shard in self.shards.ready():
            shard.state.wall.ms = self._clock.now_ms()
            self._apply(shard, look(shard.state))


def _for_client(error: KafkaError) -> KafkaError:
    """The client's error for a failed append."""
    code = _APPEND_ERRORS.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return KafkaError(code, error.message)


def _set_result(future: asyncio.Future[_Response], response: _Response) -> None:
    if not future.done():  # it is done if the client has disconnected
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
