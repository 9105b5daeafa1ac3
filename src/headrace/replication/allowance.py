"""A byte rate limit for replication."""

from collections.abc import Callable

from headrace.clock import Clock
from headrace.settings.setting import LONG_MAX


class Allowance:
    """Tracks copied bytes; the caller waits while more was copied than the rate allows."""

    def __init__(self, rate: Callable[[], int], clock: Clock) -> None:
        """`rate` returns the current limit in bytes per second."""
        self._rate = rate
        self._clock = clock
        self._debt_bytes = 0.0
        self._counted_s = 0.0

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self._rate() < LONG_MAX

    @property
    def is_exceeded(self) -> bool:
        """Whether more was copied than the rate allows so far."""
        return self._debt() > 0

    def copied(self, count_bytes: int) -> None:
        """Count copied bytes."""
        self._debt_bytes = self._debt() + count_bytes

    def _debt(self) -> float:
        now_s = self._clock.monotonic()
        self._debt_bytes = max(0.0, self._debt_bytes - self._rate() * (now_s - self._counted_s))
        self._counted_s = now_s
        return self._debt_bytes
