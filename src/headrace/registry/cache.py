"""A least-recently-used cache with a limit on the total number of characters.

Use it only for values that are a pure function of their key: entries are never invalidated.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Evicts the least recently used entries. Thread-safe."""

    def __init__(self, characters: int, largest: int) -> None:
        self._limit = characters
        # A single entry must not evict all the others.
        self._largest = largest
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._characters = 0
        # The writer thread and the event loop share a cache.
        self._lock = threading.Lock()

    @property
    def characters(self) -> int:
        """The size of all entries."""
        return self._characters

    def get(self, key: K) -> V | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, characters: int) -> None:
        """Stores the value unless it is too large. `characters` is the size of key and value."""
        if characters > self._largest:
            return
        with self._lock:
            if key in self._entries:
                return
            self._entries[key] = (value, characters)
            self._characters += characters
            while self._characters > self._limit:
                _, (_, evicted) = self._entries.popitem(last=False)
                self._characters -= evicted
