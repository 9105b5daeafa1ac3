"""From a frame to its handler: version, decoding, the call, the answer.

Produce, Fetch, Metadata and ApiVersions have paths of their own; everything else goes through the
route table and the codec. A request or response that takes long is worked on in slices
(`apis/slices.py`), and one that names much in parts (`apis/parts.py`); its connection is not read
meanwhile. A handler's KafkaError becomes the answer; a request that is no request
closes its connection; a mistake of ours is logged with its trace and closes the connection too.
"""

import asyncio
import logging
import struct
from collections.abc import Coroutine
from inspect import iscoroutine, isgenerator
from time import perf_counter
from typing import cast

from headrace.apis import api_versions
from headrace.apis.context import RequestContext, Services
from headrace.apis.parts import (
    CUTS,
    PRODUCED,
    CombinedResponse,
    Cut,
    Pace,
    is_large,
    parts,
    prepare,
)
from headrace.apis.records.fetch import Fetch
from headrace.apis.records.fetch_sessions import INITIAL_EPOCH
from headrace.apis.records.produce import LongProduce, Produce, SilentFailure
from headrace.apis.routes import METADATA, PRODUCE, ROUTES, Route
from headrace.apis.topics.metadata import MetadataHandler
from headrace.broker.buffers import LARGEST_KEPT_BYTES
from headrace.broker.connection import Answer, CloseConnection, Connection, Later
from headrace.errors import ErrorCode, KafkaError, MalformedRequest
from headrace.wire.fast import ManyPartitions, parse_fetch
from headrace.wire.framing import (
    REQUEST_START_BYTES,
    frame_large_response,
    frame_response,
    read_client_id,
    request_start,
)
from headrace.wire.steps import Steps
from headrace.wire.usual_fetch import USUAL_FROM
from headrace.wire.varint import skip_tagged_fields

logger = logging.getLogger(__name__)

_UNREADABLE = (MalformedRequest, struct.error, IndexError, UnicodeDecodeError)
_PRODUCE = 0
_FETCH = 1
_FIRST_MAGIC_2_PRODUCE = 3
_PLAIN_ANSWER, _FLEXIBLE_ANSWER = 8, 9
"""Where the body of a response begins: after size, correlation id and tagged fields."""
_LARGE_BYTES = 4096
"""A cold request that is larger than this is decoded in slices."""


