"""TLS handshakes of new connections, before they become connections of the broker.

A handshake takes most of a millisecond, in which OpenSSL releases the interpreter lock. A worker
thread runs them one after the other, and the event loop serves connections meanwhile. Unfinished
handshakes are bounded in total, per address, and in time. OpenSSL gets a handshake only when the
whole ClientHello has arrived and was checked (`client_hello.py`). A connection of a client that
does not use TLS is closed without an alert, because a Java client would read the alert as the size
of a huge response.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.broker.poller import Poller
from headrace.broker.readiness import READ, WRITE
from headrace.broker.setup.client_hello import (
    MOST_BYTES,
    RefusedHello,
    begins_tls,
    bytes_needed,
    check_client_hello,
)
from headrace.broker.setup.log_limit import LogLimit
from headrace.broker.setup.setups import Setups
from headrace.broker.tls_transport import TlsTransport
from headrace.security.audit import Audit
from headrace.security.tls import ListenerTls
from headrace.security.x509 import NotACertificate, parse_certificate
from headrace.settings.listeners import Listener
from headrace.wire.fast import Chunk

logger = logging.getLogger(__name__)
logger.addFilter(LogLimit())

MOST = 1024
"""The limit of unfinished handshakes on one listener; a new one ends the oldest."""
MOST_PER_ADDRESS = 128
_TOGETHER = 8
"""How many handshakes the worker gets at once."""
_LOG_S = 10.0
"""How often one kind of failure of one address is logged."""

Done = Callable[[TlsTransport, str, str | None], None]
"""Receives a connection: its transport, the client's address, and its principal, if any."""


class Handshakes:
    """The handshakes of one listener."""

    def __init__(
        self,
        listener: Listener,
        tls: ListenerTls,
        poller: Poller,
        timeout_s: float,
        done: Done,
        audit: Audit,
    ) -> None:
        self.listener = listener
        self.tls = tls
        self.poller = poller
        self._done = done
        self._audit = audit
        self._under_way: Setups[_Handshake] = Setups("TLS handshake", MOST, timeout_s)
        self._per_host: Counter[str] = Counter()
        self._ready: deque[_Handshake] = deque()
        self._batch: Sequence[_Handshake] = ()
        """What the worker works on."""
        self._worker: ThreadPoolExecutor | None = None
        self._logged: dict[tuple[str, str], float] = {}
        self.failures = 0
        """Clients that were closed because of their handshake or certificate."""

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, sock: socket.socket, host: str, port: int) -> None:
        """Begin the handshake of a new connection when its first bytes arrive."""
        if self._per_host[host] >= MOST_PER_ADDRESS:
            self.log_closing(host, port, f"has {MOST_PER_ADDRESS} unfinished TLS handshakes")
            sock.close()
            return
        self._under_way.begin(_Handshake(self, sock, host, port))
        self._per_host[host] += 1

    def close(self) -> None:
        """End all handshakes."""
        self._under_way.close()
        if self._worker is not None:
            self._worker.shutdown()
        for handshake in (*self._batch, *self._ready):
            handshake.close_socket()
        self._batch = ()
        self._ready.clear()

    def take_turn(self, handshake: "_Handshake") -> None:
        """Queue a handshake for its next step."""
        self._ready.append(handshake)
        if not self._batch:
            self._work()
            self.poller.has_work = True

    def _work(self) -> None:
        """Give the worker the next handshakes."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="handshakes")
        count = min(len(self._ready), _TOGETHER)
        self._batch = [self._ready.popleft() for _ in range(count)]
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._worker, _step_all, self._batch)
        done.add_done_callback(self._worked)

    def _worked(self, done: "asyncio.Future[list[_Outcome]]") -> None:
        batch, self._batch = self._batch, ()
        if batch:  # else the broker stops
            for handshake, outcome in zip(batch, done.result(), strict=True):
                handshake.go_on(outcome)
            if self._ready:
                self._work()

    def forget(self, handshake: "_Handshake", host: str) -> None:
        """Remove a handshake that has ended."""
        if self._under_way.finish(handshake):
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
            why = _RefusedCertificate(f"has a certificate that cannot be read: {error}")
            self.log_closing(host, port, why)
            return None
        principal = self.tls.rules.principal(name)
        if principal is None:
            why = _RefusedCertificate(
                f"has the name {name}, which no rule of ssl.principal.mapping.rules matches"
            )
            self.log_closing(host, port, why)
        return principal

    def log_closing(self, host: str, port: int, why: str) -> None:
        """Log why a client is closed, at most every few seconds for one address and cause."""
        self.failures += 1
        if isinstance(why, _RefusedCertificate):
            self._audit.certificate_refused(host, port, self.listener.name, f"it {why}")
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


_Outcome = int | str | ssl.SSLSocket
"""The events that a handshake waits for, why it has failed, or the connection that it has led to.
An empty reason is not logged."""


class _RefusedCertificate(str):
    """Why a client's certificate is refused; for the audit log too."""

    __slots__ = ()


