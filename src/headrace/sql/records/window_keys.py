"""Keys with a window, in the layout of Kafka Streams.

tumbling, hopping:  key | start, 8 bytes
sessions:           key | end, 8 bytes | start, 8 bytes

Times are milliseconds since 1970, big-endian.
"""

import struct
from typing import NamedTuple

from headrace.sql.records.errors import UnreadableRecord
from headrace.sql.sources import Window

_START = struct.Struct(">q")
_SESSION = struct.Struct(">qq")


class WindowKey(NamedTuple):
    """The key of a record without its window, and the window."""

    key: bytes
    start_ms: int
    end_ms: int | None
    """None if the size of windows is not known."""


def split_key(key: bytes, window: Window) -> WindowKey:
    """The parts of a key; raises UnreadableRecord."""
    suffix = _SESSION if window.kind == "SESSION" else _START
    if len(key) < suffix.size:
        raise UnreadableRecord(f"key: {len(key)} bytes are too few for a window")
    at = len(key) - suffix.size
    if suffix is _SESSION:
        end, start = _SESSION.unpack_from(key, at)
        return WindowKey(key[:at], start, end)
    (start,) = _START.unpack_from(key, at)
    end = None if window.size_ms is None else start + window.size_ms
    return WindowKey(key[:at], start, end)


def join_key(key: bytes, window: Window, start_ms: int, end_ms: int) -> bytes:
    """The key with its window."""
    if window.kind == "SESSION":
        return key + _SESSION.pack(end_ms, start_ms)
    return key + _START.pack(start_ms)
