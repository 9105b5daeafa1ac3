"""HTTP around the handlers: reads a bounded body, finds the handler, writes JSON, counts.

Starlette owns start and stop. Its routes are not used: they see a path only after it was decoded.
"""

import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

import starlette.routing
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.registry import limits
from headrace.registry.call import Call
from headrace.registry.failures import RegistryError, bad_request
from headrace.registry.metrics import Metrics
from headrace.registry.routes import Router
from headrace.registry.service import Registry
from headrace.registry.slices import in_slices

log = logging.getLogger("headrace.registry")

V1 = "application/vnd.schemaregistry.v1+json"
ANSWER_TYPES = (V1, "application/vnd.schemaregistry+json", "application/json")
# json.dumps would make one for every answer.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
BODY_TYPES = frozenset({*ANSWER_TYPES, "application/octet-stream"})


def build(registry: Registry) -> ASGIApp:
    """The application; it starts the registry before it takes requests."""

    @asynccontextmanager
    async def life(_: object) -> AsyncIterator[None]:
        await registry.start()
        yield
        await registry.stop()

    return starlette.routing.Router(redirect_slashes=False, default=Http(registry), lifespan=life)


class Http:
    """The ASGI application for requests."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._router = Router()
        self._metrics = Metrics(registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        headers = dict(scope["headers"])
        pattern, status = "unmatched", 200
        kind = V1
        try:
            kind = _answer_type(headers.get(b"accept", b"").decode("latin-1"))
            path = scope["raw_path"].decode("ascii", "replace")
            if path == "/metrics":
                await _send(send, 200, "text/plain; version=0.0.4", self._metrics.text().encode())
                return
            found = self._router.find(scope["method"], path)
            pattern = found.pattern
            _check_origin(scope["method"], headers)
            body = await _read(receive, headers) if scope["method"] in ("POST", "PUT") else b""
            query = _query(scope["query_string"])
            answer = await found.handler(
                Call(self._registry, found.path, query, body, found.context)
            )
        except RegistryError as error:
            status = error.status
            answer = {"error_code": error.code, "message": error.message}
        except UnicodeDecodeError:
            status = 400
            answer = {"error_code": 400, "message": "The path or the query is not UTF-8"}
        except Exception as error:
            log.exception("%s %s failed", scope["method"], pattern)
            status = 500
            answer = {"error_code": 50001, "message": f"Internal error: {type(error).__name__}"}
        await _send(send, status, kind, await _encoded_in_slices(answer))
        self._metrics.count(scope["method"], pattern, status, time.perf_counter() - started)


def encoded(answer: object) -> bytes:
    return _ENCODER.encode(answer).encode()


async def _encoded_in_slices(answer: object) -> bytes:
    if not isinstance(answer, list) or len(answer) <= limits.SLICE:
        return encoded(answer)
    pieces = [encoded(some)[1:-1] async for some in in_slices(answer)]
    return b"[" + b",".join(pieces) + b"]"


def _answer_type(accepted: str) -> str:
    if not accepted or "*/*" in accepted or V1 in accepted or "application/*" in accepted:
        return V1
    for kind in ANSWER_TYPES:
        if kind in accepted:
            return kind
    raise RegistryError(406, f"HTTP 406 Not Acceptable: answers are {', '.join(ANSWER_TYPES)}")


def _check_origin(method: str, headers: dict[bytes, bytes]) -> None:
    """A page of somebody else's in a user's browser may not write here in his name."""
    if method != "GET" and headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
        raise RegistryError(403, "HTTP 403 Forbidden: a request from another site's page")


async def _read(receive: Receive, headers: dict[bytes, bytes]) -> bytes:
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if kind and kind not in BODY_TYPES:
        raise RegistryError(415, f"HTTP 415 Unsupported Media Type: send {V1}")
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length[:20]) > limits.BODY_BYTES:
        raise _too_long()
    pieces: list[bytes] = []
    received = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad_request("The client went away")
        pieces.append(message.get("body", b""))
        received += len(pieces[-1])
        if received > limits.BODY_BYTES:
            raise _too_long()
        if not message.get("more_body"):
            return b"".join(pieces)


def _too_long() -> RegistryError:
    return RegistryError(413, f"The body has more than {limits.BODY_BYTES} bytes")


def _query(raw: bytes) -> dict[str, list[str]]:
    if not raw:
        return {}
    try:
        return parse_qs(
            raw.decode("ascii", "replace"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=50,
        )
    except ValueError:
        raise bad_request("The query cannot be read") from None


async def _send(send: Send, status: int, kind: str, body: bytes) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", kind.encode()),
                (b"content-length", str(len(body)).encode()),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
