"""One poll for all sockets: hot sockets are served inside `select`, the others by asyncio.

For each ready descriptor asyncio creates a handle and runs a callback. At 100,000 requests per
second that costs as much as the requests, so client connections are served where epoll reports
them (`readiness.py`); timers, tasks, signals and worker threads stay with asyncio.

Responses are flushed once per poll so that a client is woken once: waking a client is the largest
part of the cost of sending.
"""

import math
import selectors
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Protocol, TypeAlias, cast

from headrace.broker.readiness import READ, WRITE, new_readiness
from headrace.wire.fast import Chunk


class HasDescriptor(Protocol):
    """A socket or a file."""

    def fileno(self) -> int: ...


FileObject: TypeAlias = int | HasDescriptor

_ROUNDS = 16
"""How often hot sockets are served before timers and tasks run."""
_TOGETHER = 64
"""How many responses are sent together; with more, clients would be idle for too long."""
_ASYNCIO_READ = ~WRITE
_ASYNCIO_WRITE = ~READ


class Hot(Protocol):
    """A socket that is served as soon as it is ready; neither method may raise."""

    def ready(self, events: int) -> None: ...

    def send(self, answer: bytes | list[Chunk]) -> None: ...


class Poller(selectors.BaseSelector):
    """A selector for asyncio that serves hot sockets itself."""

    def __init__(self, after_events: Callable[[], bool]) -> None:
        """`after_events` wakes waiting requests and returns whether there were any."""
        self._readiness = new_readiness()
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._hot: dict[int, Hot] = {}
        self._after_events = after_events
        self.answers: list[tuple[Hot, bytes | list[Chunk]]] = []
        """Responses of hot sockets, to be sent at the end of the poll."""
        self.has_work = False
        """Set when a hot socket's handler schedules work in asyncio."""
        self.polled_at = 0.0
        """When several sockets were found to be ready, by `perf_counter`; 0 if it was only one."""

    # ------------------------------------------------------------------------- hot sockets

    def add_hot(self, fd: int, hot: Hot, events: int) -> None:
        """Serve `hot` when its descriptor is ready."""
        self._hot[fd] = hot
        self._readiness.register(fd, events)

    def change_hot(self, fd: int, events: int) -> None:
        """Wait for other events on a hot descriptor."""
        self._readiness.modify(fd, events)

    def remove_hot(self, fd: int) -> None:
        """Remove a hot descriptor; call it before closing."""
        del self._hot[fd]
        self._readiness.unregister(fd)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Serve hot sockets and return the events for asyncio."""
        if self._settle() or self.has_work:
            # Tasks that ran since the last poll may have changed what fetches wait for.
            timeout = 0
        elif timeout is None:
            timeout = -1
        elif timeout > 0:
            timeout = math.ceil(timeout * 1000) / 1000
        ready: list[tuple[selectors.SelectorKey, int]] = []
        for _ in range(_ROUNDS):
            polled = self._readiness.poll(timeout, len(self._hot) + len(self._keys) + 1)
            # With one, nothing waits behind others. A look at the clock is dear for one request.
            self.polled_at = perf_counter() if len(polled) > 1 else 0.0
            self._serve(polled, ready)
            self._settle()
            if ready or self.has_work or not polled:
                break
            # While clients send requests and nothing else is due, asyncio is not needed.
            timeout = 0
        self.has_work = False
        return ready

    def _settle(self) -> bool:
        """Wake waiting requests, and send their responses."""
        woken = self._after_events()
        if self.answers:
            self._send_answers()
        return woken

    def _serve(
        self, polled: list[tuple[int, int]], ready: list[tuple[selectors.SelectorKey, int]]
    ) -> None:
        """Serve the hot sockets among `polled` and put the others into `ready`."""
        hot = self._hot
        answers = self.answers
        for fd, events in polled:
            connection = hot.get(fd)
            if connection is not None:
                connection.ready(events)
                if len(answers) >= _TOGETHER:
                    self._send_answers()
                continue
            key = self._keys.get(fd)
            if key is not None:
                mask = 0
                if events & _ASYNCIO_READ:
                    mask |= selectors.EVENT_READ
                if events & _ASYNCIO_WRITE:
                    mask |= selectors.EVENT_WRITE
                ready.append((key, mask & key.events))
        self._send_answers()

    def _send_answers(self) -> None:
        for hot, answer in self.answers:
            hot.send(answer)
        self.answers.clear()

    # ----------------------------------------------------------------- what asyncio expects

    def register(
        self, fileobj: FileObject, events: int, data: object = None
    ) -> selectors.SelectorKey:
        fd = _descriptor(fileobj)
        if fd in self._keys:
            raise KeyError(f"descriptor {fd} is already registered")
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        self._readiness.register(fd, _mask(events))
        return key

    def unregister(self, fileobj: FileObject) -> selectors.SelectorKey:
        key = self._keys.pop(_descriptor(fileobj))
        self._readiness.unregister(key.fd)
        return key

    def modify(
        self, fileobj: FileObject, events: int, data: object = None
    ) -> selectors.SelectorKey:
        fd = _descriptor(fileobj)
        key = self._keys[fd]
        if key.events != events:
            self._readiness.modify(fd, _mask(events))
        key = self._keys[fd] = key._replace(events=events, data=data)
        return key

    def get_map(self) -> Mapping[FileObject, selectors.SelectorKey]:
        return cast("Mapping[FileObject, selectors.SelectorKey]", self._keys)

    def close(self) -> None:
        self._keys.clear()
        self._hot.clear()
        self._readiness.close()


def _descriptor(fileobj: FileObject) -> int:
    return fileobj if isinstance(fileobj, int) else fileobj.fileno()


def _mask(events: int) -> int:
    mask = 0
    if events & selectors.EVENT_READ:
        mask |= READ
    if events & selectors.EVENT_WRITE:
        mask |= WRITE
    return mask
