"""Detects jumps of the machine's wall clock by comparing it with the monotonic clock.

A wall clock that goes back makes producers fail with INVALID_TIMESTAMP, and one that goes forward
makes retention delete early. The broker cannot tell which time is right, so it only reports the
jump: in the log, in the metrics and as a warning in `/health`. `background.py` calls `look`
regularly.
"""

import logging
from datetime import UTC, datetime

from headrace.broker.metrics.values import Metrics
from headrace.clock import Clock

logger = logging.getLogger(__name__)

_JUMP_MS = 5000
"""A smaller difference between two checks is a correction of the clock, not a jump."""
_UNCERTAIN_S = 1.0
"""If reading both clocks takes longer, the process was suspended: the check is skipped."""
_FORWARD_SHOWN_S = 3600.0
_BACK_SHOWN_S = 86_400.0
"""How long `/health` shows a jump. A jump back is shown only until the clock has caught up."""


class ClockWatch:
    """The last jump of the wall clock, and how far it is behind the latest time that it showed."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._steady_s = clock.monotonic()
        self._wall_ms = clock.now_ms()
        self._latest_ms = self._wall_ms
        """The latest time that the wall clock has shown."""
        self._jump_ms = 0
        self._jumped_at_s = 0.0
        metrics.watch("headrace_clock_behind_seconds", lambda: self._behind_ms() / 1000)

    def look(self) -> None:
        """Compare the clocks with the previous check."""
        steady_s, wall_ms = self._clock.monotonic(), self._clock.now_ms()
        if self._clock.monotonic() - steady_s > _UNCERTAIN_S:
            return
        expected_ms = self._wall_ms + int((steady_s - self._steady_s) * 1000)
        self._latest_ms = max(self._latest_ms, wall_ms)
        if abs(wall_ms - expected_ms) >= _JUMP_MS:
            self._jumped(expected_ms, wall_ms, steady_s)
        self._steady_s, self._wall_ms = steady_s, wall_ms

    def _jumped(self, expected_ms: int, wall_ms: int, steady_s: float) -> None:
        self._jump_ms, self._jumped_at_s = wall_ms - expected_ms, steady_s
        self._latest_ms = max(self._latest_ms, expected_ms)
        forward = self._jump_ms > 0
        self._metrics.add("headrace_clock_jumps_total", 1, "forward" if forward else "back")
        logger.warning(
            "the wall clock jumped %s by %.1f s, from %s to %s; %s. Check the time synchronisation "
            "of this machine", "forward" if forward else "back", abs(self._jump_ms) / 1000,
            _text(expected_ms), _text(wall_ms), _consequence(forward),
        )  # fmt: skip

    def warnings(self) -> list[str]:
        """The last jump, while it still has consequences."""
        passed_s = self._clock.monotonic() - self._jumped_at_s
        seconds, behind_ms = abs(self._jump_ms) / 1000, self._behind_ms()
        if self._jump_ms > 0 and passed_s < _FORWARD_SHOWN_S:
            text = f"the wall clock jumped forward by {seconds:.0f} s, {passed_s:.0f} s ago"
            return [f"{text}; {_consequence(forward=True)}"]
        if self._jump_ms < 0 and behind_ms > 0 and passed_s < _BACK_SHOWN_S:
            text = f"the wall clock jumped back by {seconds:.0f} s, {passed_s:.0f} s ago"
            behind = f"is {behind_ms / 1000:.0f} s behind the latest time that it showed"
            return [f"{text}, and {behind}; {_consequence(forward=False)}"]
        return []

    def _behind_ms(self) -> int:
        return max(self._latest_ms - self._clock.now_ms(), 0)


def _consequence(forward: bool) -> str:
    if forward:
        return "retention by time may delete records earlier than expected"
    return (
        "records with correct timestamps are refused with INVALID_TIMESTAMP if they are later than "
        "this clock by more than message.timestamp.after.max.ms"
    )


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
