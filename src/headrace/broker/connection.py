"""One client's connection: receives frames, dispatches them, sends responses in request order.

All connections receive into one shared buffer. The rest of a partial frame moves into a private
buffer; a connection whose last frame was too large for the shared buffer gets a private one from
the start. Responses to the frames of one read are sent in one write, and the responses of one poll
are sent together at its end (`Poller.answers`); ranges of log files are sent with `sendfile`. A
connection is not read while its responses cannot be sent, while a fetch waits, while too many of
its requests wait, while there is no memory for the rest of its frame (`receive_memory.py`), or
while its client is over a quota.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol, TypeAlias

from headrace.apis.context import Caller
from headrace.apis.hot import Answer, CloseConnection, Later, LongProduce
from headrace.apis.records.waiting_fetches import WaitingFetch
from headrace.broker.buffers import SHARED_BYTES, Buffers
from headrace.broker.poller import CLOSED, HANGUP, READ, WRITE, Poller
from headrace.broker.setup.log_limit import LogLimit
from headrace.broker.transport import Transport, Waiting
from headrace.wire.fast import Chunk
from headrace.wire.framing import MIN_REQUEST_BYTES, SIZE_BYTES, frame_size

logger = logging.getLogger(__name__)
logger.addFilter(LogLimit())

_JOINED_BYTES = 64 * 1024
"""Collected responses of one read are sent when they reach this size."""

_TLS_HANDSHAKE = 0x1603
"""The first bytes of TLS: the type of a record and the first half of its version."""


HandleFrame: TypeAlias = Callable[["Connection", bytearray, memoryview, int, int], Answer | Later]
"""Takes a connection, a buffer with a view of it, and the start and end of a frame in it."""


class Handler(Protocol):
    """Handles the frames of connections: `broker.dispatch`."""

    @property
    def handle(self) -> HandleFrame: ...


class _Waiting:
    """The slot of an unfinished request in the queue of responses."""

    __slots__ = ("answer", "done")

    def __init__(self) -> None:
        self.answer: Answer = None
        self.done = False


class Limits:
    """Limits of one connection."""

    __slots__ = ("buffers", "frame_bytes", "least_bytes", "pipelined")

    def __init__(
        self,
        frame_bytes: int,
        pipelined: int,
        buffers: Buffers,
        least_bytes: int = MIN_REQUEST_BYTES,
    ) -> None:
        self.frame_bytes = frame_bytes
        self.pipelined = pipelined
        self.buffers = buffers
        self.least_bytes = least_bytes


class Connection:
    """A client's socket, served by the poller."""

    __slots__ = (
        "_buffers", "_events", "_exclusive", "_fd", "_fetch", "_filled", "_handle", "_large",
        "_limits", "_line", "_memory", "_muted", "_needed", "_on_close", "_out", "_pending",
        "_poller", "_private", "_receive_into", "_send_now", "_tasks", "_transport", "active",
        "caller", "closed",
    )  # fmt: skip

    def __init__(
        self,
        transport: Transport,
        caller: Caller,
        poller: Poller,
        handler: Handler,
        limits: Limits,
        on_close: Callable[["Connection"], None],
    ) -> None:
        self.caller = caller
        self.active = True
        self.closed = False
        self._on_close = on_close
        self._transport = transport
        self._fd = transport.fd
        self._receive_into = transport.receive_into
        self._send_now = transport.send
        self._pending = transport.pending
        self._poller = poller
        self._buffers = limits.buffers
        self._memory = limits.buffers.memory
        self._handle = handler.handle
        self._limits = limits
        self._private: bytearray | None = None
        self._filled = 0
        self._needed = 0
        self._large = 0
        self._out: Waiting = deque()
        self._line: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._fetch: WaitingFetch | None = None
        self._exclusive = False
        self._muted: asyncio.TimerHandle | None = None
        self._events = READ
        poller.add_hot(self._fd, self, READ)
        if self._pending is not None:
            self._read_again()

    @property
    def address(self) -> str:
        """The client's address and port."""
        return self.caller.address

    def serve_with(self, handler: Handler, limits: Limits) -> None:
        """Pass all following requests to another handler."""
        self._handle = handler.handle
        self._limits = limits
        if limits.buffers is not self._buffers:
            self._memory.release(self)
            self._buffers = limits.buffers
            self._memory = limits.buffers.memory
            if self._private is not None:
                self._memory.lend(self, len(self._private))

    def switch_handler(self, before: HandleFrame, after: HandleFrame) -> None:
        """Pass all following requests to `after`, if `before` is the current handler."""
        if self._handle == before:
            self._handle = after

    @property
    def waits(self) -> bool:
        """Whether the client waits for a response."""
        return bool(self._line)

    @property
    def filled_bytes(self) -> int:
        """How much of the current frame has arrived."""
        return self._filled

    # ----------------------------------------------------------------------------- reading

    def ready(self, events: int) -> None:
        """Handle epoll events; an error closes only this connection."""
        try:
            if events & WRITE:
                self._drain()
                if self._out or self.closed:
                    return
                self._resume()
                if not events & ~WRITE or self.closed:
                    return
            line = self._line
            if self._exclusive or self._out or (line and len(line) >= self._limits.pipelined):
                self._stop_reading(events)
                return
            buffers = self._buffers
            if self._private is not None:
                self._receive_more(self._private, events)
            elif self._large and (private := buffers.take_pooled(self._large)) is not None:
                self._private, self._filled, self._needed = private, 0, 0
                self._memory.lend(self, len(private))
                self._receive_more(private, events)
            else:
                count = self._receive_into(buffers.view)
                if count == 0:
                    self.close()
                    return
                self.active = True
                used = self._frames(buffers.shared, buffers.view, count)
                if used < count and not self.closed:
                    self._keep(buffers.view[used:count])
            if self._pending is not None:
                self._read_again()
        except BlockingIOError:
            return  # there was nothing to read
        except OSError as error:
            self._fail(error)

    def _stop_reading(self, events: int) -> None:
        """Stop reading from the socket, but detect that the client closes the connection.

        A request that is handled alone may take long; its response is not needed after a close.
        """
        if not self._exclusive:
            self._want(self._events & ~READ)
            return
        if self._transport.hung_up():
            self.close()
            return
        # With unread bytes before its end, the socket would report the end repeatedly.
        hangup = 0 if events & HANGUP else HANGUP
        self._want(self._events & ~(READ | HANGUP) | hangup)

    def _receive_more(self, private: bytearray, events: int) -> None:
        """Receive the rest of a partial frame, and nothing beyond it."""
        filled = self._filled
        if filled == len(private):
            if self._memory.is_waiting(self):
                if events & CLOSED:  # which the poller would report for ever
                    self.close()
                else:
                    self._want(self._events & ~READ)
                return
            larger = self._buffers.take(max(self._needed, filled + 1), filled)
            if not self._memory.grant(self, len(larger), self._needed):
                self._buffers.give_back(larger)
                self._want(self._events & ~READ)
                return
            larger[:filled] = private
            self._buffers.give_back(private)
            private = self._private = larger
        limit = min(self._needed, len(private)) if self._needed else len(private)
        try:
            count = self._receive_into(memoryview(private)[filled:limit])
        except BlockingIOError:
            if not filled:
                self._private = None
                self._buffers.give_back(private)
                self._memory.release(self)
            return
        if count == 0:
            self.close()
            return
        self.active = True
        self._filled = filled = filled + count
        if filled < SIZE_BYTES:
            return
        if not self._needed:
            self._needed = frame_size(private, 0)[0] + SIZE_BYTES
        # `_frames` refuses an invalid size.
        if not filled < self._needed <= self._limits.frame_bytes + SIZE_BYTES:
            self._process_private(private)

    def resume_receiving(self) -> None:
        """Continue reading after a wait for memory."""
        if not (self.closed or self._exclusive or self._out):
            self._want(READ)

    def _process_private(self, private: bytearray) -> None:
        view = memoryview(private)
        filled = self._filled
        used = self._frames(private, view, filled)
        if self.closed:
            return
        self._private = None
        self._large = self._needed if self._needed > SHARED_BYTES else 0
        if not self._exclusive:  # otherwise the request is still being handled
            self._memory.release(self)
        if used < filled:
            self._keep(view[used:filled])
        view.release()
        self._buffers.give_back(private)

    def _keep(self, rest: memoryview) -> None:
        """Copy the unprocessed rest of a read into a private buffer."""
        left = len(rest)
        needed = frame_size(rest, 0)[0] + SIZE_BYTES if left >= SIZE_BYTES else 0
        private = self._buffers.take(max(needed, left), left)
        self._memory.lend(self, len(private))
        private[:left] = rest
        self._private = private
        self._filled = left
        self._needed = needed

    def _frames(self, buf: bytearray, view: memoryview, filled: int) -> int:
        """Handle the whole frames in `buf[:filled]`; the position of the first unhandled byte."""
        pos = 0
        joined = b""
        handle, limits = self._handle, self._limits
        while filled - pos >= SIZE_BYTES:
            size = frame_size(buf, pos)[0]
            if not limits.least_bytes <= size <= limits.frame_bytes:
                self._refuse_frame(size)
                break
            end = pos + SIZE_BYTES + size
            if end > filled:
                break
            try:
                answer = handle(self, buf, view, pos + SIZE_BYTES, end)
            except CloseConnection as reason:
                logger.warning("closing %s: %s", self.address, reason)
                self.close()
                break
            pos = end
            if type(answer) is bytes:
                if self._line:
                    self._answer_later(answer)
                elif joined:
                    joined += answer
                else:
                    joined = answer
                if len(joined) < _JOINED_BYTES:
                    continue
            elif answer is None:
                continue
            if joined:
                self._send(joined)
                joined = b""
            if isinstance(answer, list):
                if self._line:
                    self._answer_later(answer)
                elif pos == filled:
                    self._poller.answers.append((self, answer))
                    break
                else:
                    self._send_chunks(answer)
            elif not isinstance(answer, bytes):
                self._start(answer)
            if (
                self.closed
                or self._exclusive
                or self._out
                or len(self._line) >= self._limits.pipelined
            ):
                break
        if joined and not self.closed:
            self._poller.answers.append((self, joined))
        return pos

    def _refuse_frame(self, size: int) -> None:
        if size >> 16 == _TLS_HANDSHAKE and self._pending is None:
            logger.warning(
                "closing %s: it uses TLS, but the listener %s does not; correct "
                "security.protocol or the port in the client's configuration",
                self.address, self.caller.listener,
            )  # fmt: skip
            self.close()
            return
        logger.warning(
            "closing %s: a frame of %d bytes; expected %d to %d (socket.request.max.bytes)",
            self.address, size, self._limits.least_bytes, self._limits.frame_bytes,
        )  # fmt: skip
        self.close()

    # ------------------------------------------------------------------- answers that wait

    def hold(self) -> None:
        """Read nothing more from this client until the current request is answered."""
        self._exclusive = True

    @property
    def muted(self) -> bool:
        """Whether the client is not read because it is over a quota."""
        return self._muted is not None

    def mute(self, seconds: float) -> None:
        """Read nothing from this client for some time; responses are still sent."""
        if self.closed:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self._muted is not None:
            if self._muted.when() >= until:
                return
            self._muted.cancel()
        self.hold()
        self._muted = loop.call_at(until, self._unmute)
        self._poller.has_work = True

    def _unmute(self) -> None:
        self._muted = None
        try:
            self._read_on()
        except OSError as error:
            self._fail(error)

    def _start(self, work: Later) -> None:
        place = _Waiting()
        self._line.append(place)
        if isinstance(work, WaitingFetch):
            self.hold()
            self._fetch = work
            if work.start(partial(self._fetched, place)):
                self._poller.has_work = True
            return
        if isinstance(work, LongProduce):
            self.hold()  # preserves the order of a producer's batches
        task = asyncio.get_running_loop().create_task(self._finish(work, place))
        self._poller.has_work = True
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer_later(self, answer: Answer) -> None:
        place = _Waiting()
        place.answer = answer
        place.done = True
        self._line.append(place)

    async def _finish(
        self, work: Coroutine[None, None, Answer] | LongProduce, place: _Waiting
    ) -> None:
        try:
            place.answer = await work
        except CloseConnection as reason:
            logger.warning("closing %s: %s", self.address, reason)
            self.close()
            return
        except Exception:
            logger.exception("unexpected error in a request from %s", self.address)
            self.close()
            return
        self._answer(place)

    def _fetched(self, place: _Waiting, answer: list[Chunk] | None) -> None:
        self._fetch = None
        if answer is None:
            self.close()
            return
        place.answer = answer
        self._answer(place)

    def _answer(self, place: _Waiting) -> None:
        """Send the complete responses at the head of the queue, after `place` was filled."""
        place.done = True
        try:
            while self._line and self._line[0].done and not self.closed:
                answer = self._line.popleft().answer
                if isinstance(answer, list):
                    self._send_chunks(answer)
                elif answer is not None:
                    self._send(answer)
            self._read_on()
        except OSError as error:
            self._fail(error)

    def _read_on(self) -> None:
        """Read again, unless there is another reason not to."""
        if self._exclusive and not self._line and self._muted is None:
            self._exclusive = False
            if self._private is None:
                self._memory.release(self)
        if not self.closed and not self._out:
            self._resume()

    def _resume(self) -> None:
        """Handle the frames in the private buffer, and read again."""
        private = self._private
        whole = self._filled >= (self._needed or SIZE_BYTES)
        if private is not None and whole and not self._exclusive:
            self._process_private(private)
        if not (self.closed or self._exclusive or self._out):
            self._want(READ)

    # ----------------------------------------------------------------------------- writing

    def send(self, answer: bytes | list[Chunk]) -> None:
        """Send a response from the poller's `answers`; a broken connection is closed."""
        if self.closed:
            return
        try:
            if isinstance(answer, bytes):
                self._send(answer)
            else:
                self._send_chunks(answer)
        except OSError as error:
            self._fail(error)

    def _send(self, answer: bytes) -> None:
        if self._out:
            self._out.append(answer)
            return
        try:
            sent = self._send_now(answer)
        except BlockingIOError:
            sent = 0
        if sent < len(answer):
            self._out.append(memoryview(answer)[sent:])
            self._want(self._events | WRITE)

    def _send_chunks(self, chunks: list[Chunk]) -> None:
        if len(chunks) == 1 and type(chunks[0]) is bytes:
            self._send(chunks[0])
            return
        out = self._out
        blocked = bool(out)
        out.extend(chunks)
        if not blocked and not self._transport.drain(out):
            self._want(self._events | WRITE)

    def _drain(self) -> None:
        """Send the queued responses in order until the socket accepts no more."""
        if not self._transport.drain(self._out):
            self._want(self._events | WRITE)
        elif self._events & WRITE:
            self._want(self._events & ~WRITE)

    def _want(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._poller.change_hot(self._fd, events)
            if self._pending is not None:
                self._read_again()

    def _read_again(self) -> None:
        """Schedule a read of bytes that the transport has buffered and epoll does not report."""
        assert self._pending is not None
        if not self.closed and self._events & READ and self._pending():
            asyncio.get_running_loop().call_soon(self._ready_again)
            self._poller.has_work = True

    def _ready_again(self) -> None:
        if not self.closed and self._events & READ:
            self.ready(READ)

    def _fail(self, error: OSError) -> None:
        """Close after an error of the socket, or of the disk from which the response is read."""
        if error.errno == errno.EIO:
            logger.error("cannot read the records for %s from the disk: %s", self.address, error)
        self.close()

    def close(self) -> None:
        """Close the connection and cancel its requests; may be called twice."""
        if self.closed:
            return
        self.closed = True
        self._poller.remove_hot(self._fd)
        self._transport.close()
        self._out.clear()
        self._line.clear()
        for task in self._tasks:
            task.cancel()
        if self._fetch is not None:
            self._fetch.cancel()
        if self._muted is not None:
            self._muted.cancel()
        self._private = None
        self._memory.release(self)
        self._on_close(self)
