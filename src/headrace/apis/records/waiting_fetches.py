"""Fetches that wait for enough records, from the wait to the response.

1. `Fetch` has read too little and calls `WaitingFetches.wait`. From then on the session is a
   watcher of its partitions. The connection starts the wait and passes the callback for the
   response.
2. A partition that has watchers and changes (records, high watermark, leader) puts itself into
   `Replicas.changed`. This is all that a Produce does for waiting fetches.
3. After each poll of the sockets the poller calls `WaitingFetches.wake`. It notes the changes in
   the sessions, and then each fetch that waits for one of them reads again, once.
4. If there are enough bytes, the fetch ends, and the connection gets the response.
5. When `max_wait_ms` have passed, a fetch responds with the bytes there are. One timer serves all.

A waiting fetch needs no task and no future.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Generator
from time import perf_counter
from typing import TypeAlias

from headrace.apis.records.fetch_sessions import FetchSession
from headrace.replication.replica import LocalReplica, WaitingReader
from headrace.wire.fast import Chunk

logger = logging.getLogger(__name__)

Read: TypeAlias = Callable[[bool], list[Chunk] | None]
"""Reads again: the response, or None to continue waiting. If expired, it always responds."""

Answered: TypeAlias = Callable[[list[Chunk] | None], None]
"""Receives the response; None if reading failed because of a bug."""


class WaitingFetches:
    """The waiting fetches of one broker."""

    def __init__(self, changed: list[LocalReplica]) -> None:
        """`changed` is the list to which changed replicas add themselves."""
        self._changed = changed
        self._deadlines = _Deadlines()

    def wait(self, session: FetchSession, read: Read, max_wait_ms: int) -> "WaitingFetch":
        """Call `read` after each change, and when `max_wait_ms` have passed, until it responds."""
        session.watch()
        return WaitingFetch(session, read, max_wait_ms, self._deadlines)

    def wake(self) -> bool:
        """Read again for the fetches that wait for a changed partition; whether any changed."""
        changed = self._changed
        if not changed:
            return False
        while changed:  # a read may change partitions, too
            replicas = dict.fromkeys(changed)
            changed.clear()
            waiting: dict[WaitingReader, None] = {}
            for replica in replicas:
                for watcher in replica.watchers:
                    fetch = watcher.changed()
                    if fetch is not None:
                        waiting[fetch] = None
            for fetch in waiting:
                fetch.read_again()
        return True


class WaitingFetch:
    """One waiting fetch: call `start`, or await it in a task."""

    __slots__ = (
        "_answered", "_deadline", "_deadlines", "_max_wait_ms", "_missed", "_read", "_session",
        "on_answer",
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
        self.on_answer: Callable[[float], None] | None = None
        """Called when there is an answer, with the time (`perf_counter`) when the wait was over."""
        session.waiting = self

    def start(self, answered: Answered) -> bool:
        """Begin to wait; whether this has set a timer that asyncio has not seen yet."""
        self._answered = answered
        self._deadline, timer_set = self._deadlines.add(self, self._max_wait_ms)
        if self._missed:
            self._try(expired=False)
        return timer_set

    def read_again(self) -> None:
        """Read after a change, and respond if there are enough bytes."""
        if self._answered is None:
            self._missed = True  # the wait has not started yet
        else:
            self._try(expired=False)

    def expire(self) -> None:
        """Respond with the bytes there are."""
        self._try(expired=True)

    def cancel(self) -> None:
        """End the wait of a closed connection. May be called twice, and after the response."""
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
            raise RuntimeError("a waiting fetch failed; see the log for its traceback")
        return answer

    def _try(self, expired: bool) -> None:
        answered = self._answered
        if answered is None:
            return
        on_answer = self.on_answer
        woken = perf_counter() if on_answer is not None else 0.0
        try:
            answer = self._read(expired)
        except Exception:
            logger.exception("unexpected error in a waiting fetch")
            answer, expired = None, True
        if answer is None and not expired:
            self._session.watch()  # a partition may have been replaced
            return
        self._end()
        if on_answer is not None:
            on_answer(woken)
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
    """The deadlines of waiting fetches, by millisecond, with one timer for the next one.

    Most fetches end long before their deadline; the timer is not changed then.
    """

    def __init__(self) -> None:
        self._by_ms: dict[int, dict[WaitingFetch, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_ms = 0

    def add(self, waiting: WaitingFetch, max_wait_ms: int) -> tuple[int, bool]:
        """The millisecond at which it expires, and whether a timer was set for it."""
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
        """Remove the deadline of a fetch."""
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
