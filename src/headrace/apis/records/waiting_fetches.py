"""Fetches that wait until there is enough to answer, from the wait to the answer.

1. `Fetch` has read too little and calls `WaitingFetches.wait`. From then on the partitions of the
   fetch know its session as a watcher. The connection starts the wait with where the answer goes.
2. A partition that has watchers and changes (records, high watermark, leader) puts itself into
   `Replicas.changed`. This is all that a Produce does for waiting fetches.
3. After each poll of the sockets the poller calls `WaitingFetches.wake`. It notes the changes in
   the sessions, and then each fetch that waits for one of them reads again, once.
4. If there is enough now, the fetch ends, and the connection gets the answer.
5. A fetch whose `max_wait_ms` have passed answers with what there is. One timer serves all of them.

A waiting fetch needs no task and no future.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Generator
from typing import TypeAlias

from headrace.apis.records.fetch_sessions import FetchSession
from headrace.replication.partition import Partition, WaitingReader
from headrace.wire.fast import Chunk

logger = logging.getLogger(__name__)

Read: TypeAlias = Callable[[bool], list[Chunk] | None]
"""Reads again: the answer, or None to wait on. It always answers if it is told that time is up."""

Answered: TypeAlias = Callable[[list[Chunk] | None], None]
"""Takes the answer; None if reading has failed with an error of our own."""


class WaitingFetches:
    """The fetches of one broker that wait."""

    def __init__(self, changed: list[Partition]) -> None:
        """`changed` is where partitions put themselves that have changed."""
        self._changed = changed
        self._deadlines = _Deadlines()

    def wait(self, session: FetchSession, read: Read, max_wait_ms: int) -> "WaitingFetch":
        """Answer with what `read` returns after a change, or when `max_wait_ms` have passed."""
        session.watch()
        return WaitingFetch(session, read, max_wait_ms, self._deadlines)

    def wake(self) -> bool:
        """Let the fetches read again that wait for what has changed; whether anything has."""
        changed = self._changed
        if not changed:
            return False
        while changed:  # what reads again may change partitions, too
            partitions = dict.fromkeys(changed)
            changed.clear()
            waiting: dict[WaitingReader, None] = {}
            for partition in partitions:
                for watcher in partition.watchers:
                    fetch = watcher.changed()
                    if fetch is not None:
                        waiting[fetch] = None
            for fetch in waiting:
                fetch.read_again()
        return True


class WaitingFetch:
    """One fetch that waits: `start` it, or await it in a task."""

    __slots__ = (
        "_answered", "_deadline", "_deadlines", "_max_wait_ms", "_missed", "_read", "_session",
    )  # fmt: skip

    def __init__(
        self, session: FetchSession, read: Read, max_wait_ms: int, deadlines: "_Deadlines"
    ) -> None:
        self._session = session
        self._read = read
        self._max_wait_ms = max_wait_ms
        self._deadlines = deadlines
        self._deadline = -1
        self._answered: Answered | None = None
        self._missed = False
        session.waiting = self

    def start(self, answered: Answered) -> bool:
        """Wait from now on; whether this has set a timer that asyncio has not seen yet."""
        self._answered = answered
        self._deadline, timer_set = self._deadlines.add(self, self._max_wait_ms)
        if self._missed:
            self._try(expired=False)
        return timer_set

    def read_again(self) -> None:
        """Read after a change, and answer if there is enough."""
        if self._answered is None:
            self._missed = True  # it has not started yet
        else:
            self._try(expired=False)

    def expire(self) -> None:
        """Answer with what there is."""
        self._try(expired=True)

    def cancel(self) -> None:
        """Give up: the client is gone. May be called twice, and after the answer."""
        self._end()

    def __await__(self) -> Generator[object, None, list[Chunk]]:
        future: asyncio.Future[list[Chunk] | None]
        future = asyncio.get_running_loop().create_future()
        self.start(lambda answer: None if future.done() else future.set_result(answer))
        try:
            answer = yield from future
        finally:
            self.cancel()
        if answer is None:
            raise RuntimeError("a fetch could not be answered; the log says why")
        return answer

    def _try(self, expired: bool) -> None:
        answered = self._answered
        if answered is None:
            return
        try:
            answer = self._read(expired)
        except Exception:
            logger.exception("a waiting fetch broke this broker's code")
            answer, expired = None, True
        if answer is None and not expired:
            self._session.watch()  # a partition may have been replaced
            return
        self._end()
        answered(answer)

    def _end(self) -> None:
        self._answered = None
        session = self._session
        if session.waiting is self:
            session.waiting = None
            if self._deadline >= 0:
                self._deadlines.remove(self, self._deadline)
            if not session.id:
                session.close()


class _Deadlines:
    """When waiting fetches expire: by the millisecond, with one timer for the next of them.

    Most fetches are answered long before. The timer is left alone then.
    """

    def __init__(self) -> None:
        self._by_ms: dict[int, dict[WaitingFetch, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_ms = 0

    def add(self, waiting: WaitingFetch, max_wait_ms: int) -> tuple[int, bool]:
        """The millisecond when it expires, and whether a timer was set for it."""
        loop = asyncio.get_running_loop()
        deadline = math.ceil(loop.time() * 1000 + max_wait_ms)
        together = self._by_ms.get(deadline)
        if together is None:
            self._by_ms[deadline] = {waiting: None}
        else:
            together[waiting] = None
        if self._timer is not None and self._loop is loop and self._next_ms <= deadline:
            return deadline, False
        self._set_timer(loop, deadline)
        return deadline, True

    def remove(self, waiting: WaitingFetch, deadline: int) -> None:
        """It needs no deadline any more."""
        together = self._by_ms.get(deadline)
        if together is not None:
            together.pop(waiting, None)
            if not together:
                del self._by_ms[deadline]

    def _set_timer(self, loop: asyncio.AbstractEventLoop, deadline: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop, self._next_ms = loop, deadline
        self._timer = loop.call_at(deadline / 1000, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._next_ms = None, 0
        now = loop.time() * 1000 + 0.01  # a timer may be early by the last digit of its time
        for deadline in [deadline for deadline in self._by_ms if deadline <= now]:
            for waiting in self._by_ms.pop(deadline):
                waiting.expire()
        if self._by_ms:
            following = min(self._by_ms)
            if following != self._next_ms:  # a fetch that came meanwhile may have set the timer
                self._set_timer(loop, following)