class _Handshake:
    """One socket until its handshake is done."""

    __slots__ = ("_all", "_awaited", "_fd", "_host", "_port", "_sock", "_tls", "_watched", "ended")

    def __init__(self, handshakes: Handshakes, sock: socket.socket, host: str, port: int) -> None:
        self._all = handshakes
        self._sock = sock
        self._fd = sock.fileno()
        self._host = host
        self._port = port
        self._tls: ssl.SSLSocket | None = None
        self._awaited = 0
        """How many bytes the socket waits for before it is ready; 0 if it was not told."""
        self.ended = False
        self._watch(READ)

    def _watch(self, events: int) -> None:
        self._watched = True
        self._all.poller.add_hot(self._fd, self, events)

    def ready(self, _events: int) -> None:
        self._stop_watching()
        self._all.take_turn(self)

    def _stop_watching(self) -> None:
        self._watched = False
        self._all.poller.remove_hot(self._fd)

    def send(self, answer: bytes | list[Chunk]) -> None:
        raise AssertionError("a handshake sends no responses")

    def step(self) -> _Outcome:
        """Continue with the bytes that have arrived; called by the worker."""
        if self.ended:
            return ""
        try:
            if self._tls is None and not self._begin():
                return READ
            assert self._tls is not None
            self._tls.do_handshake()
            return self._tls
        except (BlockingIOError, ssl.SSLWantReadError):
            return READ
        except ssl.SSLWantWriteError:
            return WRITE
        except RefusedHello as refused:
            return str(refused)
        except ssl.SSLError as error:
            reason = f"failed its TLS handshake ({_reason(error)})"
            return _RefusedCertificate(reason) if _is_about_certificate(error) else reason
        except (OSError, ValueError):  # the socket is closed or not usable any more
            return ""

    def _begin(self) -> bool:
        """Begin TLS if a whole ClientHello is there; whether it is."""
        first = self._sock.recv(MOST_BYTES, socket.MSG_PEEK)
        if not first:
            raise ConnectionResetError
        if not begins_tls(first):
            listener = self._all.listener
            raise RefusedHello(
                f"uses no TLS, but the listener {listener.name} requires {listener.protocol}; "
                "correct security.protocol or the port in the client's configuration"
            )
        needed = bytes_needed(first)
        if len(first) < needed:
            if self._awaited == needed:
                raise ConnectionResetError  # it is ready, because nothing more will arrive
            self._await(needed)
            return False
        check_client_hello(first)
        if self._awaited:
            self._await(1)
        self._tls = self._all.tls.server.wrap_socket(
            self._sock, server_side=True, do_handshake_on_connect=False
        )
        return True

    def _await(self, count: int) -> None:
        """Let the socket be ready when so much has arrived, or at its end."""
        self._awaited = count
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def go_on(self, outcome: _Outcome) -> None:
        """Do what the worker has found out."""
        if self.ended:
            self.close_socket()
        elif isinstance(outcome, int):
            self._watch(outcome)
        elif isinstance(outcome, str):
            self.end(outcome)
            self.close_socket()
        else:
            self._leave()
            self._all.finish(outcome, self._host, self._port)

    def end(self, why: str) -> None:
        if self.ended:
            return
        if why:
            self._all.log_closing(self._host, self._port, why)
        with_worker = not self._watched
        self._leave()
        if not with_worker:
            self.close_socket()

    def close_socket(self) -> None:
        """Close it; not while the worker uses it."""
        (self._tls or self._sock).close()

    def _leave(self) -> None:
        self.ended = True
        if self._watched:
            self._stop_watching()
        self._all.forget(self, self._host)


def _step_all(batch: "Sequence[_Handshake]") -> list[_Outcome]:
    return [handshake.step() for handshake in batch]


def _is_about_certificate(error: ssl.SSLError) -> bool:
    """Whether the client's certificate is missing or invalid, rather than its TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return True
    return error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE"


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")
