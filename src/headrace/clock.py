"""Time as an argument: the wall clock for records and retention, a steady one for timeouts."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the broker asks about time."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970; may jump."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


class SystemClock:
    """The machine's clock. `skew_ms` moves its wall time, for tests of clock jumps."""

    __slots__ = ("skew_ms",)

    def __init__(self) -> None:
        self.skew_ms = 0

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.skew_ms


class ManualClock:
    """A clock that moves only when told."""

    __slots__ = ("_monotonic", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, ms: int) -> None:
        """Move both the wall clock and the steady clock forward."""
        self._now_ms += ms
        self._monotonic += ms / 1000
