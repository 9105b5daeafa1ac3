"""The asyncio connection to one broker: one request after the other. The protocol: `protocol.py`.

Brokers use it for each other.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.client.bearer import bearer_token
from headrace.client.config import Security
from headrace.client.errors import ClientError, Unreachable
from headrace.client.login import Exchange, login_requests
from headrace.client.protocol import (
    RESPONSE_HEAD_BYTES,
    Conversation,
    Message,
    NotAResponse,
    Response,
)
from headrace.errors import KafkaError

if TYPE_CHECKING:
    import ssl

    from headrace.client.tls_stream import TlsStream

LARGEST_RESPONSE_BYTES = 1 << 30


class Interrupted(Exception):
    """The wait for a response was interrupted."""


class AsyncConnection:
    """A connection to a broker with negotiated versions, for one request at a time."""

    def __init__(self, sock: socket.socket, client_id: str, address: str, timeout_s: float) -> None:
        self._socket = sock
        self._tls: TlsStream | None = None
        self.conversation = Conversation(client_id, address)
        self.timeout_s = timeout_s
        self._buffer = bytearray(1 << 16)
        self._asking: asyncio.Future[Response] | None = None
        self._interrupted = False

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float,
        tls: "ssl.SSLContext | None" = None,
        security: Security | None = None,
    ) -> "AsyncConnection":
        """A new connection, over TLS if a context is given, with a login if `security` has one.

        Unreachable if the broker refuses it, is not trusted, or does not respond.
        """
        loop = asyncio.get_running_loop()
        address = f"{host}:{port}"
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, resolved = found[0]
            sock = socket.socket(family, kind, protocol)
        except OSError as error:
            raise Unreachable(f"{address}: {error}") from error
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(timeout_s):
                await loop.sock_connect(sock, resolved)
            connection = cls(sock, client_id, address, timeout_s)
            if tls is not None:
                async with asyncio.timeout(timeout_s):
                    await connection.encrypt(tls, host)
            await connection.negotiate()
            if security is not None and security.login:
                await connection.log_in(security)
        except (OSError, TimeoutError) as error:
            sock.close()
            raise Unreachable(f"{address}: {str(error) or 'no response in time'}") from error
        except BaseException:
            sock.close()
            raise
        return connection

    async def encrypt(self, context: "ssl.SSLContext", host: str) -> None:
        """Switch to TLS; OSError if one side does not trust the other."""
        from headrace.client.tls_stream import TlsStream

        stream = TlsStream(self._socket, context, host)
        await stream.handshake()
        self._tls = stream

    async def negotiate(self) -> None:
        """Request the broker's API versions; the first exchange of a connection."""
        response = await self._exchange(self.conversation.ask_versions())
        self.conversation.take_versions(response)

    async def log_in(self, security: Security) -> None:
        """Authenticate this client; ClientError if the broker refuses it."""
        token = ""
        if security.tokens is not None:
            try:
                token = await asyncio.to_thread(bearer_token, security.tokens)
            except ClientError as error:
                raise Unreachable(str(error)) from error
        steps = login_requests(security, self.conversation.address, token)
        exchange = next(steps)
        while True:
            answer = await self.ask(*exchange)
            try:
                if security.tickets is None:
                    following = _following(steps, answer)
                else:  # this may ask the KDC
                    following = await asyncio.to_thread(_following, steps, answer)
            except KafkaError as error:
                raise Unreachable(error.message) from error
            if following is None:
                return
            exchange = following

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    async def ask(self, request: object, shape: type[Message]) -> Message:
        """Send a request and return its response, as kio's classes."""
        response = await self._exchange(self.conversation.request(request))
        return self.conversation.decode(response, shape)

    async def ask_encoded(self, api_key: int, version: int, body: bytes) -> Response:
        """The response to an encoded request body; its bytes are valid until the next one."""
        return await self._exchange(self.conversation.frame(api_key, version, body))

    def interrupt(self) -> None:
        """End the wait for a response with Interrupted; the connection cannot be used after it."""
        if self._asking is not None:
            self._interrupted = True
            self._asking.cancel()

    async def _exchange(self, frame: bytes) -> Response:
        """Send a frame and wait for its response; Unreachable without one."""
        self._asking = asyncio.ensure_future(self._carry(frame))
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._asking
        except (OSError, TimeoutError, NotAResponse) as error:
            raise Unreachable(str(error) or "no response in time") from error
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if self._interrupted and not (this is not None and this.cancelling()):
                raise Interrupted from None
            raise  # a cancelled task must not mistake this for an interruption
        finally:
            self._asking = None

    async def _carry(self, frame: bytes) -> Response:
        if self._tls is None:
            await asyncio.get_running_loop().sock_sendall(self._socket, frame)
        else:
            await self._tls.send(frame)
        await self._receive(0, RESPONSE_HEAD_BYTES)
        size = self.conversation.response_bytes(self._buffer)
        if size > LARGEST_RESPONSE_BYTES:
            raise NotAResponse(f"sent a frame of {size} bytes")
        if len(self._buffer) < size:
            self._buffer = bytearray(size + (size >> 2))
        await self._receive(0, size)
        return self.conversation.take_response(self._buffer, 0, size)

    async def _receive(self, start: int, end: int) -> None:
        loop = asyncio.get_running_loop()
        tls = self._tls
        with memoryview(self._buffer) as view:
            while start < end:
                if tls is None:
                    count = await loop.sock_recv_into(self._socket, view[start:end])
                else:
                    count = await tls.receive_into(view[start:end])
                if count == 0:
                    raise Unreachable("the connection was closed")
                start += count


def _following(steps: Generator[Exchange, Any, None], answer: object) -> Exchange | None:
    """The next request of a login; None if it is done."""
    try:
        return steps.send(answer)
    except StopIteration:
        return None


Connect: TypeAlias = Callable[[str, int, str, float], Awaitable[AsyncConnection]]
"""The type of `AsyncConnection.connect`: host, port, client id, time-out in seconds."""
