"""Fault injection for tests of clients: errors, delays, closed connections, a moved clock,
and a disk that fails at a named point.

A broker that was started with a fault port accepts commands on it, one JSON object per line, and
answers each with one. Without the port, requests do not pass through this module.
"""

import asyncio
import json
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass

from headrace.apis.context import Caller
from headrace.apis.hot import Answer, CloseConnection, Later, LongProduce
from headrace.apis.records.fetch_sessions import FINAL_EPOCH
from headrace.apis.records.produce import refuse_produce
from headrace.apis.records.waiting_fetches import WaitingFetch
from headrace.apis.routes import API_VERSIONS, FETCH, METADATA, PRODUCE, ROUTES, Route
from headrace.apis.topics.metadata import parse_metadata, refuse_metadata
from headrace.broker.connection import ClientConnection
from headrace.broker.dispatch import Dispatch
from headrace.clock import SystemClock
from headrace.disk.failpoints import Failpoints
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.fast import TopicKey, fetch_response, parse_fetch, parse_produce
from headrace.wire.framing import REQUEST_START_BYTES, frame_response, request_start
from headrace.wire.results import FetchResult
from headrace.wire.varint import skip_tagged_fields


@dataclass(frozen=True, slots=True)
class RequestFault:
    """The fault of one request: an error response, a delay, or a closed connection."""

    kind: str
    code: ErrorCode = ErrorCode.NONE
    seconds: float = 0.0


class Faults:
    """Intercepts requests before dispatch and injects the configured faults."""

    def __init__(self, dispatch: Dispatch, clock: SystemClock, failpoints: Failpoints) -> None:
        self._dispatch = dispatch
        self._clock = clock
        self._failpoints = failpoints
        self._waiting: dict[int, deque[RequestFault]] = {}

    def handle(
        self, connection: ClientConnection, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> Answer | Later:
        """The response of dispatch, unless a fault is queued for this API."""
        waiting = self._waiting.get(request_start(buf, pos)[0])
        if not waiting:
            return self._dispatch.handle(connection, buf, view, pos, end)
        fault = waiting.popleft()
        if fault.kind == "cut":
            raise CloseConnection("injected fault: closed before the request was handled")
        if fault.kind == "error":
            return _refuse(connection.caller, buf, view, pos, end, fault.code)
        frame = bytearray(view[pos:end])
        connection.hold()
        return self._later(connection, frame, fault)

    async def _later(
        self, connection: ClientConnection, frame: bytearray, fault: RequestFault
    ) -> Answer:
        await asyncio.sleep(fault.seconds)
        answer = self._dispatch.handle(connection, frame, memoryview(frame), 0, len(frame))
        if isinstance(answer, Coroutine | LongProduce | WaitingFetch):
            answer = await answer
        if fault.kind == "drop":
            raise CloseConnection("injected fault: closed after the request was handled")
        return answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Execute the commands of one test until it closes the connection."""
        while line := await reader.readline():
            try:
                answer = {"ok": True, **self._execute(json.loads(line))}
                writer.write(json.dumps(answer).encode() + b"\n")
            except (KeyError, ValueError) as error:
                writer.write(json.dumps({"ok": False, "error": str(error)}).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _execute(self, command: dict[str, object]) -> dict[str, object]:
        """Execute a command; further fields of the reply."""
        match command:
            case {"do": "count"}:
                return {"waiting": sum(len(line) for line in self._waiting.values())}
            case {"do": "clear"}:
                self._waiting.clear()
                self._failpoints.clear()
                self._clock.skew_ms = 0
            case {"do": "clock", "skew_ms": int(skew_ms)}:
                self._clock.skew_ms = skew_ms
            case {"do": "disk", "point": str()}:
                self._failpoints.arm_command(command)
            case {"do": "trace"}:
                passed, self._failpoints.trace = self._failpoints.trace, []
                return {"points": passed or []}
            case {"do": ("error" | "delay" | "cut" | "drop") as kind, "api": str(api), **rest}:
                fault = RequestFault(
                    kind,
                    ErrorCode(int(str(rest.get("code", 0)))),
                    float(str(rest.get("seconds", 0))),
                )
                line = self._waiting.setdefault(_route(api).key, deque())
                line.extend([fault] * int(str(rest.get("count", 1))))
            case _:
                raise ValueError(f"unknown command {command}")
        return {}


def _route(name: str) -> Route:
    for route in ROUTES.values():
        if route.name.lower() == name.lower():
            return route
    raise ValueError(f"unknown API {name!r}; known are {[r.name for r in ROUTES.values()]}")


def _refuse(
    caller: Caller, buf: bytearray, view: memoryview, pos: int, end: int, code: ErrorCode
) -> Answer:
    """The response of the request's API, with the error in every error field."""
    key, version, correlation_id, size = request_start(buf, pos)
    route = ROUTES[key]
    flexible = version >= route.flexible_from
    start = pos + REQUEST_START_BYTES + max(size, 0)
    if flexible:
        start = skip_tagged_fields(buf, start)
    if route is PRODUCE:
        produce = parse_produce(buf, view, start, end, version)
        return refuse_produce(caller, produce, code, version, correlation_id)
    if route is FETCH:
        fetch = parse_fetch(buf, view, start, end, version)
        if fetch.session_epoch not in (FINAL_EPOCH, 0):
            return fetch_response(version, correlation_id, 0, code, 0, [])
        topics: list[tuple[TopicKey, list[FetchResult]]] = [
            (topic, [FetchResult(index, code) for index, *_ in partitions])
            for topic, partitions in fetch.topics
        ]
        return fetch_response(version, correlation_id, 0, 0, 0, topics)
    if route is METADATA:
        wanted = parse_metadata(buf, view, start, end, version)
        return frame_response(correlation_id, flexible, refuse_metadata(wanted, code, version))
    if route is API_VERSIONS:
        raise CloseConnection("clients cannot process an error response to ApiVersions")
    from headrace.wire import codec
    from headrace.wire.refusal import refusal

    request = codec.decode(key, version, bytes(view[start:end]), 0)
    response = refusal(key, request, KafkaError(code, "injected fault"))
    return frame_response(correlation_id, flexible, codec.encode(key, version, response))
