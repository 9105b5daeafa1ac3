"""A connection over TLS, after its handshake (`setup/handshakes.py`).

OpenSSL reads and writes one record of at most 16 KB per call. The poller does not report bytes that
are decrypted and not yet received; `pending` counts them.
"""

import socket
import ssl
from collections.abc import Callable

from headrace.broker.transport import Waiting, file_too_short
from headrace.log.slices import Slice
from headrace.portable import LINUX
from headrace.wire.fast import Chunk

_RECORD_BYTES = 16 * 1024
_FULL_RECORD_BYTES = 16_000
"""A record of at least this size is probably followed by another; those of Java have 16,383."""
_READ_BYTES = 128 * 1024
"""How much of a file is read at once to be encrypted."""


class TlsTransport:
    """A socket with encryption; files are read, because the kernel cannot encrypt them."""

    __slots__ = ("_sock", "fd", "pending")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.fd = sock.fileno()
        self.pending: Callable[[], int] | None = sock.pending

    def receive_into(self, view: memoryview) -> int:
        """Fill the buffer with the records that have arrived.

        After a record that is not full another one is unlikely, and a vain attempt costs 3 us. If
        there is one, the poller reports it.
        """
        read = self._sock.read
        filled, room = 0, len(view)
        try:
            while filled < room:
                count: int = read(room - filled, view[filled:])  # type: ignore[assignment]
                filled += count
                if count < _FULL_RECORD_BYTES:
                    break  # also at the end of the stream, which the next call reports
        except ssl.SSLWantReadError:
            if not filled:
                raise BlockingIOError from None
        return filled

    def send(self, data: bytes) -> int:
        sent = self._write(data)
        if not sent:
            raise BlockingIOError
        return sent

    def _write(self, data: bytes | memoryview) -> int:
        """Encrypt and send; the number of bytes that were sent.

        OpenSSL keeps a record that the socket did not accept whole; it is counted when the same
        bytes are written again.
        """
        write = self._sock.write
        if len(data) <= _RECORD_BYTES:
            try:
                return write(data)
            except ssl.SSLWantWriteError:
                return 0
        sent = 0
        with memoryview(data) as view:
            try:
                while sent < len(view):
                    sent += write(view[sent : sent + _RECORD_BYTES])
            except ssl.SSLWantWriteError:
                pass
        return sent

    def drain(self, out: Waiting) -> bool:
        """Send as the interface says.

        The kernel collects several records into large segments. Sent one by one they cost the
        broker a quarter more CPU, and the client as well (decision 0056).
        """
        if not LINUX or sum(map(_size, out)) <= _RECORD_BYTES:
            return self._drain(out)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        done = self._drain(out)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
        return done

    def _drain(self, out: Waiting) -> bool:
        while out:
            block = _next_block(out)
            sent = self._write(block)
            _take(out, sent)
            if sent < len(block):
                return False
        return True

    def hung_up(self) -> bool:
        try:
            # Peek at the socket: OpenSSL has no way to check without consuming the bytes.
            return not socket.socket.recv(self._sock, 1, socket.MSG_PEEK)
        except BlockingIOError:
            return False

    def close(self) -> None:
        self._sock.close()


def _next_block(out: Waiting) -> bytes | memoryview:
    """The next bytes to send. Small pieces are joined, so that they share a record.

    Repeated calls return the same first bytes until these are removed from `out`.
    """
    first = out[0]
    if isinstance(first, Slice):
        return _read(first, _READ_BYTES)
    assert isinstance(first, bytes | memoryview)
    if len(first) >= _RECORD_BYTES or len(out) == 1:
        return first
    parts: list[bytes | memoryview] = []
    room = _RECORD_BYTES
    for chunk in out:
        part = _read(chunk, room) if isinstance(chunk, Slice) else memoryview(chunk)[:room]  # type: ignore[arg-type]
        parts.append(part)
        room -= len(part)
        if room <= 0:
            break
    return b"".join(parts)


def _read(chunk: Slice, most_bytes: int) -> bytes:
    file = chunk.file
    data = file.pread(file.fd, min(chunk.length, most_bytes), chunk.position)
    if not data:
        raise file_too_short(chunk)
    return data


def _size(chunk: Chunk | memoryview) -> int:
    return chunk.length if isinstance(chunk, Slice) else len(chunk)  # type: ignore[arg-type]


def _take(out: Waiting, count: int) -> None:
    """Remove bytes that were sent."""
    while count:
        chunk = out[0]
        size = _size(chunk)
        if count >= size:
            out.popleft()
            count -= size
            continue
        if isinstance(chunk, Slice):
            out[0] = Slice(chunk.file, chunk.position + count, size - count)
        else:
            out[0] = memoryview(chunk)[count:]  # type: ignore[arg-type]
        return
