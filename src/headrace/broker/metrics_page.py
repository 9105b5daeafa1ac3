"""The broker's HTTP endpoint: `GET /metrics` for Prometheus, `GET /health` for health checks.

Off unless `headrace.metrics.address` is given. It implements a minimum of HTTP/1.1: one request per
connection, no body, limits on time and size. Other HTTP interfaces belong in the services.
"""

import asyncio
import json
from collections.abc import Callable

from headrace.broker.metrics import Metrics

_REQUEST_BYTES_MAX = 8192
_REQUEST_S_MAX = 10
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"


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
    ) -> None:
        self._metrics = metrics
        self._problems = problems
        self._warnings = warnings
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one where 0 was asked for. OSError if it is taken."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_REQUEST_BYTES_MAX)
        return int(self._server.sockets[0].getsockname()[1])

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.split(b"\r\n", 1)[0].decode("latin-1")))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a closed connection or a malformed request gets no response
        finally:
            writer.close()

    def _answer(self, request: str) -> bytes:
        method, _, rest = request.partition(" ")
        target = rest.partition(" ")[0].partition("?")[0]
        status, kind, body = "404 Not Found", _TEXT, "There are /metrics and /health.\n"
        if method not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", "Only GET and HEAD.\n"
        elif target == "/metrics":
            status, body = "200 OK", self._metrics.render()
        elif target == "/health":
            problems = self._problems()
            status = "503 Service Unavailable" if problems else "200 OK"
            kind = _JSON
            answer = {
                "healthy": not problems,
                "problems": problems,
                "warnings": self._warnings(),
            }
            body = json.dumps(answer) + "\n"
        data = body.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else data)
