"""Reports which sockets are ready: epoll, or Python's selectors where there is none.

Without epoll nobody tells that a client has closed its connection while it is not read; that is
found out when it is read again.
"""

import select
import selectors
from typing import Protocol

from headrace.portable import LINUX

# The numbers of epoll.
READ = 0x1
WRITE = 0x4
HANGUP = 0x2000
CLOSED = 0x18
"""Both directions are closed: epoll reports it whether or not it was asked for."""


class Readiness(Protocol):
    """The part of `select.epoll` that the poller uses."""

    def register(self, fd: int, events: int) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        """Descriptors with their events; waits for ever if the timeout is negative."""

    def close(self) -> None: ...


def new_readiness() -> Readiness:
    """The fastest that the system has."""
    return select.epoll() if LINUX else SelectorReadiness()


class SelectorReadiness:
    """The same with kqueue, or with poll."""

    def __init__(self) -> None:
        kind = getattr(selectors, "KqueueSelector", selectors.PollSelector)
        self._selector: selectors.BaseSelector = kind()

    def register(self, fd: int, events: int) -> None:
        wanted = _wanted(events)
        if wanted:  # a selector refuses descriptors of which it shall report nothing
            self._selector.register(fd, wanted)

    def modify(self, fd: int, events: int) -> None:
        wanted = _wanted(events)
        if fd not in self._selector.get_map():
            self.register(fd, events)
        elif wanted:
            self._selector.modify(fd, wanted)
        else:
            self._selector.unregister(fd)

    def unregister(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def poll(self, timeout: float, most: int) -> list[tuple[int, int]]:
        found = self._selector.select(None if timeout < 0 else timeout)
        return [(key.fd, _events(mask)) for key, mask in found]

    def close(self) -> None:
        self._selector.close()


def _wanted(events: int) -> int:
    return (selectors.EVENT_READ if events & READ else 0) | (
        selectors.EVENT_WRITE if events & WRITE else 0
    )


def _events(mask: int) -> int:
    return (READ if mask & selectors.EVENT_READ else 0) | (
        WRITE if mask & selectors.EVENT_WRITE else 0
    )
