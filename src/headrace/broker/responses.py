"""The responses that a client waits for, in the order of its requests."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Protocol

from headrace.apis.hot import Answer, CloseConnection, Later, LongProduce
from headrace.apis.records.waiting_fetches import WaitingFetch
from headrace.broker.poller import Poller
from headrace.broker.setup.log_limit import LogLimit
from headrace.wire.fast import Chunk

logger = logging.getLogger(__name__)
logger.addFilter(LogLimit())


class Recipient(Protocol):
    """The connection of the client; no method raises an error of the socket."""

    closed: bool

    @property
    def address(self) -> str: ...

    def hold(self) -> None:
        """Read nothing more until all responses are sent."""

    def send(self, answer: bytes | list[Chunk]) -> None: ...

    def read_on(self) -> None:
        """Read again, unless there is another reason not to."""

    def close(self) -> None: ...


class _Place:
    """The place of a request in the queue."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.answer: Answer = None
        self.done = False


class Responses:
    """Runs the requests of one connection that are not answered at once."""

    __slots__ = ("_fetch", "_poller", "_recipient", "_tasks", "queue")

    def __init__(self, recipient: Recipient, poller: Poller) -> None:
        self._recipient = recipient
        self._poller = poller
        self.queue: deque[_Place] = deque()
        """Not empty while the client waits for a response."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetch: WaitingFetch | None = None

    def add(self, answer: bytes | list[Chunk]) -> None:
        """Send a response after those of earlier requests."""
        place = _Place()
        place.answer = answer
        place.done = True
        self.queue.append(place)

    def start(self, work: Later) -> None:
        """Run a request, and send its response after those of earlier requests."""
        place = _Place()
        self.queue.append(place)
        if isinstance(work, WaitingFetch):
            self._recipient.hold()
            self._fetch = work
            if work.start(partial(self._fetched, place)):
                self._poller.has_work = True
            return
        if isinstance(work, LongProduce):
            self._recipient.hold()  # preserves the order of a producer's batches
        task = asyncio.get_running_loop().create_task(self._finish(work, place))
        self._poller.has_work = True
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Drop all responses and end their requests."""
        self.queue.clear()
        for task in self._tasks:
            task.cancel()
        if self._fetch is not None:
            self._fetch.cancel()

    async def _finish(
        self, work: Coroutine[None, None, Answer] | LongProduce, place: _Place
    ) -> None:
        recipient = self._recipient
        try:
            place.answer = await work
        except CloseConnection as reason:
            logger.warning("closing %s: %s", recipient.address, reason)
            recipient.close()
            return
        except Exception:
            logger.exception("unexpected error in a request from %s", recipient.address)
            recipient.close()
            return
        self._send_from(place)

    def _fetched(self, place: _Place, answer: list[Chunk] | None) -> None:
        self._fetch = None
        if answer is None:
            self._recipient.close()
            return
        place.answer = answer
        self._send_from(place)

    def _send_from(self, place: _Place) -> None:
        """Send the complete responses at the head of the queue, after `place` was filled."""
        place.done = True
        queue, recipient = self.queue, self._recipient
        while queue and queue[0].done and not recipient.closed:
            answer = queue.popleft().answer
            if answer is not None:
                recipient.send(answer)
        recipient.read_on()
