"""A connection on a real socket, with a handler and a poller that do nothing else."""

import asyncio
import gc
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.apis.context import Caller
from headrace.apis.hot import Answer, Later
from headrace.broker.buffers import Buffers
from headrace.broker.connection import ClientConnection, Limits
from headrace.broker.poller import Poller
from headrace.broker.readiness import READ
from headrace.broker.receive_memory import ReceiveMemory
from headrace.broker.tls_transport import TlsTransport
from headrace.broker.transport import PlainTransport, Transport
from headrace.security.acls import ANONYMOUS
from tests.broker.test_tls_transport import Connected
from tests.security.authority import Authority, write
from tests.support.raw import frame


class Echo:
    """Answers with the request, or later, if the request asks for that."""

    def handle(
        self, connection: ClientConnection, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> Answer | Later:
        request = bytes(view[pos:end])
        if not request.endswith(b"later"):
            return request
        connection.hold()
        return self._later(request)

    async def _later(self, request: bytes) -> Answer:
        await asyncio.sleep(0)
        return request


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _connection(transport: Transport, poller: Poller, closed: list[str]) -> ClientConnection:
    return ClientConnection(
        transport,
        Caller("127.0.0.1:1", "PLAINTEXT", ANONYMOUS),
        poller,
        Echo(),
        Limits(1 << 20, 5, Buffers(ReceiveMemory(1 << 30))),
        lambda connection: closed.append(connection.address),
    )


def _serve_and_close(transport: Transport, client: socket.socket) -> list[str]:
    """Serve an answer at once, a later one, and a part of a request; then close."""
    closed: list[str] = []
    client.setblocking(False)

    async def serve() -> None:
        poller = Poller(lambda: False)
        connection = _connection(transport, poller, closed)
        for body in (b"at once", b"later"):
            client.sendall(frame(0, 0, body))
            answered = b""
            while not answered:
                connection.ready(READ)
                for hot, answer in poller.answers:
                    hot.send(answer)
                poller.answers.clear()
                await asyncio.sleep(0.001)
                with suppress(BlockingIOError, ssl.SSLWantReadError):
                    answered = client.recv(1000)
            assert answered.endswith(body)
        client.sendall(frame(0, 0, bytes(1000))[:500])
        while connection.filled_bytes < 500:
            connection.ready(READ)
            await asyncio.sleep(0.001)
        connection.close()
        poller.close()

    asyncio.run(serve())
    return closed


@pytest.mark.usefixtures("without_collector")
def test_a_closed_connection_is_freed_without_the_garbage_collector() -> None:
    ours, client = socket.socketpair()
    ours.setblocking(False)
    gc.collect()
    before = _alive()
    assert _serve_and_close(PlainTransport(ours), client) == ["127.0.0.1:1"]
    assert _alive() == before


@pytest.mark.usefixtures("without_collector")
def test_a_closed_tls_connection_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    own = Authority().issue("CN=broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write(tmp_path / "broker.pem", own.key_pem(), own.certificate_pem))
    connected = Connected(context)
    gc.collect()
    client, transport = connected.client, connected.transport
    del connected
    before = _alive()
    assert _serve_and_close(transport, client) == ["127.0.0.1:1"]
    del transport
    assert _alive() == before - 1  # the transport is gone, too


def _alive() -> int:
    """How many connections and transports for TLS there are."""
    return sum(isinstance(one, ClientConnection | TlsTransport) for one in gc.get_objects())
