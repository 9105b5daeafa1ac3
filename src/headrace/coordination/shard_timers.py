"""The timers of all shards of a coordinator, and the event loop's alarm for the next one."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.clock import Clock
from headrace.coordination.outcome import Timer
from headrace.coordination.timers import Timers


class ShardTimer(NamedTuple):
    """The key of a timer."""

    shard: int
    key: tuple[str, ...]


class ShardTimers:
    """Timers by shard and key; `fire` is called when one is due, once started."""

    def __init__(self, clock: Clock, fire: Callable[[], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._timers: Timers[ShardTimer] = Timers()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0

    def start(self) -> None:
        """Begin to call `fire`; needs a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._set_alarm()

    def stop(self) -> None:
        """Stop calling `fire`."""
        self._loop = None
        if self._alarm is not None:
            self._alarm.cancel()

    def now_ms(self) -> int:
        """The time of the steady clock that deadlines refer to."""
        return int(self._clock.monotonic() * 1000)

    def set(self, shard: int, timers: Iterable[Timer]) -> None:
        """Set, move or cancel timers of a shard."""
        soonest = False
        for key, at_ms in timers:
            soonest = self._timers.set(ShardTimer(shard, key), at_ms) or soonest
        if soonest:
            self._set_alarm()

    def due(self, now_ms: int) -> list[ShardTimer]:
        """The timers whose deadline has come; they are no longer set."""
        return self._timers.due(now_ms)

    def cancel_all(self, shard: int) -> None:
        """Cancel all timers of a shard."""
        self._timers.cancel_where(lambda timer: timer.shard == shard)

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
        self._fire()
        self._set_alarm()
