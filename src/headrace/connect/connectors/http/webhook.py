"""The webhook source: listens, and receives the bodies of requests into a topic."""

import asyncio
import contextlib
import ipaddress
import json
import logging
import queue
import socket
import ssl
import threading
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.connect.connectors.http.admission import (
    Admission,
    Refused,
    is_signed,
    is_token,
    read_body,
)
from headrace.connect.connectors.json_lines import json_batches
from headrace.connect.plugin import (
    HEADERS_TYPE,
    REQUIRED,
    Option,
    OptionError,
    Password,
    PushSource,
    Received,
    SourceStream,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from starlette.requests import Request
    from starlette.responses import Response

IDLE_S = 0.25
ENDS_WITHIN_S = 5.0
MOST_WAITING = 10_000
RETRY_AFTER_S = 5
KEY, VALUE, HEADERS = "key", "value", "headers"
PATH, QUERY = "http.path", "http.query"
"""Headers of records with the address of the request."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class WaitingRequest:
    """A request whose rows are on their way into the topic."""

    rows: Sequence[Mapping[str, object]]
    """Empty if it has waited too long: its client sends it again."""
    done: "asyncio.Future[bool]"
    """Whether the rows are in the topic; False if the connector ends before it is known."""
    last: int = 0
    """The number of its last row."""


@dataclass(slots=True)
class _Server:
    """The running server: its thread and loop, and the requests that wait."""

    uvicorn: Any
    thread: threading.Thread | None = None
    loop: asyncio.AbstractEventLoop | None = None
    arrived: "queue.Queue[WaitingRequest]" = field(
        default_factory=lambda: queue.Queue(MOST_WAITING)
    )
    taken: deque[WaitingRequest] = field(default_factory=deque)
    """Requests whose rows the host has, in the order of their arrival."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Of `taken`, which two threads of the host use."""

    def answer(self, upto: int) -> None:
        """The rows up to this number are in the topic."""
        with self.lock:
            while self.taken and self.taken[0].last <= upto:
                self._finish(self.taken.popleft(), True)

    def end(self) -> None:
        """Stop. Requests that wait get status 503: it is unknown whether their rows are stored."""
        self.uvicorn.should_exit = True
        with self.lock:
            while self.taken:
                self._finish(self.taken.popleft(), False)
        while not self.arrived.empty():
            self._finish(self.arrived.get(), False)
        if self.thread is not None:
            self.thread.join(ENDS_WITHIN_S)

    def _finish(self, request: WaitingRequest, stored: bool) -> None:
        def finish() -> None:
            if not request.done.done():
                request.done.set_result(stored)

        assert self.loop is not None, "a request has come"
        with contextlib.suppress(RuntimeError):  # The loop is closed, and so is the connection.
            self.loop.call_soon_threadsafe(finish)


class WebhookSource(PushSource):
    """Listens for HTTP requests, and receives their bodies, at least once.

    A request is answered with status 200 when its records are in the topic. A client that gets
    another answer, or none, sends it again.
    """

    options = (
        Option("port", int, REQUIRED, "The port to listen on.", importance="high"),
        Option("host", str, "127.0.0.1", "The address to listen on.", importance="high"),
        Option("path", str, "/", "The path of the requests; others get status 404."),
        Option("topic", str, REQUIRED, "The topic.", importance="high"),
        Option(
            "format",
            str,
            "bytes",
            "What a body is: bytes, string, or json with the columns of schema.",
            ("bytes", "string", "json"),
        ),
        Option("schema", str, "", "The columns of format=json as DDL."),
        Option("key.header", str, "", "The header of the request that is the record's key."),
        Option(
            "record.headers",
            list[str],
            ["content-type", "traceparent", "tracestate"],
            "Headers of the request that become headers of the record.",
        ),
        Option("token", Password, "", "Requests must have it, as `Authorization: Bearer TOKEN`."),
        Option("signature.secret", Password, "", "The secret with which requests are signed."),
        Option(
            "signature.header",
            str,
            "X-Hub-Signature-256",
            "The header with the HMAC-SHA-256 of the body, as `sha256=` and hexadecimal digits.",
        ),
        Option("body.max.bytes", int, 1_048_576, "Longer bodies get status 413."),
        Option(
            "waiting.max.bytes",
            int,
            67_108_864,
            "How many bytes of requests may wait; others get status 503 with Retry-After.",
        ),
        Option("response.timeout.ms", int, 30_000, "How long a request waits for its answer."),
        Option(
            "https.ssl.keystore.location",
            str,
            "",
            "A PEM file with the server's certificate and its key; without it the source speaks "
            "HTTP.",
        ),
        Option("https.ssl.key.password", Password, "", "The password of this key."),
    )

    port: int
    host: str
    path: str
    topic: str
    format: str
    key_header: str
    record_headers: Sequence[str]
    token: str
    signature_secret: str
    signature_header: str
    body_max_bytes: int
    waiting_max_bytes: int
    response_timeout_ms: int
    https_ssl_keystore_location: str
    https_ssl_key_password: str

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        if not 1 <= self.port < 65_536:
            raise OptionError("port", "Expected a number from 1 to 65535.")
        if not self.path.startswith("/"):
            raise OptionError("path", f"A path begins with a slash: /{self.path}")
        if (self.format == "json") != bool(self.schema):
            raise OptionError("schema", "format=json needs the columns, and only that.")
        if not (_is_loopback(self.host) or self.token or self.signature_secret):
            raise OptionError(
                "host",
                f"Everyone who reaches {self.host} could write into the topic: set token or "
                "signature.secret.",
            )
        self._tls()
        self._admission = Admission(self.waiting_max_bytes)
        self._server: _Server | None = None

    def check(self) -> None:
        from headrace.connect.connectors.ddl import DdlError

        try:
            self._arrow_schema()
        except DdlError as error:
            raise OptionError("schema", str(error)) from None
        try:
            # Not the port itself, on which this connector may be listening already.
            self._listener(0).close()
        except OSError as error:
            raise OptionError("host", f"Cannot listen on {self.host}: {error}") from None

    def streams(self) -> Sequence[SourceStream]:
        from headrace.connect.connectors.ddl import ddl_type

        kinds = {"bytes": "binary", "string": "string"}
        if self.format == "json":
            import pyarrow as pa

            kind = ddl_type(pa.struct(list(self._arrow_schema())))
        else:
            kind = kinds[self.format]
        columns = f"{KEY} string, {VALUE} {kind}, {HEADERS} {HEADERS_TYPE}"
        return [SourceStream(self.topic, columns, self.partitions(), (KEY,), VALUE, HEADERS)]

    # --------------------------------------------------------------------------------- receiving

    def receive(self) -> Generator[Received | None, None, None]:
        server = self._started()
        number = 0
        try:
            while True:
                try:
                    request = server.arrived.get(timeout=IDLE_S)
                except queue.Empty:
                    if server.thread is None or not server.thread.is_alive():
                        raise ConnectionError("the server of the webhook has ended") from None
                    yield None
                    continue
                rows = request.rows
                if rows:
                    request.last = number + len(rows)
                    with server.lock:
                        server.taken.append(request)
                for row in rows:
                    number += 1
                    yield Received(row, number)
        finally:
            server.end()

    def acknowledge(self, upto: object) -> None:
        assert isinstance(upto, int), "receipts of this source are numbers"
        server = self._server
        assert server is not None, "a message is received before it is acknowledged"
        server.answer(upto)

    def _started(self) -> _Server:
        import uvicorn

        try:
            listener = self._listener(self.port)
        except OSError as error:
            raise ConnectionError(
                f"cannot listen on {self.host}:{self.port}: {error.strerror or error}"
            ) from None
        config = uvicorn.Config(
            self._application,
            interface="asgi3",
            proxy_headers=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        context = self._tls()
        if context is not None:
            config.load()
            config.ssl = context
        server = _Server(uvicorn.Server(config))
        self._server = server
        server.thread = threading.Thread(
            target=server.uvicorn.run, args=([listener],), name="webhook", daemon=True
        )
        server.thread.start()
        log.info("listening on %s:%d", *listener.getsockname()[:2])
        return server

    def _listener(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        return socket.create_server((self.host, port), family=family)

    # ---------------------------------------------------------------------------------- requests

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.requests import Request

        response = await self._response(Request(scope, receive))
        await response(scope, receive, send)

    async def _response(self, request: "Request") -> "Response":
        from starlette.responses import PlainTextResponse

        try:
            taken = await self._taken(request)
        except Refused as refused:
            headers = {"retry-after": str(RETRY_AFTER_S)} if refused.status == 503 else {}
            if refused.status == 401:
                headers["www-authenticate"] = "Bearer"
            return PlainTextResponse(f"{refused}\n", refused.status, headers)
        return PlainTextResponse(f"{taken} records\n")

    async def _taken(self, request: "Request") -> int:
        """The number of records, when they are in the topic; Refused otherwise."""
        if request.url.path.rstrip("/") != self.path.rstrip("/"):
            raise Refused(404, "no such path")
        if request.method not in ("POST", "PUT"):
            raise Refused(405, "send a POST request")
        if self.token and not is_token(request.headers.get("authorization", ""), self.token):
            raise Refused(401, "the token is missing or wrong")
        with self._admission.admitted(request, self.body_max_bytes):
            body = await read_body(request, self.body_max_bytes)
            signature = request.headers.get(self.signature_header, "")
            if self.signature_secret and not is_signed(body, signature, self.signature_secret):
                raise Refused(401, "the signature is missing or wrong")
            return await self._in_topic(self._rows(request, body))

    async def _in_topic(self, rows: Sequence[Mapping[str, object]]) -> int:
        server = self._server
        assert server is not None, "requests come after the start"
        if server.uvicorn.should_exit:
            raise Refused(503, "the connector ends; send it again later")
        server.loop = asyncio.get_running_loop()
        waiting = WaitingRequest(rows, server.loop.create_future())
        if not rows:
            return 0
        try:
            server.arrived.put_nowait(waiting)
            async with asyncio.timeout(self.response_timeout_ms / 1000):
                stored = await waiting.done
        except queue.Full:
            raise Refused(503, "too many requests wait; send it again later") from None
        except TimeoutError:
            waiting.rows = ()
            stored = False
        if not stored:
            raise Refused(503, "the records are not in the topic yet; send them again")
        return len(rows)

    def _rows(self, request: "Request", body: bytes) -> Sequence[Mapping[str, object]]:
        headers = [
            {"key": name, "value": value.encode()}
            for name in self.record_headers
            if (value := request.headers.get(name)) is not None
        ]
        headers.append({"key": PATH, "value": request.url.path.encode()})
        if request.url.query:
            headers.append({"key": QUERY, "value": request.url.query.encode()})
        key = request.headers.get(self.key_header) if self.key_header else None
        return [{KEY: key, VALUE: value, HEADERS: headers} for value in self._values(body)]

    def _values(self, body: bytes) -> Sequence[object]:
        if self.format == "bytes":
            return [body]
        try:
            text = body.decode()
            if self.format == "string":
                return [text]
            found = json.loads(text)
            rows = found if isinstance(found, list) else [found]
            if not all(isinstance(row, dict) for row in rows):
                raise ValueError("expected an object or an array of objects")
            lines = "\n".join(map(json.dumps, rows)).encode()
            return [
                row
                for batch in json_batches(lines, self._arrow_schema())
                for row in batch.to_pylist()
            ]
        except (ValueError, TypeError) as error:  # Arrow's errors are of these kinds
            raise Refused(400, f"the body is not {self.format}: {error}") from None

    def _arrow_schema(self) -> "pa.Schema":
        from headrace.connect.connectors.ddl import arrow_schema

        return arrow_schema(self.schema or f"{VALUE} string")

    def _tls(self) -> ssl.SSLContext | None:
        option, place = "https.ssl.keystore.location", self.https_ssl_keystore_location
        if not place:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(place, password=self.https_ssl_key_password)
        except OSError as error:
            reason = error.strerror if isinstance(error, FileNotFoundError) else "it is no PEM file"
            raise OptionError(option, f"{option} cannot be used: {reason}.") from None
        return context


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
