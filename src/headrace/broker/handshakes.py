"""TLS handshakes of new connections, before they become connections of the broker.

A handshake occupies the event loop for most of a millisecond, so they are handled one at a time,
and other connections are served in between. Unfinished handshakes are bounded in total, per
address, and in time. A connection of a client that does not use TLS is closed without an alert,
because a Java client would read the alert as the size of a huge response.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable

from headrace.broker.poller import READ, WRITE, Poller
from headrace.broker.tls_transport import TlsTransport
from headrace.security.tls import ListenerTls
from headrace.security.x509 import NotACertificate, parse_certificate
from headrace.settings.listeners import Listener
from headrace.wire.fast import Chunk

logger = logging.getLogger(__name__)

MOST = 1024
"""The limit of unfinished handshakes on one listener; a new one ends the oldest."""
MOST_PER_ADDRESS = 128
_TLS_HANDSHAKE = 0x16
_LOG_S = 10.0
"""How often one kind of failure of one address is logged."""

Done = Callable[[TlsTransport, str, str | None], None]
"""Receives a connection: its transport, the client's address, and its principal, if any."""


class Handshakes:
    """The handshakes of one listener."""

    def __init__(
        self, listener: Listener, tls: ListenerTls, poller: Poller, timeout_s: float, done: Done
    ) -> None:
        self.listener = listener
        self.tls = tls
        self.poller = poller
        self._timeout_s = timeout_s
        self._done = done
        self._under_way: dict[_Handshake, float] = {}
        """The deadline of each handshake, oldest first."""
        self._per_host: Counter[str] = Counter()
        self._ready: deque[_Handshake] = deque()
        self._working = False
        self._timer: asyncio.TimerHandle | None = None
        self._logged: dict[tuple[str, str], float] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, sock: socket.socket, host: str, port: int) -> None:
        """Begin the handshake of a new connection when its first bytes arrive."""
        if self._per_host[host] >= MOST_PER_ADDRESS:
            self.log_closing(host, port, f"has {MOST_PER_ADDRESS} unfinished TLS handshakes")
            sock.close()
            return
        if len(self._under_way) >= MOST:
            next(iter(self._under_way)).end()
        loop = asyncio.get_running_loop()
        handshake = _Handshake(self, sock, host, port)
        self._under_way[handshake] = loop.time() + self._timeout_s
        self._per_host[host] += 1
        if self._timer is None:
            self._timer = loop.call_later(self._timeout_s, self._end_late)

    def close(self) -> None:
        """End all handshakes."""
        for handshake in list(self._under_way):
            handshake.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_turn(self, handshake: "_Handshake") -> None:
        """Queue a handshake for its next step."""
        self._ready.append(handshake)
        if not self._working:
            self._working = True
            asyncio.get_running_loop().call_soon(self._work)
        self.poller.has_work = True

    def _work(self) -> None:
        """Run one step of one handshake; other connections are served before the next."""
        self._ready.popleft().step()
        self._working = bool(self._ready)
        if self._working:
            asyncio.get_running_loop().call_soon(self._work)

    def _end_late(self) -> None:
        now = asyncio.get_running_loop().time()
        self._timer = None
        for handshake, until in list(self._under_way.items()):
            if until > now:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(until - now, self._end_late)
                return
            handshake.fail(f"did not finish the TLS handshake within {self._timeout_s:g} s")

    def forget(self, handshake: "_Handshake", host: str) -> None:
        """Remove a handshake that has ended."""
        if self._under_way.pop(handshake, None) is not None:
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]

    def finish(self, sock: ssl.SSLSocket, host: str, port: int) -> None:
        """Pass on a connection; on a SASL listener the certificate gives no principal."""
        principal = None
        if not self.listener.login:
            der = sock.getpeercert(binary_form=True)
            if der is not None:
                principal = self._principal(der, host, port)
                if principal is None:
                    sock.close()
                    return
        self._done(TlsTransport(sock), f"{host}:{port}", principal)

    def _principal(self, der: bytes, host: str, port: int) -> str | None:
        try:
            name = parse_certificate(der).distinguished_name
        except NotACertificate as error:
            self.log_closing(host, port, f"has a certificate that cannot be read: {error}")
            return None
        principal = self.tls.rules.principal(name)
        if principal is None:
            why = f"has the name {name}, which no rule of ssl.principal.mapping.rules matches"
            self.log_closing(host, port, why)
        return principal

    def log_closing(self, host: str, port: int, why: str) -> None:
        """Log why a client is closed, at most every few seconds for one address and cause."""
        now = asyncio.get_running_loop().time()
        if self._logged.get((host, why), 0.0) > now:
            return
        if len(self._logged) > MOST:
            self._logged.clear()
        self._logged[host, why] = now + _LOG_S
        logger.warning(
            "closing %s:%d: it %s", host, port, why,
            extra={"fields": {"event": "tls_failed", "listener": self.listener.name}},
        )  # fmt: skip


class _Handshake:
    """One socket until its handshake is done."""

    __slots__ = ("_all", "_fd", "_host", "_port", "_sock", "_tls", "ended")

    def __init__(self, handshakes: Handshakes, sock: socket.socket, host: str, port: int) -> None:
        self._all = handshakes
        self._sock = sock
        self._fd = sock.fileno()
        self._host = host
        self._port = port
        self._tls: ssl.SSLSocket | None = None
        self.ended = False
        handshakes.poller.add_hot(self._fd, self, READ)

    def ready(self, _events: int) -> None:
        self._all.poller.change_hot(self._fd, 0)
        self._all.take_turn(self)

    def send(self, answer: bytes | list[Chunk]) -> None:
        raise AssertionError("a handshake sends no responses")

    def step(self) -> None:
        """Continue with the bytes that have arrived."""
        if self.ended:
            return
        try:
            if self._tls is None and not self._begin():
                return
            assert self._tls is not None
            self._tls.do_handshake()
        except (BlockingIOError, ssl.SSLWantReadError):
            self._all.poller.change_hot(self._fd, READ)
        except ssl.SSLWantWriteError:
            self._all.poller.change_hot(self._fd, WRITE)
        except ssl.SSLError as error:
            self.fail(f"failed its TLS handshake ({_reason(error)})")
        except OSError:
            self.end()
        else:
            tls, self._tls = self._tls, None
            self._leave()
            self._all.finish(tls, self._host, self._port)

    def _begin(self) -> bool:
        """Check the first byte, and begin TLS; False if the client does not use TLS."""
        first = self._sock.recv(1, socket.MSG_PEEK)
        if not first:
            self.end()
            return False
        if first[0] != _TLS_HANDSHAKE:
            listener = self._all.listener
            self.fail(
                f"uses no TLS, but the listener {listener.name} requires {listener.protocol}; "
                "correct security.protocol or the port in the client's configuration"
            )
            return False
        self._tls = self._all.tls.server.wrap_socket(
            self._sock, server_side=True, do_handshake_on_connect=False
        )
        return True

    def fail(self, why: str) -> None:
        """End the handshake, and log the reason."""
        self._all.log_closing(self._host, self._port, why)
        self.end()

    def end(self) -> None:
        """Close the socket."""
        if not self.ended:
            self._leave()
            (self._tls or self._sock).close()

    def _leave(self) -> None:
        self.ended = True
        self._all.poller.remove_hot(self._fd)
        self._all.forget(self, self._host)


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")
