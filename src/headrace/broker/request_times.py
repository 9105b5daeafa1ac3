"""How long requests of one API take, and which of them are timed.

The time runs from the poll that found the request until its response is ready to be sent: the wait
behind other requests of the same poll, the handler, and what the handler waits for, such as
replicas or a group's members. The time for which a Fetch waits for records is not part of it.

Timing costs about a microsecond. While an API gets few requests, all are timed; while it gets many,
one of 64 on average is. The distances differ, so that a client with a regular pattern is not
always timed at the same request.
"""

from itertools import cycle

from headrace.prometheus import Histogram

_FEW_PER_S = 2_000
"""An API that gets no more requests than this in a second has all of them timed."""
_DISTANCES = (64, 43, 79, 53, 89, 31, 71, 82)


class RequestTimes:
    """The times of one API."""

    __slots__ = ("_distances", "_requests", "_timed_at", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram()
        self._distances = cycle(_DISTANCES)
        self._requests = 0
        self._timed_at = 0.0

    def pause(self, requests: int, now: float) -> int:
        """A request is timed, the one of this number: how many later is the next one."""
        few = requests - self._requests <= (now - self._timed_at) * _FEW_PER_S
        self._requests, self._timed_at = requests, now
        return 1 if few else next(self._distances)
