"""Connections of the ZooKeeper store: kazoo's threads, with time limits and TLS of our own.

kazoo's own TLS trusts the system's authorities beside the given ones, wants keys in files, and
waits for the network while a decrypted response is left in memory. A server whose certificate is
refused, or that refuses ours, is remembered with the reason.
"""

import logging
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import make_digest_acl

from headrace.cluster.store import StoreError

logger = logging.getLogger(__name__)

SCHEME = "zookeeper://"
_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d{1,5})?"
_ADDRESS = re.compile(
    rf"{SCHEME}(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<chroot>(?:/[\w-][\w.-]*)*)/?", re.ASCII
)
_PASSING = (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors of TLS that are no refusal: the server may just be starting or stopping."""


class _TlsSocket(ssl.SSLSocket):
    """A connection that reports whether the server accepts it.

    In TLS 1.3 a server refuses a client's certificate only after the handshake, in the first read.
    """

    on_outcome: "Callable[[Exception | None], None] | None" = None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            data = super().recv(buflen, flags)
        except ssl.SSLError as error:
            self._record_outcome(error)
            raise
        if self.on_outcome is not None and data:
            self._record_outcome(None)
            self.on_outcome = None
        return data

    def _record_outcome(self, error: Exception | None) -> None:
        if self.on_outcome is not None:
            self.on_outcome(error)


class ConnectionHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """Gives up on an unresponsive server early enough to try the others."""

    def __init__(
        self, connect_seconds: float, tls: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        """`tls` returns the current context; None for connections without TLS."""
        super().__init__()
        self._connect_seconds = connect_seconds
        self._tls = tls
        self.refusals: dict[str, str] = {}
        """Servers with which TLS was not possible the last time, and why."""

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> socket.socket:
        """A connection to a server; `hostname` is its name in the address of the ensemble."""
        limit = self._connect_seconds if timeout is None else min(timeout, self._connect_seconds)
        sock: socket.socket = super().create_connection(
            address, hostname=hostname, timeout=limit, **options
        )
        if self._tls is None:
            return sock
        on_outcome = partial(self._record_outcome, f"{hostname or address[0]}:{address[1]}")
        context = self._tls()
        context.sslsocket_class = _TlsSocket
        try:
            wrapped = context.wrap_socket(sock, server_hostname=hostname or address[0])
        except OSError as error:
            on_outcome(error)
            sock.close()
            raise
        assert isinstance(wrapped, _TlsSocket)
        wrapped.on_outcome = on_outcome
        return wrapped

    def select(
        self, readable: Any, writable: Any, exceptional: Any, timeout: float | None = None
    ) -> Any:
        """As kazoo's, but bytes that are already decrypted are ready at once."""
        ready = [one for one in readable if isinstance(one, ssl.SSLSocket) and one.pending()]
        if not ready:
            return super().select(readable, writable, exceptional, timeout)
        found, *others = super().select(readable, writable, exceptional, 0)
        return [*ready, *(one for one in found if one not in ready)], *others

    def _record_outcome(self, server: str, error: Exception | None) -> None:
        """Record the outcome of a connection: an error, or None after the server's first bytes."""
        if error is None:
            self.refusals.pop(server, None)
        elif isinstance(error, ssl.SSLError) and not isinstance(error, _PASSING):
            why = _reason(error)
            if self.refusals.get(server) != why:
                logger.warning("no TLS connection to ZooKeeper at %s: %s", server, why)
            self.refusals[server] = why


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


def make_client(
    hosts: str,
    session_timeout_ms: int,
    login: tuple[str, str] | None,
    tls: Callable[[], ssl.SSLContext] | None,
) -> KazooClient:
    """A client that is not started; `tls` returns the context for a new connection."""
    session_seconds = session_timeout_ms / 1000
    return KazooClient(
        hosts,
        timeout=session_seconds,
        handler=ConnectionHandler(session_seconds / (hosts.count(",") + 2), tls),
        connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": 0.2},
        auth_data=[("digest", ":".join(login))] if login else None,
        default_acl=[make_digest_acl(*login, all=True)] if login else None,
        logger=_kazoo_logger(),
    )


def _kazoo_logger() -> logging.Logger:
    """Kazoo logs several lines a second while no server answers; this module logs what matters."""
    kazoo = logger.getChild("kazoo")
    kazoo.setLevel(logging.DEBUG if logger.isEnabledFor(logging.DEBUG) else logging.ERROR)
    return kazoo


def parse_address(address: str) -> tuple[str, str]:
    """The hosts, and the chroot without its last slash; StoreError if the address is malformed."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise StoreError(
            f"'{address}' is not the address of a ZooKeeper ensemble; expected "
            f"{SCHEME}HOST:PORT,HOST:PORT/PATH (the default port is 2181, the path is optional)"
        )
    return found["hosts"], found["chroot"]


def check_not_refused(address: str, client: KazooClient) -> None:
    """StoreError if TLS is possible with no server."""
    refusals: dict[str, str] = client.handler.refusals
    if len(refusals) < len(client.hosts):
        return
    servers = "; ".join(f"{server}: {why}" for server, why in refusals.items())
    raise StoreError(
        f"{address}: no TLS connection to ZooKeeper ({servers}). Check "
        "zookeeper.ssl.truststore.location, zookeeper.ssl.keystore.location, the names in the "
        "servers' certificates, and that the port is the secureClientPort"
    )


def check_resolvable(address: str, client: KazooClient) -> None:
    """StoreError if no host name can be resolved."""
    names = [name for name, _ in client.hosts]
    for name in names:
        with suppress(socket.gaierror):
            socket.getaddrinfo(name, None)
            return
    raise StoreError(
        f"{address}: the host name{'s' if len(names) > 1 else ''} {', '.join(names)} "
        "cannot be resolved; check the address and the name service"
    )
