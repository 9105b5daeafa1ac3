"""What was worked out once and may be asked again, up to a number of characters.

Only for what follows from its key alone: nothing here is ever out of date, it is only dropped.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """The latest answers that were used; the one unused for longest goes first."""

    def __init__(self, characters: int, largest: int) -> None:
        self._most = characters
        # A single one may not take the room of all the others.
        self._largest = largest
        self._found: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._characters = 0
        # The thread that writes, those that compare and the event loop share it.
        self._lock = threading.Lock()

    @property
    def characters(self) -> int:
        """Of all that is kept now."""
        return self._characters

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, characters: int) -> None:
        """Keeps it unless it is too large. `characters` are those of the key and the value."""
        if characters > self._largest:
            return
        with self._lock:
            if key in self._found:
                return
            self._found[key] = (value, characters)
            self._characters += characters
            while self._characters > self._most:
                _, (_, dropped) = self._found.popitem(last=False)
                self._characters -= dropped
