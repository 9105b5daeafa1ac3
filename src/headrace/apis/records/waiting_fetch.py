"""Fetches that have to wait for records, and the times until which they do.

A waiting fetch has no task: whoever changes one of its partitions stirs it, and it looks again
when all that one poll reported has been worked on (`Replicas.wake`).
"""

import asyncio
import logging
import math
from collections.abc import Callable, Generator
from typing import TypeAlias

from headrace.apis.records.fetch_sessions import FetchSession
from headrace.wire.fast import Chunk

logger = logging.getLogger(__name__)

Answered: TypeAlias = Callable[[list[Chunk] | None], None]
"""Takes the answer; None if there can be none, because our code broke."""


class WaitingFetch:
    """The answer to a fetch, when there is something to tell or its time is up."""

    __slots__ = (
        "_answered", "_due", "_look", "_missed", "_patience_ms", "_session", "_stirred", "_tick",
        "_times",
    )  # fmt: skip

    def __init__(
        self,
        session: FetchSession,
        look: Callable[[bool], list[Chunk] | None],
        patience_ms: int,
        due: list[Callable[[], None]],
        times: "Times",
    ) -> None:
        """`look` gives the answer, or None to wait on unless it is told that this is the last look.

        What is put into `due` is called when those who watch what changed have all been told.
        """
        self._session = session
        self._look = look
        self._patience_ms = patience_ms
        self._due = due
        self._times = times
        self._tick = -1
        self._answered: Answered | None = None
        self._stirred = False
        self._missed = False
        session.waiting = self

    def start(self, answered: Answered) -> bool:
        """Wait from now on; whether asyncio got a timer that it does not know of yet."""
        self._answered = answered
        self._tick, armed = self._times.add(self, self._patience_ms)
        if self._missed:
            self._look_again()
        return armed

    def stir(self) -> None:
        """Something has changed that this fetch asked for."""
        if not self._stirred:
            self._stirred = True
            self._due.append(self._look_again)

    def time_is_up(self) -> None:
        """Answer with what there is."""
        self._try(last=True)

    def cancel(self) -> None:
        """Nobody wants the answer any more; may be called twice, and after it was given."""
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

    def _look_again(self) -> None:
        self._stirred = False
        if self._answered is None:
            self._missed = True
        else:
            self._try(last=False)

    def _try(self, last: bool) -> None:
        answered = self._answered
        if answered is None:
            return
        try:
            answer = self._look(last)
        except Exception:
            logger.exception("a waiting fetch broke this broker's code")
            answer = None
            last = True
        if answer is not None or last:
            self._end()
            answered(answer)

    def _end(self) -> None:
        self._answered = None
        session = self._session
        if session.waiting is self:
            session.waiting = None
            if self._tick >= 0:
                self._times.remove(self, self._tick)
            if not session.id:
                session.close()


class Times:
    """When waiting fetches give up: by the millisecond, with one timer for the next of them.

    Most fetches are answered long before, so the timer is left alone then.
    """

    def __init__(self) -> None:
        self._ticks: dict[int, dict[WaitingFetch, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next = 0

    def add(self, waiting: WaitingFetch, patience_ms: int) -> tuple[int, bool]:
        """The millisecond when its time is up, and whether a timer was set for it."""
        loop = asyncio.get_running_loop()
        tick = math.ceil(loop.time() * 1000 + patience_ms)
        at_once = self._ticks.get(tick)
        if at_once is None:
            self._ticks[tick] = {waiting: None}
        else:
            at_once[waiting] = None
        if self._timer is not None and self._loop is loop and self._next <= tick:
            return tick, False
        self._arm(loop, tick)
        return tick, True

    def remove(self, waiting: WaitingFetch, tick: int) -> None:
        """It has its answer, or nobody wants it."""
        at_once = self._ticks.get(tick)
        if at_once is not None:
            at_once.pop(waiting, None)
            if not at_once:
                del self._ticks[tick]

    def _arm(self, loop: asyncio.AbstractEventLoop, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop, self._next = loop, tick
        self._timer = loop.call_at(tick / 1000, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._next = None, 0
        now = loop.time() * 1000 + 0.01  # a timer may be early by the last digit of its time
        for tick in [tick for tick in self._ticks if tick <= now]:
            for waiting in self._ticks.pop(tick):
                waiting.time_is_up()
        if self._ticks:
            following = min(self._ticks)
            if following != self._next:  # somebody who came meanwhile may have set the timer
                self._arm(loop, following)
