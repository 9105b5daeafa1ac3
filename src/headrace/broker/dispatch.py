"""Dispatch of frames to handlers: checks the version, decodes, calls, encodes.

Dispatch takes all properties of an API from its row in the route table. The handler of a hot row
gets positions in the receive buffer and returns a frame; for the others the codec decodes requests
and encodes responses. Long requests and responses are handled in slices (`apis/slices.py`), and
requests with many elements in parts (`apis/parts.py`); the connection is not read meanwhile. A
handler's KafkaError becomes the response. A malformed request closes its connection. An unexpected
exception is logged with its traceback and closes the connection too.
"""

import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from importlib import import_module
from inspect import iscoroutine, isgenerator
from time import perf_counter
from typing import Any, TypeVar, cast

from headrace.apis.context import RequestContext, Services
from headrace.apis.hot import Answer, CloseConnection, HotHandler, Later, LongProduce, LongRequest
from headrace.apis.parts import CUTS, CombinedResponse, Cut, Pace, is_large, parts, prepare
from headrace.apis.records.waiting_fetches import WaitingFetch
from headrace.apis.rights import RightCheck, check_before
from headrace.apis.routes import API_VERSIONS, ROUTES, HandlerKind, Route
from headrace.broker.buffers import LARGEST_POOLED_BYTES
from headrace.broker.connection import ClientConnection
from headrace.broker.request_times import RequestTimes
from headrace.errors import KafkaError, MalformedRequest
from headrace.prometheus import Histogram
from headrace.wire.framing import (
    REQUEST_START_BYTES,
    frame_large_response,
    frame_response,
    read_client_id,
    request_start,
)
from headrace.wire.steps import Steps, finish
from headrace.wire.varint import skip_tagged_fields

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

_UNREADABLE = (MalformedRequest, struct.error, IndexError, UnicodeDecodeError)
_SHARED_BY_COLD_REQUESTS = (
    "headrace.apis.error_codes",
    "headrace.wire.codec",
    "headrace.wire.codec_versions",
    "kio.schema.errors",
    "kio.schema.index",
    "kio.schema.request_header.v2.header",
    "kio.schema.response_header.v1.header",
    "kio.schema.types",
)
_LARGE_BYTES = 4096
"""Larger cold requests are decoded in slices."""


def import_codec() -> None:
    """Import what all cold requests share; called in a worker thread, as it takes about 15 ms."""
    for name in _SHARED_BY_COLD_REQUESTS:
        import_module(name)


class _Row:
    """A row of the route table as this broker uses it."""

    __slots__ = (
        "before", "cut", "first", "flexible_from", "handler", "hot", "key", "last", "requests",
        "route", "timed_next", "times",
    )  # fmt: skip

    def __init__(self, route: Route, services: Services) -> None:
        self.route = route
        self.key = route.key
        self.first = route.min_version
        self.last = route.max_version
        self.flexible_from = route.flexible_from
        self.cut: Cut | None = CUTS.get(route.key)
        self.before = tuple(one for one in route.rights if one.check is RightCheck.BEFORE)
        self.requests = 0
        self.times = RequestTimes()
        self.timed_next = 0
        """The number of the request that is timed next."""
        self.handler: Callable[..., Any] | None = None
        """The handler of a cold row; None before the first request."""
        self.hot: Callable[..., Answer | Later] | None = None
        if route.kind is HandlerKind.HOT:
            handler: HotHandler = route.load()(services)
            _check_versions(route, handler)
            self.hot = handler.__call__

    def call(self, services: Services, request: object, context: RequestContext) -> object:
        """Call the handler of a cold row, importing its module at first use."""
        if self.handler is None:
            self.handler = self.route.load()
        return self.handler(services, request, context)


def _check_versions(route: Route, handler: HotHandler) -> None:
    for version in (route.min_version, route.max_version):
        if version not in handler.versions:
            raise ValueError(
                f"the route table has {route.name} v{version}, but its handler decodes only "
                f"v{handler.versions[0]} to v{handler.versions[-1]}"
            )


