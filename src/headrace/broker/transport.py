"""Transports of connections: receive and send bytes and file ranges.

`PlainTransport` uses the socket directly. `tls_transport.py` has the implementation for TLS. A
transport never waits: if it can do nothing at present, it raises BlockingIOError.
"""

import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from headrace.log.slices import Slice
from headrace.portable import LINUX
from headrace.wire.fast import Chunk

logger = logging.getLogger(__name__)

_MORE = getattr(socket, "MSG_MORE", 0) if LINUX else 0
"""Tells the kernel that more bytes follow at once."""

Waiting: TypeAlias = deque[Chunk | memoryview]
"""The data that a connection has yet to send, in order."""


class Transport(Protocol):
    """The interface between a connection and its socket.

    `receive_into` and `send` are attributes, so that a plain socket's own methods can be used
    without an additional call.
    """

    fd: int

    @property
    def receive_into(self) -> Callable[[memoryview], int]:
        """Receives into a buffer; the number of bytes, 0 at the end of the stream."""

    @property
    def send(self) -> Callable[[bytes], int]:
        """Sends some of the bytes; the number of bytes sent."""

    pending: Callable[[], int] | None
    """The number of received bytes that the poller does not report; None if always 0."""

    def drain(self, out: Waiting) -> bool:
        """Send the data and remove it from `out`; False if the socket accepts no more now."""

    def hung_up(self) -> bool:
        """Whether the client has closed the connection and nothing is left to be received."""

    def close(self) -> None: ...


class PlainTransport:
    """A socket without encryption; files leave by sendfile."""

    __slots__ = ("_sock", "fd", "pending", "receive_into", "send")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.fd = sock.fileno()
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.send: Callable[[bytes], int] = sock.send
        self.pending: Callable[[], int] | None = None

    def drain(self, out: Waiting) -> bool:
        try:
            while out:
                chunk = out[0]
                if isinstance(chunk, Slice):
                    file = chunk.file
                    sent = file.sendfile(self.fd, file.fd, chunk.position, chunk.length)
                    if sent == 0:
                        raise file_too_short(chunk)
                    if sent < chunk.length:
                        out[0] = Slice(chunk.file, chunk.position + sent, chunk.length - sent)
                        continue
                else:
                    more = _MORE if len(out) > 1 else 0
                    sent = self._sock.send(chunk, more)  # type: ignore[arg-type]
                    if sent < len(chunk):  # type: ignore[arg-type]
                        out[0] = memoryview(chunk)[sent:]  # type: ignore[arg-type]
                        continue
                out.popleft()
        except BlockingIOError:
            return False
        return True

    def hung_up(self) -> bool:
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False

    def close(self) -> None:
        self._sock.close()


def file_too_short(chunk: Slice) -> OSError:
    """The error for a log file that is too short, so that the frame cannot be completed."""
    logger.error("%s is shorter than its log", chunk.file)
    return OSError("a log file is too short")
