"""Ranges of a file, such as those whose checksums were checked."""

from bisect import bisect_right

_RANGES_MAX = 1000
"""Random reads leave many ranges; above this number all are dropped."""


class Ranges:
    """Ranges of a file's bytes, as few and as large as possible."""

    __slots__ = ("_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []

    def reach(self, position: int) -> int:
        """The end of the range that contains `position`; `position` if there is none."""
        at = bisect_right(self._starts, position) - 1
        return max(self._stops[at], position) if at >= 0 else position

    def add(self, start: int, stop: int) -> None:
        """Add the bytes from `start` to before `stop`."""
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
