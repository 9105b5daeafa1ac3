"""ApiVersions (18), versions 0-4.

Lists the APIs and versions of the route table, and the cluster's features. The APIs of client
metrics are listed only if the broker serves /metrics. A request in a version above ours gets a v0
response with UNSUPPORTED_VERSION and our ranges, so that the client can choose a supported version.
The response header is always the plain one, because the client does not know our versions yet.

v1 throttle time; v3 flexible: features in tagged fields, and a client whose software name or
version is invalid is refused with INVALID_REQUEST (KIP-511); v4 also lists supported features whose
lowest level is 0, which older clients reject.
"""

import re
import struct
from collections.abc import Sequence

from headrace.apis.context import Caller, Services
from headrace.apis.routes import API_VERSIONS, CLIENT_TELEMETRY, ROUTES, Route
from headrace.cluster.features import FEATURES, FinalizedFeatures
from headrace.errors import ErrorCode, MalformedRequest
from headrace.settings import Settings
from headrace.wire.framing import frame_response
from headrace.wire.varint import read_uvarint, uvarint

_FLEXIBLE_FROM = 3
_LEVEL_0_FROM = 4
_Levels = tuple[str, int, int]
"""A feature with its lowest and its highest level."""
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


class ApiVersions:
    """Answers ApiVersions requests from the route table."""

    versions = range(5)

    def __init__(self, services: Services) -> None:
        offered = offered_routes(services.settings)
        self._errors = services.errors
        self._metadata = services.metadata
        # Encoded once: every new connection asks.
        ranges = [(row.key, row.min_version, row.max_version) for row in offered]
        self._ranges = struct.pack(">i", len(ranges))
        self._ranges += b"".join(struct.pack(">hhh", *row) for row in ranges)
        self._flexible_ranges = uvarint(len(ranges) + 1)
        self._flexible_ranges += b"".join(struct.pack(">hhhB", *row, 0) for row in ranges)
        self._finalized = services.metadata.image.features
        self._features = _encode_features(self._finalized)

    def __call__(
        self,
        caller: Caller,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
        version: int,
        correlation_id: int,
    ) -> bytes:
        """The response."""
        code = ErrorCode.NONE
        if version not in self.versions:
            version, code = 0, ErrorCode.UNSUPPORTED_VERSION
        elif version >= _FLEXIBLE_FROM and not _take_software(caller, buf, view, pos, end):
            code = ErrorCode.INVALID_REQUEST
        self._errors.add(API_VERSIONS.key, code)
        body = self._body(version, code, struct.pack(">i", caller.throttle_ms))
        return frame_response(correlation_id, False, body)

    def _current_features(self) -> tuple[bytes, bytes]:
        """The encoded features, encoded again after a change of their levels."""
        finalized = self._metadata.image.features
        if finalized is not self._finalized:
            self._finalized, self._features = finalized, _encode_features(finalized)
        return self._features

    def _body(self, version: int, error: ErrorCode, throttle: bytes) -> bytes:
        code = struct.pack(">h", error)
        if version >= _FLEXIBLE_FROM:
            features = self._current_features()[version >= _LEVEL_0_FROM]
            return code + self._flexible_ranges + throttle + features
        return code + self._ranges + (throttle if version >= 1 else b"")


def offered_routes(settings: Settings) -> list[Route]:
    """The APIs that clients are told of.

    As in Apache Kafka, clients are asked to push metrics only if there is a place for them.
    """
    hidden = () if settings.text("headrace.metrics.address") else CLIENT_TELEMETRY
    return [row for row in ROUTES.values() if row not in hidden]


def _encode_features(finalized: FinalizedFeatures) -> tuple[bytes, bytes]:
    """The tagged fields of v3, and of later versions."""
    known = FEATURES.values()
    supported = [(one.name, one.min_level, one.max_level) for one in known]
    levels = [(name, level, level) for name, level in finalized.levels.items() if level]
    return (
        _tagged([row for row in supported if row[1]], finalized.epoch, levels),
        _tagged(supported, finalized.epoch, levels),
    )


def _tagged(supported: Sequence[_Levels], epoch: int, finalized: Sequence[_Levels]) -> bytes:
    """The tagged fields: 0 supported features, 1 the epoch, 2 finalized features."""
    fields = [_array(supported), struct.pack(">q", epoch), _array(finalized)]
    return uvarint(len(fields)) + b"".join(
        uvarint(tag) + uvarint(len(value)) + value for tag, value in enumerate(fields)
    )


def _array(rows: Sequence[_Levels]) -> bytes:
    return uvarint(len(rows) + 1) + b"".join(
        uvarint(len(name) + 1) + name.encode() + struct.pack(">hhB", low, high, 0)
        for name, low, high in rows
    )


def _take_software(caller: Caller, buf: bytearray, view: memoryview, pos: int, end: int) -> bool:
    """Note the client's software name and version (v3 and later); whether they are valid."""
    found = []
    for _ in range(2):
        size, pos = read_uvarint(buf, pos)
        if size == 0 or pos + size - 1 > end:
            raise MalformedRequest("the client's software name reaches past the end of the request")
        text = bytes(view[pos : pos + size - 1]).decode("ascii", "replace")
        if not _SOFTWARE_NAME.fullmatch(text):
            return False
        found.append(text)
        pos += size - 1
    caller.software_name, caller.software_version = found
    return True
