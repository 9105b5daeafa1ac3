"""The state of a ZooKeeper session, as the listeners of a store learn of it.

kazoo reports a connection before the store has read what changed in the meantime. Listeners
are told that the session is connected only after that, unless the connection was lost again.
"""

import logging
import threading
from collections.abc import Callable

from headrace.cluster.store import StoreSession, tell_all

logger = logging.getLogger(__name__)


class ZookeeperSession:
    """Whether the session is connected; used from several threads."""

    def __init__(self) -> None:
        self._state = StoreSession.SUSPENDED
        self._expired = False
        self._listeners: list[Callable[[StoreSession], None]] = []
        # Held while listeners are called, so that they learn of changes in order.
        self._telling = threading.RLock()
        self.losses = 0
        """How many times the connection was lost."""

    @property
    def is_suspended(self) -> bool:
        """Whether there is no connection, or the store has not caught up yet."""
        return self._state is StoreSession.SUSPENDED

    def listen(self, listener: Callable[[StoreSession], None]) -> None:
        """Have `listener` called with the state now and when it changes."""
        with self._telling:
            self._listeners.append(listener)
            listener(self._state)

    def suspend(self, *, expired: bool = False) -> None:
        """The connection was lost, or a request failed."""
        with self._telling:
            self.losses += 1
            self._expired |= expired
            if self._state is not StoreSession.SUSPENDED:
                logger.warning("ZooKeeper is not reachable")
                self._state = StoreSession.SUSPENDED
                tell_all(self._listeners, StoreSession.SUSPENDED)

    def begin(self, losses: int) -> None:
        """The store has read everything for the first time, after so many losses."""
        with self._telling:
            if losses == self.losses:
                self._state = StoreSession.CONNECTED
                self._expired = False  # no earlier session had registered nodes

    def resume(self, losses: int) -> None:
        """The store has caught up; it began to after so many losses."""
        with self._telling:
            if self._state is StoreSession.SUSPENDED and losses == self.losses:
                news = StoreSession.EXPIRED if self._expired else StoreSession.CONNECTED
                logger.warning("ZooKeeper is reachable again; the session: %s", news.value)
                self._expired = False
                self._state = StoreSession.CONNECTED
                tell_all(self._listeners, news)
