"""The broker's HTTP endpoint: `GET /metrics` for Prometheus, `GET /health` for health checks.

Off unless `headrace.metrics.address` is given. It implements a minimum of HTTP/1.1: one request per
connection, no body, limits on time and size. Other HTTP interfaces belong in the services. TLS and
Basic authentication are as in the services.
"""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.metrics import Metrics
from headrace.errors import SettingError
from headrace.settings import Settings
from headrace.types import Address

if TYPE_CHECKING:
    from headrace.security.http_users import HttpUsers
    from headrace.security.tls import ServerTls

_REQUEST_BYTES_MAX = 8192
_REQUEST_S_MAX = 10
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"
_ADDRESS = "headrace.metrics.address"
_USERS = "headrace.metrics.users.file"


class MetricsPage:
    """Answers requests for metrics and health.

    `problems` says what is wrong, if anything is. `warnings` are for people: they do not make the
    broker unhealthy, since a restart would not help.
    """

    def __init__(
        self,
        metrics: Metrics,
        problems: Callable[[], list[str]],
        warnings: Callable[[], list[str]],
        tls: "ServerTls | None" = None,
        users: "HttpUsers | None" = None,
    ) -> None:
        self._metrics = metrics
        self._problems = problems
        self._warnings = warnings
        self._tls = tls
        self._users = users
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one where 0 was asked for. OSError if it is taken."""
        context = None if self._tls is None else self._tls.renewing_context()
        self._server = await asyncio.start_server(
            self._serve, host, port, limit=_REQUEST_BYTES_MAX, ssl=context
        )
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Listen no more."""
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
                request, *headers = head.split(b"\r\n")
                allowed = self._users is None or await _is_user(self._users, headers)
                writer.write(self._answer(request.decode("latin-1"), allowed))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a closed connection or a malformed request gets no response
        finally:
            writer.close()

    def _answer(self, request: str, allowed: bool) -> bytes:
        method, _, rest = request.partition(" ")
        target = rest.partition(" ")[0].partition("?")[0]
        status, kind, body = "404 Not Found", _TEXT, "There are /metrics and /health.\n"
        more = ""
        if method not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", "Only GET and HEAD.\n"
        elif target == "/metrics" and not allowed:
            status, body = "401 Unauthorized", "Log in with a user and a password.\n"
            more = 'WWW-Authenticate: Basic realm="headrace"\r\n'
        elif target == "/metrics":
            status, body = "200 OK", self._metrics.render()
        elif target == "/health":
            problems = self._problems()
            status = "503 Service Unavailable" if problems else "200 OK"
            kind = _JSON
            answer: dict[str, object] = {"healthy": not problems}
            if allowed:
                answer |= {"problems": problems, "warnings": self._warnings()}
            body = json.dumps(answer) + "\n"
        data = body.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
            f"{more}Connection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else data)


async def _is_user(users: "HttpUsers", headers: list[bytes]) -> bool:
    """Whether the headers have the name and the password of a user."""
    from headrace.security.http_users import parse_basic
    from headrace.security.scram import LoginRefused

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
    problems: Callable[[], list[str]],
    warnings: Callable[[], list[str]],
) -> tuple[MetricsPage, Address]:
    """The page as the settings describe it, and where it listens; SettingError if it cannot."""
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

        if tls is None and host not in http_users.LOOPBACK:
            raise SettingError(
                f"{_USERS} is set, and {_ADDRESS}={text} has no TLS: everyone on the way could "
                f"read the passwords. Use https://{address}"
            )
        users = http_users.HttpUsers(_USERS, path)
    return MetricsPage(metrics, problems, warnings, tls, users), Address(host, int(port))
