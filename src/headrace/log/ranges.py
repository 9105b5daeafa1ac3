"""Which parts of a file something is known of."""

from bisect import bisect_right

_RANGES_MAX = 1000
"""Readers that jump about leave many; beyond this, everything is forgotten."""


class Ranges:
    """Ranges of a file's bytes, as few and as large as possible."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def reach(self, position: int) -> int:
        """How far the bytes from `position` on are in here; `position` if not at all."""
        at = bisect_right(self._starts, position) - 1
        return max(self._stops[at], position) if at >= 0 else position

    def add(self, start: int, stop: int) -> None:
        """Take in the bytes in between."""
        starts, stops = self._starts, self._stops
        if len(starts) >= _RANGES_MAX:
            starts.clear()
            stops.clear()
        first = bisect_right(starts, start)
        if first and stops[first - 1] >= start:
            first -= 1
            start = starts[first]
        last = bisect_right(starts, stop)
        if last > first:
            stop = max(stop, stops[last - 1])
        starts[first:last] = [start]
        stops[first:last] = [stop]