class Dispatch:
    """Answers frames with the services of this broker."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._rows = {key: _Row(route, services) for key, route in ROUTES.items()}
        self._slices = services.slices
        self._errors = services.errors
        self.fetch_waits = Histogram()
        """How long fetches waited for records, of those that are timed."""
        self.polled_at: Callable[[], float] = perf_counter
        """When the requests at hand were found, by `perf_counter`; 0 if only one was."""
        self._had_client = False
        self.on_first_client: Callable[[], object] = lambda: None
        """Called after the first ApiVersions, with which clients begin."""

    def times(self) -> dict[str, Histogram]:
        """How long requests took, by the API's name (`request_times.py`)."""
        return {
            row.route.name: row.times.seconds
            for row in self._rows.values()
            if row.times.seconds.count
        }

    def requests(self) -> dict[str, int]:
        """The number of requests by API name, without APIs that had none."""
        return {row.route.name: row.requests for row in self._rows.values() if row.requests}

    def handle(
        self, connection: ClientConnection, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> Answer | Later:
        """The response to the request in [pos, end), or an awaitable of it."""
        try:
            key, version, correlation_id, size = request_start(buf, pos)
            body = pos + REQUEST_START_BYTES + size if size > 0 else pos + REQUEST_START_BYTES
            if body > end:
                raise MalformedRequest("the request ends within its header")
            row = self._rows.get(key)
            if row is None:
                raise CloseConnection(f"unknown API key {key}")
            row.requests += 1
            if not row.first <= version <= row.last:
                return self._answer_unsupported(
                    row, connection, buf, view, body, end, version, correlation_id
                )
            if version >= row.flexible_from:
                body = body + 1 if buf[body] == 0 else skip_tagged_fields(buf, body)
            hot = row.hot
            if hot is not None:
                if row.requests < row.timed_next:
                    return hot(connection.caller, buf, view, body, end, version, correlation_id)
                began = self.polled_at() or perf_counter()
                answer = hot(connection.caller, buf, view, body, end, version, correlation_id)
                return self._timed(row, answer, began)
            client_id = read_client_id(buf, view, pos + REQUEST_START_BYTES, end, size)
            context = RequestContext(version, client_id, connection.caller)
            # A buffer that is not reused need not be copied.
            reused = len(buf) <= LARGEST_POOLED_BYTES
            request = bytes(view[body:end]) if reused else view[body:end]
            began = self.polled_at() or perf_counter()
            answer = self._answer_cold(row, connection, request, context, correlation_id)
            return self._timed(row, answer, began)
        except LongRequest as long:
            own = bytearray(view[body:end])
            began = self.polled_at() or perf_counter()
            answer = self._answer_long(long, connection, own, version, correlation_id)
            assert row is not None, "only a handler raises LongRequest"
            return answer if long.waits else self._timed(row, answer, began)
        except CloseConnection:
            raise
        except Exception as error:
            raise _closing(error, connection) from error

    # ----------------------------------------------------------------------------------- times

    def _timed(self, row: _Row, answer: Answer | Later, began: float) -> Answer | Later:
        """The same answer; the time until it is there is counted."""
        now = perf_counter()
        if not self._had_client and row.route is API_VERSIONS:
            self._had_client = True
            self.on_first_client()
        row.timed_next = row.requests + row.times.pause(row.requests, now)
        if answer is None or type(answer) is bytes or type(answer) is list:
            row.times.seconds.observe(now - began)
        elif isinstance(answer, WaitingFetch):
            answer.on_answer = partial(self._fetched, row, now - began, now)
        elif isinstance(answer, Coroutine):
            return _finish_timed(answer, row.times.seconds, began)
        elif isinstance(answer, LongProduce):
            return LongProduce(_finish_timed(answer, row.times.seconds, began))
        return answer

    def _fetched(self, row: _Row, before_s: float, waited_from: float, woken: float) -> None:
        """Count the time of a fetch that waited: the wait is the client's wish, not our work."""
        self.fetch_waits.observe(woken - waited_from)
        row.times.seconds.observe(before_s + perf_counter() - woken)

    # ---------------------------------------------------------------------------- hot requests

    def _answer_unsupported(
        self,
        row: _Row,
        connection: ClientConnection,
        buf: bytearray,
        view: memoryview,
        body: int,
        end: int,
        version: int,
        correlation_id: int,
    ) -> Answer | Later:
        """The response to a request of a version that is not in the route table."""
        if row.route.any_version and row.hot is not None:
            return row.hot(connection.caller, buf, view, body, end, version, correlation_id)
        raise CloseConnection(
            f"{row.route.name} v{version} is not supported; send v{row.first} to v{row.last}"
        )

    def _answer_long(
        self,
        long: LongRequest,
        connection: ClientConnection,
        body: bytearray,
        version: int,
        correlation_id: int,
    ) -> Answer | Coroutine[None, None, Answer]:
        """The response to a hot request that is handled in slices."""
        try:
            answer = long.work(self._slices, connection.caller, body, version, correlation_id)
        except CloseConnection:
            raise
        except Exception as error:
            raise _closing(error, connection) from error
        if isinstance(answer, Coroutine):
            connection.hold()
            return _finish_long(answer, connection)
        return answer

    # --------------------------------------------------------------------------- cold requests

    def _answer_cold(
        self,
        row: _Row,
        connection: ClientConnection,
        body: bytes | memoryview,
        context: RequestContext,
        correlation_id: int,
    ) -> Answer | Coroutine[None, None, Answer]:
        # Imported here, because it takes longer than the rest of the start.
        from headrace.apis.error_codes import count_error_codes
        from headrace.wire import codec

        if len(body) > _LARGE_BYTES:
            connection.hold()
            return self._answer_large(row, body, context, correlation_id)
        request = codec.decode(row.key, context.version, body, 0)
        cut = row.cut
        if cut is not None and is_large(request, cut):
            connection.hold()
            work = self._handle_parts(row, request, cut, context)
            return self._finish_cold(row, request, work, context, correlation_id)
        response = self._handle_whole(row, request, context)
        if iscoroutine(response) or codec.holds_many(response):
            connection.hold()
            return self._finish_cold(row, request, response, context, correlation_id)
        finish(count_error_codes(row.key, response, self._errors))
        encoded = codec.encode(row.key, context.version, response, context.caller.throttle_ms)
        return frame_response(correlation_id, context.version >= row.flexible_from, encoded)

    def _handle_whole(self, row: _Row, request: object, context: RequestContext) -> object:
        """The response, or a coroutine that returns it."""
        try:
            if row.before and context.caller.permissions is not None:
                check_before(row.before, context.caller, request)
            response = row.call(self._services, request, context)
            if isgenerator(response):
                return self._slices.begin(cast("Steps[object]", response))
            return response
        except KafkaError as error:
            return _refusal(row, request, error)

    async def _answer_large(
        self, row: _Row, body: bytes | memoryview, context: RequestContext, correlation_id: int
    ) -> Answer:
        """The response to a request that is decoded in slices."""
        from headrace.wire import codec

        try:
            steps = codec.decode_steps(row.key, context.version, body)
            request = await self._slices.finish(steps)
        except _UNREADABLE as error:
            raise CloseConnection(f"malformed request: {error}") from error
        cut = row.cut
        if cut is not None and is_large(request, cut):
            response: object = self._handle_parts(row, request, cut, context)
        else:
            response = self._handle_whole(row, request, context)
        return await self._finish_cold(row, request, response, context, correlation_id)

    async def _handle_parts(
        self, row: _Row, request: object, cut: Cut, context: RequestContext
    ) -> object:
        """Handle a request as several small ones, and combine their responses."""
        joined = CombinedResponse(cut.answers)
        pace = Pace(cut)
        for whole in await self._slices.finish(prepare(request, cut)):
            for part in parts(whole, cut, pace):
                await self._slices.turn()
                began = perf_counter()
                response = self._handle_whole(row, part, context)
                if not iscoroutine(response):
                    pace.took(perf_counter() - began)
                else:
                    try:
                        response = await response
                    except KafkaError as error:
                        response = _refusal(row, part, error)
                if not joined.add(response):
                    return joined.response()
        return joined.response()

    async def _finish_cold(
        self,
        row: _Row,
        request: object,
        response: object,
        context: RequestContext,
        correlation_id: int,
    ) -> Answer:
        """Await a response, and encode it."""
        from headrace.apis.error_codes import count_error_codes
        from headrace.wire import codec

        try:
            if iscoroutine(response):
                response = await response
        except KafkaError as error:
            response = _refusal(row, request, error)
        except Exception as error:
            logger.exception("unexpected error in the handler of %s", row.route.name)
            raise CloseConnection("internal error") from error
        version, throttle_ms = context.version, context.caller.throttle_ms
        flexible = version >= row.flexible_from
        if not codec.holds_many(response):
            finish(count_error_codes(row.key, response, self._errors))
            encoded = codec.encode(row.key, version, response, throttle_ms)
            return frame_response(correlation_id, flexible, encoded)
        await self._slices.finish(count_error_codes(row.key, response, self._errors))
        steps = codec.encode_steps(row.key, version, response, throttle_ms)
        return frame_large_response(correlation_id, flexible, [await self._slices.finish(steps)])


async def _finish_timed(work: Awaitable[_Answer], seconds: Histogram, began: float) -> _Answer:
    answer = await work
    seconds.observe(perf_counter() - began)
    return answer


async def _finish_long(work: Coroutine[None, None, Answer], connection: ClientConnection) -> Answer:
    try:
        return await work
    except CloseConnection:
        raise
    except Exception as error:
        raise _closing(error, connection) from error


def _closing(error: Exception, connection: ClientConnection) -> CloseConnection:
    """The reason to close a connection, for an exception of its request."""
    if isinstance(error, _UNREADABLE):
        return CloseConnection(f"malformed request: {error}")
    logger.error("unexpected error in a request from %s", connection.address, exc_info=error)
    return CloseConnection("internal error")


def _refusal(row: _Row, request: object, error: KafkaError) -> object:
    from headrace.wire.refusal import refusal

    return refusal(row.key, request, error)
