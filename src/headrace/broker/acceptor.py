"""Accepts the connections of one listener."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sized
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.apis.context import Caller
from headrace.broker.poller import Poller
from headrace.broker.quotas.connection_limits import ConnectionLimits
from headrace.broker.transport import PlainTransport, Transport
from headrace.errors import SettingError
from headrace.security.acls import ANONYMOUS
from headrace.security.audit import Audit
from headrace.settings import Settings
from headrace.settings.listeners import Listener
from headrace.types import Address

if TYPE_CHECKING:
    from headrace.broker.setup.handshakes import Handshakes
    from headrace.security.tls import ListenerTls

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_PAUSE_S = 0.2
_LOG_S = 10.0
"""How long accepting pauses at a limit, and how often that is logged."""


class Reception(NamedTuple):
    """The parts of the broker that an accepted connection needs."""

    poller: Poller
    connections: Sized
    """All connections of the broker."""
    limits: ConnectionLimits
    serve: Callable[[Transport, Caller], None]
    audit: Audit


class Acceptor:
    """The listening socket of one listener."""

    def __init__(self, listener: Listener, settings: Settings) -> None:
        """Bind the address; SettingError if that fails or the certificate cannot be loaded."""
        self._socket = _listen(listener.bind, settings)
        self.listener = listener.bound(self._socket.getsockname()[1])
        self.tls = _load_tls(self.listener, settings) if listener.tls else None
        self._setup_timeout_s = settings.integer("socket.connection.setup.timeout.ms") / 1000
        self._handshakes: Handshakes | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._log_from = 0.0

    @property
    def tls_failures(self) -> int:
        """Clients that were closed because of their TLS handshake or certificate."""
        return self._handshakes.failures if self._handshakes is not None else 0

    def start(self, reception: Reception) -> None:
        """Accept connections; needs a running event loop."""
        self._reception = reception
        if self.tls is not None:
            from headrace.broker.setup.handshakes import Handshakes

            self._handshakes = Handshakes(
                self.listener,
                self.tls,
                reception.poller,
                self._setup_timeout_s,
                self._serve,
                reception.audit,
            )
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def stop(self) -> None:
        """Accept no more connections."""
        if self._resume is not None:
            self._resume.cancel()
        asyncio.get_running_loop().remove_reader(self._socket)
        if self._handshakes is not None:
            self._handshakes.close()

    def close(self) -> None:
        """Close the listening socket."""
        self._socket.close()

    def _accept(self) -> None:
        limits, name = self._reception.limits, self.listener.name
        while True:
            if reason := limits.is_full(name):
                self._pause(_PAUSE_S)
                self._log_rarely("not accepting new connections: %s", reason)
                return
            try:
                sock, (host, port, *_) = self._socket.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue  # the client closed the connection before it was accepted
            except OSError as error:
                # The socket stays ready: without a pause this would be a busy loop.
                self._pause(_PAUSE_S)
                self._log_rarely(
                    "cannot accept connections: %s. The broker has "
                    f"{len(self._reception.connections)} client connections; raise its limit of "
                    "open files (ulimit -n) or lower max.connections",
                    error,
                )
                return
            throttle_s = limits.throttle_s(name)
            if throttle_s > 0:
                self._pause(throttle_s, partial(self._admit, sock, host, port))
                return
            self._admit(sock, host, port)

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        """Serve a new connection, unless its address has too many or opens them too fast."""
        limits, name = self._reception.limits, self.listener.name
        held_s = limits.throttle_address_s(name, host)
        if held_s > 0:
            self._log_rarely("closing new connections: %s opens them too fast", host)
            asyncio.get_running_loop().call_later(held_s, sock.close)
            return
        if reason := limits.is_too_many(name, host):
            self._log_rarely("refusing %s: it has " + reason, host)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._handshakes is not None:
            self._handshakes.begin(sock, host, port)
        else:
            self._serve(PlainTransport(sock), f"{host}:{port}", None)

    def _serve(self, transport: Transport, address: str, principal: str | None) -> None:
        caller = Caller(address, self.listener.name, principal or ANONYMOUS)
        self._reception.serve(transport, caller)

    def _pause(self, seconds: float, then: Callable[[], None] | None = None) -> None:
        """Leave new connections in the backlog for some time."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)

        def resume() -> None:
            loop.add_reader(self._socket, self._accept)
            if then is not None:
                then()

        self._resume = loop.call_later(seconds, resume)

    def _log_rarely(self, text: str, what: object) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._log_from:
            self._log_from = now + _LOG_S
            logger.warning(text, what)


def _load_tls(listener: Listener, settings: Settings) -> "ListenerTls":
    # Imported here, because it would slow down the start of brokers without TLS.
    from headrace.security.tls import ListenerTls

    return ListenerTls(listener, settings)


def _listen(address: Address, settings: Settings) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for name, option in (
        ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
    ):
        if settings.integer(name) > 0:
            listening.setsockopt(socket.SOL_SOCKET, option, settings.integer(name))
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise SettingError(
            f"cannot listen on {host}:{port} ({error.strerror}). Is another broker running there? "
            "Choose another address with --listen HOST:PORT."
        ) from error
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening
