"""The broker's HTTP endpoint: `GET /metrics` for Prometheus, `GET /health` for health checks.

Disabled unless `headrace.metrics.address` is set. It implements a minimum of HTTP/1.1: one request
per connection, no body, limits on time and size. Other HTTP interfaces belong in the services. TLS
and Basic authentication are as in the services.

`/health/live` shows that the event loop runs, `/health/ready` that the broker serves clients, and
`/health` lists problems, such as partitions without a leader, which a restart would not repair.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.apis.slices import Slices
from headrace.broker.metrics.values import Metrics
from headrace.errors import SettingError
from headrace.prometheus import CONTENT_TYPE
from headrace.settings import Settings
from headrace.types import Address
from headrace.wire.steps import Steps

if TYPE_CHECKING:
    from headrace.security.http_users import HttpUsers
    from headrace.security.tls import ServerTls

_REQUEST_BYTES_MAX = 8192
_REQUEST_S_MAX = 10
_ANSWER_S_MAX = 60
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_OK = "200 OK"
_UNAVAILABLE = "503 Service Unavailable"
_UNAUTHORIZED = "401 Unauthorized"
_ADDRESS = "headrace.metrics.address"
_USERS = "headrace.metrics.users.file"
_PATHS = "There are /metrics, /health, /health/live and /health/ready."


@dataclass(frozen=True, slots=True)
class HealthChecks:
    """The health checks of a broker."""

    reasons_not_ready: Callable[[], list[str]]
    """The reasons why it cannot serve clients."""
    problems: Callable[[], list[str]]
    """The problems of the broker."""
    warnings: Callable[[], list[str]]
    """Warnings, which do not make the broker unhealthy, because a restart would not help."""
    prepare: Callable[[], Steps[None]]
    """Has to be done before `problems` is called."""


class MetricsPage:
    """Answers requests for metrics and health."""

    def __init__(
        self,
        metrics: Metrics,
        checks: HealthChecks,
        slices: Slices,
        tls: "ServerTls | None" = None,
        users: "HttpUsers | None" = None,
    ) -> None:
        self._metrics = metrics
        self._checks = checks
        self._slices = slices
        self._tls = tls
        self._users = users
        self._rendering = asyncio.Lock()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, a free one for 0. OSError if the port is in use."""
        context = None if self._tls is None else self._tls.renewing_context()
        self._server = await asyncio.start_server(
            self._serve,
            host,
            port,
            limit=_REQUEST_BYTES_MAX,
            ssl=context,
            ssl_handshake_timeout=None if context is None else _REQUEST_S_MAX,
        )
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        if self._users is not None:
            self._users.close()

    @property
    def is_protected(self) -> bool:
        """Whether it has TLS or users, so that there are files to follow."""
        return self._tls is not None or self._users is not None

    def renew(self, *, always: bool = False) -> None:
        """Follow changes of the files with certificates and users."""
        if self._tls is not None:
            self._tls.renew(always=always)
        if self._users is not None:
            self._users.renew()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(_ANSWER_S_MAX):
                request, *headers = head.split(b"\r\n")
                allowed = self._users is None or await _is_user(self._users, headers)
                for piece in await self._answer(request.decode("latin-1"), allowed):
                    writer.write(piece)
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a closed connection or a malformed request gets no response
        finally:
            writer.close()

    async def _answer(self, request: str, allowed: bool) -> list[bytes]:
        """The response in pieces."""
        method, _, rest = request.partition(" ")
        target = rest.partition(" ")[0].partition("?")[0]
        status, kind, body = "404 Not Found", _TEXT, _PATHS
        pieces: list[bytes] = []
        if method not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", "Only GET and HEAD."
        elif target == "/metrics" and not allowed:
            status, body = _UNAUTHORIZED, "Log in with a user and a password."
        elif target == "/metrics":
            # In slices, and for one client at a time.
            async with self._rendering:
                pieces = await self._slices.finish(self._metrics.render_steps())
            status, kind = _OK, CONTENT_TYPE
        elif target == "/health/live":
            status, kind, body = _OK, _JSON, json.dumps({"live": True})
        elif target == "/health/ready":
            reasons = self._checks.reasons_not_ready()
            status, kind = _UNAVAILABLE if reasons else _OK, _JSON
            ready: dict[str, object] = {"ready": not reasons}
            body = json.dumps({**ready, "reasons": reasons} if allowed else ready)
        elif target == "/health":
            async with self._rendering:
                await self._slices.finish(self._checks.prepare())
            problems = self._checks.problems()
            status, kind = _UNAVAILABLE if problems else _OK, _JSON
            answer: dict[str, object] = {"healthy": not problems}
            if allowed:
                answer |= {"problems": problems, "warnings": self._checks.warnings()}
            body = json.dumps(answer)
        pieces = pieces or [f"{body}\n".encode()]
        login = 'WWW-Authenticate: Basic realm="headrace"\r\n' if status is _UNAUTHORIZED else ""
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {sum(map(len, pieces))}\r\n{login}Connection: close\r\n\r\n"
        )
        return [head.encode()] if method == "HEAD" else [head.encode(), *pieces]


async def _is_user(users: "HttpUsers", headers: list[bytes]) -> bool:
    """Whether the headers have the name and the password of a user."""
    from headrace.security.logins import LoginRefused, parse_basic

    for header in headers:
        name, _, value = header.partition(b":")
        scheme, _, credentials = value.strip().partition(b" ")
        if name.lower() == b"authorization" and scheme.lower() == b"basic":
            try:
                await users.check(*parse_basic(credentials))
            except (LoginRefused, ValueError):
                return False
            return True
    return False


def make_metrics_page(
    settings: Settings,
    metrics: Metrics,
    checks: HealthChecks,
    slices: Slices,
) -> tuple[MetricsPage, Address]:
    """The page with its address, from the settings; SettingError if they are not valid."""
    text = settings.text(_ADDRESS)
    scheme, _, address = text.rpartition("://")
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    tls: ServerTls | None = None
    users: HttpUsers | None = None
    if scheme == "https":
        from headrace.security import tls as server_tls

        tls = server_tls.ServerTls(_ADDRESS, settings, "none")
    if path := settings.text(_USERS):
        from headrace.security import http_users
        from headrace.security.roles import LOOPBACK

        if tls is None and host not in LOOPBACK:
            raise SettingError(
                f"{_USERS} is set, and {_ADDRESS}={text} has no TLS: everyone on the way could "
                f"read the passwords. Use https://{address}"
            )
        users = http_users.HttpUsers(_USERS, path)
    return MetricsPage(metrics, checks, slices, tls, users), Address(host, int(port))
