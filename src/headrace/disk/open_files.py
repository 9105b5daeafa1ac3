"""Limits the number of open log files, independent of the number of partitions.

A holder registers the files that it keeps open. Above the limit, the least recently used holder is
asked to close its files. Use is not reported with every call, which would cost more than it saves:
a holder that was used since the last check gets a second chance.
"""

import threading
from typing import Protocol

DEFAULT_FILES = 1000


class Holder(Protocol):
    """Who keeps files open and can open them again."""

    def used_lately(self) -> bool:
        """Whether the files were used since the last such question."""

    def release(self) -> None:
        """Close the files, or let them close with their last reader."""


class OpenFiles:
    """All files that are kept open, by who holds them, oldest first.

    Files are closed only in the thread that made this object, the owner of all logs: another one
    could close a descriptor between two instructions of its holder.
    """

    __slots__ = ("_held", "_lock", "_owner", "count", "limit")

    def __init__(self, limit: int = DEFAULT_FILES) -> None:
        self.limit = limit
        self.count = 0
        self._held: dict[Holder, int] = {}
        self._lock = threading.RLock()
        self._owner = threading.get_ident()

    def add(self, holder: Holder) -> None:
        """The holder has opened one more file."""
        with self._lock:
            self._held[holder] = self._held.pop(holder, 0) + 1
            self.count += 1
            if self.count > self.limit and threading.get_ident() == self._owner:
                self._make_room(holder)

    def forget(self, holder: Holder) -> None:
        """The holder has closed all its files."""
        with self._lock:
            self.count -= self._held.pop(holder, 0)

    def _make_room(self, newest: Holder) -> None:
        for _ in range(2 * len(self._held)):
            oldest = next(iter(self._held))
            if oldest is newest or oldest.used_lately():
                self._held[oldest] = self._held.pop(oldest)
            else:
                self.forget(oldest)
                oldest.release()
                if self.count <= self.limit:
                    return
