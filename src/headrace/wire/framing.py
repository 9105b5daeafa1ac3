"""Frames: the size, the request header, the response header.

A frame on the wire is `size int32`, then `api_key int16, api_version int16, correlation_id int32,
client_id nullable string` (and tagged fields, where the API's version is flexible), then the body.
"""

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from headrace.errors import MalformedRequest

if TYPE_CHECKING:
    from headrace.wire.fast import Chunk

SIZE_BYTES = 4
MIN_REQUEST_BYTES = 8
"""API key, version and correlation id; MalformedRequest if the frame is too short."""

frame_size = struct.Struct(">i").unpack_from
request_start = struct.Struct(">hhih").unpack_from
REQUEST_START_BYTES = 10

_SIMPLE_HEADER = struct.Struct(">ii").pack
_FLEXIBLE_HEADER = struct.Struct(">iiB").pack


def read_client_id(buf: bytearray, view: memoryview, pos: int, end: int, length: int) -> str:
    """The client id whose length was just read; a length of -1 means null."""
    if length < 0:
        return ""
    if pos + length > end:
        raise MalformedRequest("the client id reaches past the end of the request")
    try:
        return str(view[pos : pos + length], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequest("the client id is not UTF-8") from error


def response_body_start(flexible_header: bool) -> int:
    """The position of the body in a response frame: after size, correlation id and tags."""
    return 9 if flexible_header else 8


def frame_response(correlation_id: int, flexible_header: bool, body: bytes) -> bytes:
    """A whole response frame around an encoded body."""
    if flexible_header:
        return _FLEXIBLE_HEADER(len(body) + 5, correlation_id, 0) + body
    return _SIMPLE_HEADER(len(body) + 4, correlation_id) + body


def frame_large_response(
    correlation_id: int, flexible_header: bool, body: Sequence[bytes | bytearray]
) -> "list[Chunk]":
    """As `frame_response`, around a body in pieces, which are not copied."""
    size = sum(map(len, body))
    if flexible_header:
        head = _FLEXIBLE_HEADER(size + 5, correlation_id, 0)
    else:
        head = _SIMPLE_HEADER(size + 4, correlation_id)
    return [head, *cast("Sequence[bytes]", body)]
