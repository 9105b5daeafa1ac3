"""One client's connection: receives frames, dispatches them, sends responses in request order.

All connections receive into one shared buffer. The rest of a partial frame moves into a private
buffer (`partial_frame.py`). Responses to the frames of one read are sent in one write, and the
responses of one poll are sent together at its end (`Poller.answers`); ranges of log files are sent
with `sendfile`. Requests that are not answered at once wait in `responses.py`. A connection is not
read while its responses cannot be sent, while a fetch waits, while too many of its requests wait,
while there is no memory for the rest of its frame (`receive_memory.py`), or while its client is
over a quota.
"""

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from headrace.apis.context import Caller
from headrace.apis.hot import Answer, CloseConnection, Later
from headrace.broker.buffers import Buffers
from headrace.broker.partial_frame import PartialFrame
from headrace.broker.poller import Poller
from headrace.broker.readiness import CLOSED, HANGUP, READ, WRITE
from headrace.broker.responses import Responses
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


HandleFrame: TypeAlias = Callable[
    ["ClientConnection", bytearray, memoryview, int, int], Answer | Later
]
"""Takes a connection, a buffer with a view of it, and the start and end of a frame in it."""


class Handler(Protocol):
    """Handles the frames of connections: `broker.dispatch`."""

    @property
    def handle(self) -> HandleFrame: ...


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


