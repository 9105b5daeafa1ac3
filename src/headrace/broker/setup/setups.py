"""Connections that are not set up yet: TLS handshakes and logins, bounded in number and in time.

Anybody can begin one. Beyond the bound, a new one ends the oldest: a client that is in earnest is
done within milliseconds.
"""

import asyncio
from typing import Generic, Protocol, TypeVar

_TOGETHER_S = 0.05


class Setup(Protocol):
    """A handshake or a login that is not done."""

    def end(self, why: str) -> None:
        """Close the connection and log why, if it is said; calls `Setups.finish` on the way."""


_Setup = TypeVar("_Setup", bound=Setup)


class Setups(Generic[_Setup]):
    """The unfinished ones of one kind."""

    def __init__(self, kind: str, most: int, timeout_s: float) -> None:
        self._kind = kind
        self._most = most
        self._timeout_s = timeout_s
        self._under_way: dict[_Setup, float] = {}
        """Each with the time at which it ends; the oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, setup: _Setup) -> None:
        """Give it its time."""
        if len(self._under_way) >= self._most:
            oldest = next(iter(self._under_way))
            oldest.end(f"was the oldest of {self._most} unfinished {self._kind}s")
        loop = asyncio.get_running_loop()
        self._under_way[setup] = loop.time() + self._timeout_s
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_s, self._end_late)

    def finish(self, setup: _Setup) -> bool:
        """It has ended, well or not; whether it was under way."""
        return self._under_way.pop(setup, None) is not None

    def close(self) -> None:
        """End them all."""
        for setup in list(self._under_way):
            setup.end("")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_late(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        while self._under_way:
            setup, until = next(iter(self._under_way.items()))
            if until > now:
                # Several that end at about the same time share a timer.
                self._timer = loop.call_later(until - now + _TOGETHER_S, self._end_late)
                return
            setup.end(f"did not finish its {self._kind} within {self._timeout_s:g} s")
