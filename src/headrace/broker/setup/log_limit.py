"""A limit on log lines that clients cause before anybody knows them.

A flood of connections that fail would otherwise be a flood of log lines, which fills the disk and
costs more than closing the connections.
"""

import logging
import time
from collections.abc import Callable

LINES = 50
PERIOD_S = 10.0


class LogLimit(logging.Filter):
    """Passes at most `LINES` lines with the same text, before values are filled in, per period."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._until = 0.0
        self._lines: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._now()
        if now >= self._until:
            self._until = now + PERIOD_S
            self._lines.clear()
        count = self._lines[record.msg] = self._lines.get(record.msg, 0) + 1
        if count == LINES:
            record.msg += f" (further lines like this are left out for up to {PERIOD_S:g} s)"
        return count <= LINES