class Dispatch:
    """Answers frames with the services of this broker."""

    def __init__(self, services: Services, produce: Produce, fetch: Fetch) -> None:
        self._requests = dict.fromkeys(ROUTES, 0)
        self._services = services
        self._produce = produce
        self._fetch = fetch
        self._metadata = MetadataHandler(services)
        self._slices = services.slices
        self._ranges = [(key, row.min_version, row.max_version) for key, row in ROUTES.items()]

    def requests(self) -> dict[str, int]:
        """How many there were so far, by the API's name; only of those that were asked for."""
        return {ROUTES[key].name: count for key, count in self._requests.items() if count}

    def handle(
        self, connection: Connection, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> Answer | Later:
        """The answer to the request in [pos, end), or the work that will give it."""
        try:
            key, version, correlation_id, size = request_start(buf, pos)
            body = pos + REQUEST_START_BYTES + size if size > 0 else pos + REQUEST_START_BYTES
            if body > end:
                raise MalformedRequest("the request ends within its header")
            if key == _PRODUCE and _FIRST_MAGIC_2_PRODUCE <= version <= 13:
                self._requests[key] += 1
                if version >= 9:
                    body = body + 1 if buf[body] == 0 else skip_tagged_fields(buf, body)
                return self._produce(buf, view, body, end, version, correlation_id)
            if key == _FETCH and 4 <= version <= 18:
                self._requests[key] += 1
                if version >= 12:
                    body = body + 1 if buf[body] == 0 else skip_tagged_fields(buf, body)
                if version >= USUAL_FROM:
                    usual = self._fetch.at_once(buf, body, end, version, correlation_id)
                    if usual is not None:
                        return usual
                fetch = parse_fetch(buf, view, body, end, version)
                answer = self._fetch(fetch, version, correlation_id)
                if not isinstance(answer, list):
                    connection.hold()
                return answer
            return self._handle_cold(
                connection, buf, view, pos, end, key, version, correlation_id, size
            )
        except ManyPartitions:
            connection.hold()
            work = self._produce_many if key == _PRODUCE else self._fetch_many
            return work(bytearray(view[body:end]), version, correlation_id)
        except _UNREADABLE as error:
            raise CloseConnection(f"unreadable request: {error}") from error
        except SilentFailure as error:
            raise CloseConnection(str(error)) from error
        except CloseConnection:
            raise
        except Exception as error:
            logger.exception("a request from %s broke this broker's code", connection.address)
            raise CloseConnection("internal error") from error

    async def _produce_many(self, body: bytearray, version: int, correlation_id: int) -> Answer:
        """Append to very many partitions: as several requests for some of them each."""
        from headrace.wire import codec

        try:
            request = await self._slices.finish(codec.read_steps(_PRODUCE, version, body))
        except _UNREADABLE as error:
            raise CloseConnection(f"unreadable request: {error}") from error
        joined = CombinedResponse(PRODUCED.answers)
        answered = False
        pace = Pace(PRODUCED)
        for part in parts(request, PRODUCED, pace):
            await self._slices.turn()
            began = perf_counter()
            buf = bytearray(codec.encode_request(version, part))
            try:
                answer = self._produce(buf, memoryview(buf), 0, len(buf), version, 0)
                pace.took(perf_counter() - began)
                if iscoroutine(answer) or isinstance(answer, LongProduce):
                    answer = await answer
            except SilentFailure as error:
                raise CloseConnection(str(error)) from error
            if isinstance(answer, bytes):
                shape = codec.response_class(_PRODUCE, version)
                start = _FLEXIBLE_ANSWER if version >= PRODUCE.flexible_from else _PLAIN_ANSWER
                joined.add(codec.decode_response(version, shape, answer, start))
                answered = True
        if not answered:
            return None
        steps = codec.encode_steps(_PRODUCE, version, joined.response())
        flexible = version >= PRODUCE.flexible_from
        return frame_large_response(correlation_id, flexible, [await self._slices.finish(steps)])

    async def _fetch_many(self, body: bytearray, version: int, correlation_id: int) -> Answer:
        """Read very many partitions, in steps."""
        from headrace.apis.records import large_fetch
        from headrace.wire import codec

        try:
            message = await self._slices.finish(codec.read_steps(_FETCH, version, body))
        except _UNREADABLE as error:
            raise CloseConnection(f"unreadable request: {error}") from error
        request = await self._slices.finish(large_fetch.request_steps(message, version))
        if request.session_epoch > INITIAL_EPOCH:
            answer = self._fetch(request, version, correlation_id)
            return answer if isinstance(answer, list) else await answer
        until = perf_counter() + request.max_wait_ms / 1000
        while True:
            read = await self._slices.finish(large_fetch.read_steps(self._fetch, request, version))
            if read.ready or perf_counter() >= until:
                return read.response(correlation_id)
            await asyncio.sleep(large_fetch.AGAIN_S)

    def _handle_cold(
        self,
        connection: Connection,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
        key: int,
        version: int,
        correlation_id: int,
        size: int,
    ) -> Answer | Coroutine[None, None, Answer]:
        route = ROUTES.get(key)
        if route is None:
            raise CloseConnection(f"there is no API with key {key} here")
        self._requests[key] += 1
        if key == api_versions.KEY and not 0 <= version <= api_versions.MAX_VERSION:
            body = api_versions.api_versions_body(self._ranges, 0, ErrorCode.UNSUPPORTED_VERSION)
            return frame_response(correlation_id, False, body)
        if not route.min_version <= version <= route.max_version or key == _PRODUCE:
            raise CloseConnection(
                f"{route.name} v{version} is not spoken here; "
                f"v{route.min_version} to v{route.max_version} are"
            )
        client_id = read_client_id(buf, view, pos + REQUEST_START_BYTES, end, size)
        start = pos + REQUEST_START_BYTES + max(size, 0)
        flexible = version >= route.flexible_from
        if flexible:
            start = skip_tagged_fields(buf, start)
        if key == api_versions.KEY:
            code = ErrorCode.NONE
            if flexible and not api_versions.names_itself_well(buf, view, start, end):
                code = ErrorCode.INVALID_REQUEST
            body = api_versions.api_versions_body(self._ranges, version, code)
            return frame_response(correlation_id, False, body)
        if route.handler is None:
            return self._answer_metadata(connection, buf, view, start, end, version, correlation_id)
        context = RequestContext(version, client_id, connection.caller)
        # A buffer that is not used again need not be copied.
        reused = len(buf) <= LARGEST_KEPT_BYTES
        request = bytes(view[start:end]) if reused else view[start:end]
        return self._answer_cold(route, connection, request, context, correlation_id)

    def _answer_metadata(
        self,
        connection: Connection,
        buf: bytearray,
        view: memoryview,
        start: int,
        end: int,
        version: int,
        correlation_id: int,
    ) -> Answer | Coroutine[None, None, Answer]:
        flexible = version >= METADATA.flexible_from
        listener = connection.caller.listener
        at_once = self._metadata.at_once(buf, view, start, end, version, listener)
        if at_once is not None:
            return frame_response(correlation_id, flexible, at_once)
        if len(buf) <= LARGEST_KEPT_BYTES:
            buf = bytearray(view[start:end])  # the next frame uses the buffer again
            start, end = 0, end - start
        steps = self._metadata.steps(buf, memoryview(buf), start, end, version, listener)
        body = self._slices.begin(steps)
        if isinstance(body, list):
            return frame_response(correlation_id, flexible, b"".join(body))
        connection.hold()
        return self._finish_metadata(body, version, correlation_id)

    async def _finish_metadata(
        self, work: Coroutine[None, None, list[bytes]], version: int, correlation_id: int
    ) -> Answer:
        try:
            body = await work
        except _UNREADABLE as error:
            raise CloseConnection(f"unreadable request: {error}") from error
        except Exception as error:
            logger.exception("Metadata broke this broker's code")
            raise CloseConnection("internal error") from error
        return frame_large_response(correlation_id, version >= METADATA.flexible_from, body)

    def _answer_cold(
        self,
        route: Route,
        connection: Connection,
        body: bytes | memoryview,
        context: RequestContext,
        correlation_id: int,
    ) -> Answer | Coroutine[None, None, Answer]:
        # Imported here, because it takes longer than the rest of the start.
        from headrace.wire import codec

        if len(body) > _LARGE_BYTES:
            connection.hold()
            return self._answer_large(route, body, context, correlation_id)
        request = codec.decode(route.key, context.version, body, 0)
        cut = CUTS.get(route.key)
        if cut is not None and is_large(request, cut):
            connection.hold()
            work = self._handle_parts(route, request, cut, context)
            return self._finish_cold(route, request, work, context, correlation_id)
        response = self._handle_whole(route, request, context)
        if iscoroutine(response) or codec.holds_many(response):
            connection.hold()
            return self._finish_cold(route, request, response, context, correlation_id)
        encoded = codec.encode(route.key, context.version, response)
        return frame_response(correlation_id, context.version >= route.flexible_from, encoded)

    def _handle_whole(self, route: Route, request: object, context: RequestContext) -> object:
        """The response, or a coroutine that will give it."""
        try:
            response = route.answer(self._services, request, context)
            if isgenerator(response):
                return self._slices.begin(cast("Steps[object]", response))
            return response
        except KafkaError as error:
            return _refusal(route, request, error)

    async def _answer_large(
        self, route: Route, body: bytes | memoryview, context: RequestContext, correlation_id: int
    ) -> Answer:
        """The answer to a request that takes long even to decode."""
        from headrace.wire import codec

        try:
            request = await self._slices.finish(
                codec.decode_steps(route.key, context.version, body)
            )
        except _UNREADABLE as error:
            raise CloseConnection(f"unreadable request: {error}") from error
        cut = CUTS.get(route.key)
        if cut is not None and is_large(request, cut):
            response: object = self._handle_parts(route, request, cut, context)
        else:
            response = self._handle_whole(route, request, context)
        return await self._finish_cold(route, request, response, context, correlation_id)

    async def _handle_parts(
        self, route: Route, request: object, cut: Cut, context: RequestContext
    ) -> object:
        """Handle a request as several small ones, and join what they are answered."""
        joined = CombinedResponse(cut.answers)
        pace = Pace(cut)
        for whole in await self._slices.finish(prepare(request, cut)):
            for part in parts(whole, cut, pace):
                await self._slices.turn()
                began = perf_counter()
                response = self._handle_whole(route, part, context)
                if not iscoroutine(response):
                    pace.took(perf_counter() - began)
                else:
                    try:
                        response = await response
                    except KafkaError as error:
                        response = _refusal(route, part, error)
                if not joined.add(response):
                    return joined.response()
        return joined.response()

    async def _finish_cold(
        self,
        route: Route,
        request: object,
        response: object,
        context: RequestContext,
        correlation_id: int,
    ) -> Answer:
        """Wait for a response that is not there yet, and encode it."""
        from headrace.wire import codec

        try:
            if iscoroutine(response):
                response = await response
        except KafkaError as error:
            response = _refusal(route, request, error)
        except Exception as error:
            logger.exception("%s broke this broker's code", route.name)
            raise CloseConnection("internal error") from error
        flexible = context.version >= route.flexible_from
        if not codec.holds_many(response):
            encoded = codec.encode(route.key, context.version, response)
            return frame_response(correlation_id, flexible, encoded)
        steps = codec.encode_steps(route.key, context.version, response)
        return frame_large_response(correlation_id, flexible, [await self._slices.finish(steps)])


def _refusal(route: Route, request: object, error: KafkaError) -> object:
    from headrace.wire.refusal import refusal

    return refusal(route.key, request, error)
