"""From a frame to its handler: version, decoding, the call, the answer.

Produce, Fetch, Metadata and ApiVersions have paths of their own; everything else goes through the
route table and the codec. A handler's KafkaError becomes the answer; a request that is no request
closes its connection; a mistake of ours is logged with its trace and closes the connection too.
"""

import logging
import struct
from collections.abc import Coroutine
from inspect import iscoroutine

from headrace.apis import api_versions
from headrace.apis.context import Caller, Services
from headrace.apis.fetch import Fetch
from headrace.apis.metadata import Metadata, parse_metadata
from headrace.apis.produce import Produce, SilentFailure
from headrace.apis.routes import ROUTES, Route
from headrace.broker.connection import Answer, CloseConnection, Connection, Later
from headrace.errors import ErrorCode, KafkaError, MalformedRequest
from headrace.wire.fast import parse_fetch
from headrace.wire.framing import (
    REQUEST_START_BYTES,
    frame_response,
    read_client_id,
    request_start,
)
from headrace.wire.usual_fetch import USUAL_FROM
from headrace.wire.varint import skip_tagged_fields

logger = logging.getLogger(__name__)

_UNREADABLE = (MalformedRequest, struct.error, IndexError, UnicodeDecodeError)
_PRODUCE = 0
_FETCH = 1
_FIRST_MAGIC_2_PRODUCE = 3


class Dispatch:
    """Answers frames with the services of this broker."""

    def __init__(self, services: Services, produce: Produce, fetch: Fetch) -> None:
        self._requests = dict.fromkeys(ROUTES, 0)
        self._services = services
        self._produce = produce
        self._fetch = fetch
        self._metadata = Metadata(services)
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
        except _UNREADABLE as error:
            raise CloseConnection(f"unreadable request: {error}") from error
        except SilentFailure as error:
            raise CloseConnection("a produce with acks=0 failed") from error
        except CloseConnection:
            raise
        except Exception as error:
            logger.exception("a request from %s broke this broker's code", connection.address)
            raise CloseConnection("internal error") from error

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
            request = parse_metadata(buf, view, start, end, version)
            return frame_response(correlation_id, flexible, self._metadata(request, version))
        caller = Caller(version, client_id, connection.address)
        return self._answer_cold(route, connection, bytes(view[start:end]), caller, correlation_id)

    def _answer_cold(
        self,
        route: Route,
        connection: Connection,
        body: bytes,
        caller: Caller,
        correlation_id: int,
    ) -> Answer | Coroutine[None, None, Answer]:
        # Imported here, because it takes longer than the rest of the start.
        from headrace.wire import codec
        from headrace.wire.refusal import refusal

        request = codec.decode(route.key, caller.version, body, 0)
        try:
            response = route.answer(self._services, request, caller)
        except KafkaError as error:
            response = refusal(route.key, request, error)
        if iscoroutine(response):
            connection.hold()
            return self._await_cold(route, request, response, caller.version, correlation_id)
        encoded = codec.encode(route.key, caller.version, response)
        return frame_response(correlation_id, caller.version >= route.flexible_from, encoded)

    async def _await_cold(
        self,
        route: Route,
        request: object,
        work: Coroutine[None, None, object],
        version: int,
        correlation_id: int,
    ) -> Answer:
        from headrace.wire import codec
        from headrace.wire.refusal import refusal

        try:
            response = await work
        except KafkaError as error:
            response = refusal(route.key, request, error)
        except Exception as error:
            logger.exception("%s broke this broker's code", route.name)
            raise CloseConnection("internal error") from error
        encoded = codec.encode(route.key, version, response)
        return frame_response(correlation_id, version >= route.flexible_from, encoded)