class ClientConnection:
    """A client's socket, served by the poller."""

    __slots__ = (
        "_buffers", "_events", "_exclusive", "_fd", "_handle", "_limits", "_on_close", "_out",
        "_partial", "_pending", "_poller", "_queue", "_receive_into", "_responses", "_send_now",
        "_transport", "active", "caller", "closed", "muted",
    )  # fmt: skip

    def __init__(
        self,
        transport: Transport,
        caller: Caller,
        poller: Poller,
        handler: Handler,
        limits: Limits,
        on_close: Callable[["ClientConnection"], None],
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
        self._handle = handler.handle
        self._limits = limits
        self._partial = PartialFrame(self, limits.buffers)
        self._out: Waiting = deque()
        self._responses = Responses(self, poller)
        self._queue = self._responses.queue
        self._exclusive = False
        self.muted: asyncio.TimerHandle | None = None
        """Set while the client is not read because it is over a quota."""
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
        if limits.buffers is not self._buffers and not self.closed:
            self._buffers = limits.buffers
            self._partial.move_to(limits.buffers)

    def switch_handler(self, before: HandleFrame, after: HandleFrame) -> None:
        """Pass all following requests to `after`, if `before` is the current handler."""
        if self._handle == before:
            self._handle = after

    @property
    def waits(self) -> bool:
        """Whether the client waits for a response."""
        return bool(self._queue)

    @property
    def filled_bytes(self) -> int:
        """How much of the current frame has arrived."""
        return self._partial.filled

    # ----------------------------------------------------------------------------- reading

    def ready(self, events: int) -> None:
        """Handle epoll events; an error closes only this connection."""
        try:
            if events & WRITE:
                if not self._transport.drain(self._out):
                    return
                self._want(self._events & ~WRITE)
                self._resume()
                if not events & ~WRITE or self.closed:
                    return
            queue, partial = self._queue, self._partial
            if self._exclusive or self._out or (queue and len(queue) >= self._limits.pipelined):
                self._stop_reading(events)
                return
            if partial.buffer is not None or (partial.large and partial.begin_large()):
                self._receive_more(partial, events)
            else:
                buffers = self._buffers
                count = self._receive_into(buffers.view)
                if count == 0:
                    self.close()
                    return
                self.active = True
                used = self._frames(buffers.shared, buffers.view, count)
                if used < count and not self.closed:
                    partial.keep(buffers.view[used:count])
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

    def _receive_more(self, partial: PartialFrame, events: int) -> None:
        """Receive the rest of a partial frame, and nothing beyond it."""
        room = partial.room()
        if room is None:
            if events & CLOSED:  # which the poller would report for ever
                self.close()
            else:
                self._want(self._events & ~READ)
            return
        try:
            count = self._receive_into(room)
        except BlockingIOError:
            partial.drop_empty()
            return
        if count == 0:
            self.close()
            return
        self.active = True
        # `_frames` refuses an invalid size.
        if partial.received(count, self._limits.frame_bytes):
            self._process_partial(partial)

    def resume_receiving(self) -> None:
        """Continue reading after a wait for memory."""
        if not (self.closed or self._exclusive or self._out):
            self._want(READ)

    def _process_partial(self, partial: PartialFrame) -> None:
        """Handle the frames in the private buffer."""
        buffer, filled = partial.buffer, partial.filled
        assert buffer is not None, "a whole frame is in a buffer"
        view = memoryview(buffer)
        used = self._frames(buffer, view, filled)
        if self.closed:
            return
        partial.end()
        if not self._exclusive:  # otherwise the request is still being handled
            partial.release()
        if used < filled:
            partial.keep(view[used:filled])
        view.release()
        self._buffers.give_back(buffer)

    def _frames(self, buf: bytearray, view: memoryview, filled: int) -> int:
        """Handle the whole frames in `buf[:filled]`; the position of the first unhandled byte."""
        pos = 0
        joined = b""
        handle, limits, responses = self._handle, self._limits, self._responses
        while filled - pos >= SIZE_BYTES:
            size = frame_size(buf, pos)[0]
            if not limits.least_bytes <= size <= limits.frame_bytes:
                plain = self.caller.listener if self._pending is None else None
                logger.warning("closing %s: %s", self.address, _refusal(size, limits, plain))
                self.close()
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
                if self._queue:
                    responses.add(answer)
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
                if self._queue:
                    responses.add(answer)
                elif pos == filled:
                    self._poller.answers.append((self, answer))
                    break
                else:
                    self._send_chunks(answer)
            elif not isinstance(answer, bytes):
                responses.start(answer)
            if (
                self.closed
                or self._exclusive
                or self._out
                or len(self._queue) >= self._limits.pipelined
            ):
                break
        if joined and not self.closed:
            self._poller.answers.append((self, joined))
        return pos

    # -------------------------------------------------------------------- pauses of reading

    def hold(self) -> None:
        """Read nothing more from this client until the current request is answered."""
        self._exclusive = True

    def mute(self, seconds: float) -> None:
        """Read nothing from this client for some time; responses are still sent."""
        if self.closed:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        if self.muted is not None:
            if self.muted.when() >= until:
                return
            self.muted.cancel()
        self.hold()
        self.muted = loop.call_at(until, self._unmute)
        self._poller.has_work = True

    def _unmute(self) -> None:
        self.muted = None
        self.read_on()

    def read_on(self) -> None:
        """Read again, unless there is another reason not to."""
        if self.closed:
            return
        if self._exclusive and not self._queue and self.muted is None:
            self._exclusive = False
            if self._partial.buffer is None:
                self._partial.release()
        if self._out:
            return
        try:
            self._resume()
        except OSError as error:
            self._fail(error)

    def _resume(self) -> None:
        """Handle the frames in the private buffer, and read again."""
        if self._partial.is_whole and not self._exclusive:
            self._process_partial(self._partial)
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
        self._responses.cancel()
        if self.muted is not None:
            self.muted.cancel()
        self._partial.release()
        # They refer to the connection: without this, only the garbage collector would free it.
        del self._partial, self._responses
        self._on_close(self)
        if self.caller.on_close is not None:
            self.caller.on_close(self.caller)


def _refusal(size: int, limits: Limits, plain_listener: str | None) -> str:
    """Why a frame of this size is refused."""
    if plain_listener is not None and size >> 16 == _TLS_HANDSHAKE:
        return (
            f"it uses TLS, but the listener {plain_listener} does not; correct security.protocol "
            "or the port in the client's configuration"
        )
    return (
        f"a frame of {size} bytes; expected {limits.least_bytes} to {limits.frame_bytes} "
        "(socket.request.max.bytes)"
    )
