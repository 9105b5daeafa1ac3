"""The ASGI application of a service: from an HTTP request to its handler and a JSON response.

It also serves `/metrics` and `/health`. Parsing HTTP, connections and signals belong to uvicorn
(`server.py`).
"""

import asyncio
import ipaddress
import json
import logging
import time
from collections.abc import Mapping
from typing import Generic, TypeVar

from starlette.types import Receive, Scope, Send

from headrace.security.roles import Role
from headrace.service.errors import HttpError, StartFailure
from headrace.service.http_service import Authenticate, HttpService
from headrace.service.request import Request, parse_query
from headrace.service.request_metrics import RequestMetrics
from headrace.service.responses import HttpAnswer, HttpContent, HttpStream
from headrace.service.routes import HttpRoute, Match, RouteTable
from headrace.service.slices import SLICE, in_slices

R = TypeVar("R", bound=Request)

METRICS_PATH = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4"
HEALTH_PATH = "/health"
"""A service whose routes have it gives an answer of its own."""
LIVE_PATH = "/health/live"
READY_PATH = "/health/ready"
WITHOUT_AUTHENTICATION = frozenset({LIVE_PATH, READY_PATH})
"""Probes of a supervisor such as Kubernetes. They reveal nothing but the status."""
CERTIFICATE_STATE = "certificate"
"""The key in ASGI's state with the distinguished name of the client's certificate."""
BODY_METHODS = frozenset({"PATCH", "POST", "PUT"})
# json.dumps would create an encoder for every response.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class Application(Generic[R]):
    """Serves one service."""

    def __init__(self, service: HttpService[R]) -> None:
        self._service = service
        self._authenticate = service.authenticate
        own_health = any(route.pattern == HEALTH_PATH for route in service.routes)
        self._routes = RouteTable(
            (
                *service.routes,
                *(() if own_health else (HttpRoute("GET", HEALTH_PATH, self._health),)),
                HttpRoute("GET", LIVE_PATH, self._live),
                HttpRoute("GET", READY_PATH, self._ready),
            )
        )
        self._metrics = RequestMetrics(service.name)
        self.start_failure: StartFailure | None = None
        self._stopping = asyncio.Event()
        self._log = logging.getLogger(f"headrace.{service.name}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        started = time.perf_counter()
        method: str = scope["method"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        pattern, status = "unmatched", 200
        extra: Mapping[str, str] = {}
        media_type = self._service.response_types[0]
        try:
            path = scope["raw_path"].decode("ascii", "replace")
            _check_host(self._service.hosts, headers)
            if path == METRICS_PATH:
                await self._send_metrics(scope, headers, send)
                return
            media_type = self._response_type(headers.get(b"accept", b"").decode("latin-1"))
            found = self._find(method, path)
            pattern = found.pattern
            _check_origin(method, headers)
            query = parse_query(scope["query_string"])
            request = self._service.make_request(method, found.path, query, headers)
            request.target = _target(path, scope["query_string"])
            request.client = _client(scope)
            if self._authenticate is not None and pattern not in WITHOUT_AUTHENTICATION:
                await _identify(request, self._authenticate, scope)
                self._check_role(request, found)
            if method in BODY_METHODS:
                request.body = await self._read_body(receive, headers)
            answer = await found.handler(request)
        except HttpError as error:
            status, answer, extra = error.status, error.body, error.headers
        except asyncio.CancelledError:
            status, answer = 503, HttpError(503, "The service is stopping; try again").body
        except Exception as error:
            fields = {"method": method, "path": pattern}
            self._log.exception("%s %s failed", method, pattern, extra={"fields": fields})
            message = f"Internal error: {type(error).__name__}"
            code = self._service.internal_error_code
            status, answer = 500, HttpError(500, message, code=code).body
        if isinstance(answer, HttpAnswer):
            status, extra, answer = answer.status, answer.headers, answer.body
            if answer is None:
                answer = HttpContent(b"", media_type, extra)
        if isinstance(answer, HttpStream):
            await self._send_stream(receive, send, answer)
        elif isinstance(answer, HttpContent):
            extra = {**self._service.response_headers, **answer.headers}
            await _send(send, status, answer.media_type, answer.body, extra)
        else:
            extra = {**self._service.response_headers, **extra}
            await _send(send, status, media_type, await _encoded(answer), extra)
        self._metrics.count(method, pattern, status, time.perf_counter() - started)

    def _find(self, method: str, path: str) -> Match[R]:
        """The row for a path; the service's page handler has all paths that no row has."""
        page = self._service.page
        try:
            return self._routes.find(method, path)
        except HttpError as error:
            if page is None or error.status != 404 or method != "GET":
                raise
            return Match("page", page, {"path": path}, Role.VIEW)

    def _check_role(self, request: R, found: Match[R]) -> None:
        try:
            _check_role(request, found.role)
        except HttpError:
            if self._service.forbidden is not None:
                self._service.forbidden(request, found.pattern, found.role)
            raise

    # --------------------------------------------------------------------------- start and stop

    def end_streams(self) -> None:
        """Streams never end by themselves; a stop would wait for them."""
        self._stopping.set()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """ASGI's lifespan protocol: one message to start, one to stop."""
        await receive()
        try:
            await self._service.start()
        except StartFailure as error:
            self._log.error("cannot start: %s", error)
            self.start_failure = error
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._service.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _send_stream(self, receive: Receive, send: Send, stream: HttpStream) -> None:
        headers = {**self._service.response_headers, "cache-control": "no-store", **stream.headers}
        await send(_head(200, stream.media_type, headers))
        body = asyncio.create_task(self._send_chunks(send, stream))
        ends = {
            body,
            asyncio.create_task(_disconnected(receive)),
            asyncio.create_task(self._stopping.wait()),
        }
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            await stream.chunks.aclose()
        await send({"type": "http.response.body", "body": b""})

    async def _send_chunks(self, send: Send, stream: HttpStream) -> None:
        try:
            async for chunk in stream.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except Exception:
            # The status has been sent. The client sees that the response ends.
            self._log.exception("a stream failed")

    # ------------------------------------------------------------------------------- operations

    async def _send_metrics(self, scope: Scope, headers: dict[bytes, bytes], send: Send) -> None:
        method: str = scope["method"]
        if method != "GET":
            raise HttpError(405, f"HTTP 405 Method Not Allowed: {method}", headers={"allow": "GET"})
        if self._authenticate is not None:
            request = Request(method, {}, {}, headers)
            request.client = _client(scope)
            await _identify(request, self._authenticate, scope)
            _check_role(request, Role.READ)
        page = self._metrics.page(self._service.metrics())
        if self._service.metrics_text is not None:
            page += self._service.metrics_text()
        await _send(send, 200, METRICS_TYPE, page.encode(), self._service.response_headers)

    async def _live(self, _: Request) -> object:
        """The event loop responds."""
        return {"status": "UP"}

    async def _ready(self, _: Request) -> object:
        """The service can do its work."""
        if problem := self._service.health().problem:
            raise HttpError(503, problem)
        return {"status": "UP"}

    async def _health(self, _: Request) -> object:
        """Readiness with details."""
        health = self._service.health()
        if health.problem:
            raise HttpError(503, health.problem, details={"status": "DOWN", **health.details})
        return {"status": "UP", **health.details}

    # ------------------------------------------------------------------------------ the request

    def _response_type(self, accepted: str) -> str:
        known = self._service.response_types
        default = known[0]
        if self._service.page is not None:
            # Browsers ask for pages, scripts and streams of events.
            return default
        if not accepted or "*/*" in accepted or default in accepted or "application/*" in accepted:
            return default
        for media_type in known:
            if media_type in accepted:
                return media_type
        raise HttpError(406, f"HTTP 406 Not Acceptable: responses are {', '.join(known)}")

    async def _read_body(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes:
        """The whole body; raises HttpError 413 or 415 before it is read if the headers tell."""
        media_type = headers.get(b"content-type", b"").decode("latin-1")
        media_type = media_type.partition(";")[0].strip().lower()
        if media_type and media_type not in self._service.body_types:
            expected = self._service.response_types[0]
            raise HttpError(415, f"HTTP 415 Unsupported Media Type: send {expected}")
        limit = self._service.body_bytes
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > limit:
            raise _too_long(limit)
        pieces: list[bytes] = []
        received = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HttpError(400, "The client closed the connection")
            pieces.append(message.get("body", b""))
            received += len(pieces[-1])
            if received > limit:
                raise _too_long(limit)
            if not message.get("more_body"):
                return b"".join(pieces)


def _client(scope: Scope) -> str:
    peer = scope.get("client")
    return f"{peer[0]}:{peer[1]}" if peer else ""


async def _identify(request: Request, authenticate: Authenticate, scope: Scope) -> None:
    """Gives the request its client; raises HttpError if it is not known."""
    request.certificate = scope.get("state", {}).get(CERTIFICATE_STATE)
    request.principal, request.role = await authenticate(request)


def _check_role(request: Request, needed: Role) -> None:
    """Raises HttpError 403 if the role of the client does not suffice."""
    if request.role is not None and request.role < needed:
        raise HttpError(
            403,
            f"HTTP 403 Forbidden: {request.principal} has the role {request.role.name.lower()}, "
            f"and this request needs the role {needed.name.lower()}",
        )


def _target(path: str, query: bytes) -> str:
    return f"{path}?{query.decode('ascii', 'replace')}" if query else path


def _too_long(limit: int) -> HttpError:
    return HttpError(413, f"The body has more than {limit} bytes")


def _check_host(hosts: frozenset[str] | None, headers: dict[bytes, bytes]) -> None:
    """A name that an attacker's DNS points to this address must not reach the service."""
    if hosts is None:
        return
    given = headers.get(b"host", b"").decode("latin-1").lower()
    name = given.rpartition(":")[0] if not given.endswith("]") and ":" in given else given
    if name not in hosts and not _is_ip_address(name):
        raise HttpError(
            403, f"HTTP 403 Forbidden: the host name {name[:100]!r} is not one of this service"
        )


def _is_ip_address(name: str) -> bool:
    """Probes and scrapes use the address of a machine; DNS cannot point it elsewhere."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _check_origin(method: str, headers: dict[bytes, bytes]) -> None:
    """A page of another site in a user's browser must not write on the user's behalf."""
    if method == "GET":
        return
    foreign = headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site")
    origin = headers.get(b"origin")
    if origin is not None and not foreign:
        # Older browsers send no sec-fetch-site.
        foreign = origin.partition(b"://")[2].lower() != headers.get(b"host", b"").lower()
    if foreign:
        raise HttpError(403, "HTTP 403 Forbidden: the request comes from a page of another site")


async def _encoded(answer: object) -> bytes:
    if not isinstance(answer, list) or len(answer) <= SLICE:
        return _ENCODER.encode(answer).encode()
    pieces = [_ENCODER.encode(some).encode()[1:-1] async for some in in_slices(answer)]
    return b"[" + b",".join(pieces) + b"]"


async def _send(
    send: Send, status: int, media_type: str, body: bytes, extra: Mapping[str, str]
) -> None:
    await send(_head(status, media_type, {"content-length": str(len(body)), **extra}))
    await send({"type": "http.response.body", "body": body})


def _head(status: int, media_type: str, headers: Mapping[str, str]) -> dict[str, object]:
    fields = [(b"content-type", media_type.encode())]
    fields += [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": fields}


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
