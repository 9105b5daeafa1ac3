"""Long work on the event loop in slices, so that other clients are served in between.

Work is a generator (`wire/steps.py`). Its first slice runs immediately, so that short work needs no
task. After that, all long work together gets at most one slice in each turn of the event loop; the
clients take turns.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

from headrace.wire.steps import Steps

FIRST_SLICE_S = 0.0005
SLICE_S = 0.002

_Result = TypeVar("_Result")


class _Done(Generic[_Result]):
    """The result of work that has ended."""

    __slots__ = ("result",)

    def __init__(self, result: _Result) -> None:
        self.result = result


class Slices:
    """Shares the event loop's time between work that takes long."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self._waiting: deque[asyncio.Future[None]] = deque()

    def begin(self, steps: Steps[_Result]) -> _Result | Coroutine[None, None, _Result]:
        """The result, if one short slice is enough; otherwise a coroutine that returns it."""
        done = self._advance(steps, FIRST_SLICE_S)
        return self.finish(steps) if done is None else done.result

    async def finish(self, steps: Steps[_Result]) -> _Result:
        """Run the work to its end, a slice at a time."""
        while True:
            await self.turn()
            done = self._advance(steps, SLICE_S)
            if done is not None:
                return done.result

    async def turn(self) -> None:
        """Return when this caller may run for a slice; others have been served meanwhile."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._grant)
        await turn

    def _grant(self) -> None:
        """Resume the caller that has waited longest.

        It runs after the next poll of the sockets, as does the next grant, so there is one slice
        per poll.
        """
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # otherwise its connection was closed
                turn.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._grant)

    def _advance(self, steps: Steps[_Result], slice_s: float) -> _Done[_Result] | None:
        """Run the work for one slice; its result if it is complete."""
        now = self.now
        until = now() + slice_s
        try:
            next(steps)
            while now() < until:
                next(steps)
        except StopIteration as end:
            return _Done(end.value)
        return None
