"""Deadlines that are moved often and reached rarely: a member's session, with each heartbeat.

Moving one changes a dictionary entry only. The heap keeps the old time, and gets the new one when
the old one is reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


class Timers(Generic[_Key]):
    """Deadlines by key, in milliseconds of a steady clock."""

    __slots__ = ("_at", "_heap", "_queued", "_serial")

    def __init__(self) -> None:
        self._at: dict[_Key, int] = {}
        self._queued: dict[_Key, int] = {}
        """The time of each key in the heap."""
        self._heap: list[tuple[int, int, _Key]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: _Key, at_ms: int | None) -> bool:
        """Set, move or cancel (None) a deadline; returns whether it is the next one."""
        if at_ms is None:
            self._at.pop(key, None)
            return False
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is not None and queued <= at_ms:
            return False
        self._push(key, at_ms)
        return self._heap[0][0] == at_ms

    def _push(self, key: _Key, at_ms: int) -> None:
        self._queued[key] = at_ms
        self._serial += 1  # keys need not be comparable
        heapq.heappush(self._heap, (at_ms, self._serial, key))

    def next_ms(self) -> int | None:
        """The time of the next deadline, or earlier."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[_Key]:
        """The keys whose deadline has come; they are no longer set."""
        found: list[_Key] = []
        while self._heap and self._heap[0][0] <= now_ms:
            queued, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued:
                continue  # an earlier time was pushed later
            del self._queued[key]
            at_ms = self._at.get(key)
            if at_ms is None:
                continue
            if at_ms > now_ms:
                self._push(key, at_ms)
            else:
                del self._at[key]
                found.append(key)
        return found

    def cancel_where(self, unwanted: Callable[[_Key], bool]) -> None:
        """Cancel all deadlines whose key satisfies a condition."""
        for key in [key for key in self._at if unwanted(key)]:
            del self._at[key]
