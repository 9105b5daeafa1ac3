"""A connection to another broker of the cluster: one request after the other, on the event loop."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias, TypeVar

from headrace.errors import MalformedRequest

LARGEST_ANSWER_BYTES = 1 << 30
_SIZE = struct.Struct(">ii")
_HEAD = struct.Struct(">ihhih")
Shape = TypeVar("Shape")


class Answer(NamedTuple):
    """An answer's body is in [start, end) of `data`, until the next question."""

    data: bytearray
    start: int
    end: int


class Unreachable(Exception):
    """The broker cannot be connected to, went away, or answers with something else."""


class Interrupted(Exception):
    """An answer is not waited for any longer."""


class Peer:
    """A broker that is being talked to. Not for two questions at once."""

    def __init__(self, sock: socket.socket, client_id: str, timeout_s: float) -> None:
        self._socket = sock
        self._client_id = client_id.encode()
        self.timeout_s = timeout_s
        self._correlation_id = 0
        self._buffer = bytearray(1 << 16)
        self._asking: asyncio.Future[Answer] | None = None
        self._interrupted = False

    @classmethod
    async def connect(cls, host: str, port: int, client_id: str, timeout_s: float) -> "Peer":
        """A new connection; Unreachable if there is none to be had."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = found[0]
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            raise Unreachable(f"{host}:{port}: {error}") from error
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(timeout_s):
                await loop.sock_connect(sock, address)
        except (OSError, TimeoutError) as error:
            sock.close()
            raise Unreachable(f"{host}:{port}: {str(error) or 'no answer in time'}") from error
        return cls(sock, client_id, timeout_s)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    async def ask(self, api_key: int, version: int, body: bytes) -> Answer:
        """The answer to a request of a flexible version; Unreachable if none comes."""
        self._asking = asyncio.ensure_future(self._ask(api_key, version, body))
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._asking
        except (OSError, TimeoutError) as error:
            raise Unreachable(str(error) or "no answer in time") from error
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if self._interrupted and not (this is not None and this.cancelling()):
                raise Interrupted from None
            raise  # who was told to end must not take that for an interruption
        finally:
            self._asking = None

    def interrupt(self) -> None:
        """Let whoever waits for an answer hear Interrupted; this connection is of no more use."""
        if self._asking is not None:
            self._interrupted = True
            self._asking.cancel()

    async def ask_message(self, request: object, shape: type[Shape]) -> Shape:
        """A question and its answer as kio's classes, in the version that `request` is of."""
        from headrace.wire import codec

        version: int = request.__version__  # type: ignore[attr-defined]
        api_key: int = request.__api_key__  # type: ignore[attr-defined]
        answer = await self.ask(api_key, version, codec.encode_request(version, request))
        body = bytes(answer.data[answer.start : answer.end])
        try:
            return codec.decode_response(version, shape, body, 0)
        except (MalformedRequest, ValueError, IndexError, struct.error) as error:
            raise Unreachable(f"an answer cannot be read: {error}") from error

    async def _ask(self, api_key: int, version: int, body: bytes) -> Answer:
        loop = asyncio.get_running_loop()
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        name = self._client_id
        head = _HEAD.pack(
            _HEAD.size - 4 + len(name) + 1 + len(body),
            api_key, version, self._correlation_id, len(name),
        )  # fmt: skip
        await loop.sock_sendall(self._socket, b"".join((head, name, b"\0", body)))
        await self._receive(0, 8)
        size, correlation_id = _SIZE.unpack_from(self._buffer)
        if correlation_id != self._correlation_id or not 5 <= size <= LARGEST_ANSWER_BYTES:
            raise Unreachable(f"answered with a frame of {size} bytes that is no answer")
        if len(self._buffer) < size + 4:
            self._buffer = bytearray(size + 4 + (size >> 2))
        await self._receive(8, size + 4)
        return Answer(self._buffer, 9, size + 4)  # behind the header's empty tagged fields

    async def _receive(self, start: int, end: int) -> None:
        loop = asyncio.get_running_loop()
        with memoryview(self._buffer) as view:
            while start < end:
                count = await loop.sock_recv_into(self._socket, view[start:end])
                if count == 0:
                    raise Unreachable("the connection was closed")
                start += count


Connect: TypeAlias = Callable[[str, int, str, float], Awaitable[Peer]]
"""As `Peer.connect`: host, port, client id, and the patience in seconds."""
