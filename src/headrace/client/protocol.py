"""The protocol of one connection to a broker, without I/O: requests and responses as bytes.

A `Conversation` frames requests, numbers them, negotiates the version of each API, and finds and
decodes the responses. It does not use sockets: `connection.py` (blocking) and `aio.py` (asyncio)
transfer the bytes.

Requests and responses are kio's classes. The caller uses the class of the newest version that it
supports; an older broker gets the message in the broker's newest version.
"""

import struct
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from headrace.client.errors import ClientError, UnsupportedVersion, check
from headrace.errors import ErrorCode
from headrace.wire import codec

API_VERSIONS = 18
_API_VERSIONS_VERSION = 3

OLDEST: Mapping[int, int] = {1: 12, 8: 5, 9: 8, 10: 4, 13: 3, 19: 4, 22: 1, 32: 1}
"""The oldest version with the same meaning as the newer ones, if it is not 0."""

_HEAD = struct.Struct(">ihhih")
_RESPONSE_HEAD = struct.Struct(">ii")
RESPONSE_HEAD_BYTES = _RESPONSE_HEAD.size
Message = TypeVar("Message")


class Response(NamedTuple):
    """A response as received: its body is in [start, end) of `data`."""

    version: int
    data: bytearray
    start: int
    end: int


class NotAResponse(Exception):
    """The received bytes are not a response to the oldest pending request."""


class _Sent(NamedTuple):
    correlation_id: int
    api_key: int
    version: int
    flexible: bool


class Conversation:
    """The state of one connection: the broker's versions, and the pending requests."""

    def __init__(self, client_id: str, address: str) -> None:
        self.address = address
        self._client_id = client_id.encode()
        self._versions: dict[int, tuple[int, int]] = {}
        self._waiting: deque[_Sent] = deque()
        self._correlation_id = 0

    # ------------------------------------------------------------------------------ versions

    def version(self, api_key: int, newest: int, oldest: int | None = None) -> int:
        """The newest version of an API, up to `newest`, that the broker supports too."""
        if oldest is None:
            oldest = OLDEST.get(api_key, 0)
        low, high = self._versions.get(api_key, (0, -1))
        version = min(newest, high)
        if version < max(low, oldest):
            supported = f"{low} to {high}" if high >= low else "none"
            raise UnsupportedVersion(
                f"the broker at {self.address} supports versions {supported} of API {api_key}, but "
                f"{oldest} to {newest} are needed; Apache Kafka 3.0 and newer have them"
            )
        return version

    def ask_versions(self) -> bytes:
        """The first request of a connection: ApiVersions."""
        from kio.schema.api_versions.v3.request import ApiVersionsRequest

        from headrace import __version__

        request = ApiVersionsRequest(
            client_software_name="headrace", client_software_version=__version__
        )
        body = codec.encode_request(_API_VERSIONS_VERSION, request)
        return self.frame(API_VERSIONS, _API_VERSIONS_VERSION, body)

    def take_versions(self, response: Response) -> None:
        """Store the broker's versions; ClientError if it is too old."""
        from kio.schema.api_versions.v3.response import ApiVersionsResponse

        (code,) = struct.unpack_from(">h", response.data, response.start)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            raise ClientError(
                f"the broker at {self.address} is too old; Apache Kafka 3.0 or newer is required"
            )
        check(code, f"asking {self.address} for its versions")
        answer = self.decode(response, ApiVersionsResponse)
        self._versions = {
            int(row.api_key): (row.min_version, row.max_version) for row in answer.api_keys
        }

    # ------------------------------------------------------------------------------ requests

    def request(self, message: object) -> bytes:
        """The frame of a request, in the newest version that both sides have."""
        api_key: int = message.__api_key__  # type: ignore[attr-defined]
        newest: int = message.__version__  # type: ignore[attr-defined]
        version = self.version(api_key, newest)
        return self.frame(api_key, version, codec.encode_request(version, message))

    def frame(self, api_key: int, version: int, body: bytes) -> bytes:
        """The frame of a request whose body is encoded already."""
        flexible: bool = codec.request_class(api_key, version).__flexible__  # type: ignore[attr-defined]
        self._correlation_id = self._correlation_id % 0x7FFFFFFF + 1
        name = self._client_id
        size = _HEAD.size - 4 + len(name) + flexible + len(body)
        head = _HEAD.pack(size, api_key, version, self._correlation_id, len(name))
        self._waiting.append(_Sent(self._correlation_id, api_key, version, flexible))
        return b"".join((head, name, b"\0" if flexible else b"", body))

    # ----------------------------------------------------------------------------- responses

    @property
    def is_waiting(self) -> bool:
        """Whether a response is due."""
        return bool(self._waiting)

    def response_bytes(self, head: bytes | bytearray) -> int:
        """How many bytes follow the first eight of the next response; may raise NotAResponse."""
        size: int
        size, correlation_id = _RESPONSE_HEAD.unpack_from(head)
        if not self._waiting or correlation_id != self._waiting[0].correlation_id or size < 4:
            raise NotAResponse(f"sent a frame of {size} bytes that is not a response")
        return size - 4

    def take_response(self, data: bytearray, start: int, end: int) -> Response:
        """The response whose bytes after the first eight are in [start, end) of `data`."""
        sent = self._waiting.popleft()
        # A response to ApiVersions has the old header in every version.
        if sent.flexible and sent.api_key != API_VERSIONS:
            start += 1
        return Response(sent.version, data, start, end)

    def decode(self, response: Response, shape: type[Message]) -> Message:
        """Decode the message of a response; ClientError if it is malformed."""
        try:
            return codec.decode_response(response.version, shape, response.data, response.start)
        except (ValueError, IndexError, struct.error, OverflowError) as error:
            raise ClientError(f"malformed {shape.__name__} from {self.address}: {error}") from error
