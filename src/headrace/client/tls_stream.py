"""TLS over a non-blocking socket of asyncio's loop, for `aio.py`."""

import asyncio
import socket
import ssl

_READ_BYTES = 256 * 1024


class TlsStream:
    """Encrypts sent bytes and decrypts received bytes."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._socket = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    async def handshake(self) -> None:
        """Perform the handshake; OSError if one side does not trust the other."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
        await self._flush()

    async def send(self, data: bytes) -> None:
        """Send all of it."""
        sent = 0
        with memoryview(data) as view:
            while sent < len(view):
                sent += self._tls.write(view[sent:])
        await self._flush()

    async def receive_into(self, view: memoryview) -> int:
        """Receive some bytes; their number, 0 at the end of the stream."""
        while True:
            try:
                return self._tls.read(len(view), view)  # type: ignore[return-value]
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return 0

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await asyncio.get_running_loop().sock_sendall(self._socket, self._outgoing.read())

    async def _fill(self) -> None:
        data = await asyncio.get_running_loop().sock_recv(self._socket, _READ_BYTES)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
