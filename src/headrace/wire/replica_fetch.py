"""The Fetch request and response of followers, versions 15 to 17.

Encoded and decoded by hand, because every follower fetches all records of its partitions. The
records are not copied.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from headrace.wire.varint import read_uvarint, skip_tagged_fields, uvarint

API_KEY = 1
VERSION = 17
OLDEST = 15
"""From this version on the fields that are used here have the same layout."""

_head = struct.Struct(">iiibii").pack
_partition = struct.Struct(">iiqiqi").pack
_replica = struct.Struct(">iq").pack
_answer_head = struct.Struct(">ihi").unpack_from
_answer_partition = struct.Struct(">ihqqq").unpack_from
_i32 = struct.Struct(">i").pack
_UNKNOWN_EPOCH = -1


class PartitionToFetch(NamedTuple):
    """A partition to fetch, and the fetch offset."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    log_start: int


class FetchLimits(NamedTuple):
    """The longest wait and the limits of bytes."""

    wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_bytes: int


class FetchedPartition(NamedTuple):
    """The response for one partition; its batches are in [start, end) of the whole response."""

    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    log_start: int
    start: int
    end: int


class FetchAnswer(NamedTuple):
    """The whole response."""

    error: int
    session_id: int
    partitions: list[FetchedPartition]


def fetch_request(
    replica: tuple[int, int],
    limits: FetchLimits,
    session: tuple[int, int],
    wanted: Iterable[PartitionToFetch],
    forgotten: Iterable[tuple[bytes, int]],
) -> bytes:
    """The body of a Fetch by (broker, its epoch) in the session (id, epoch)."""
    topics: dict[bytes, list[bytes]] = {}
    for topic_id, index, epoch, offset, log_start in wanted:
        row = _partition(index, epoch, offset, _UNKNOWN_EPOCH, log_start, limits.partition_bytes)
        topics.setdefault(topic_id, []).append(row + b"\0")
    parts = [_head(limits.wait_ms, limits.min_bytes, limits.max_bytes, 0, *session)]
    parts.append(uvarint(len(topics) + 1))
    for topic_id, rows in topics.items():
        parts += (topic_id, uvarint(len(rows) + 1), *rows, b"\0")
    dropped: dict[bytes, list[int]] = {}
    for topic_id, index in forgotten:
        dropped.setdefault(topic_id, []).append(index)
    parts.append(uvarint(len(dropped) + 1))
    for topic_id, indexes in dropped.items():
        parts += (topic_id, uvarint(len(indexes) + 1), *map(_i32, indexes), b"\0")
    # No rack; then one tagged field: 1, the replica state of the follower.
    parts += (b"\x01", b"\x01\x01", uvarint(13), _replica(*replica), b"\0")
    return b"".join(parts)


def read_answer(data: bytearray, pos: int, end: int) -> FetchAnswer:
    """The response body in [pos, end); ValueError, IndexError or struct.error if malformed."""
    _, error, session_id = _answer_head(data, pos)
    found: list[FetchedPartition] = []
    topics, pos = read_uvarint(data, pos + 10)
    for _ in range(topics - 1):
        topic_id = bytes(data[pos : pos + 16])
        partitions, pos = read_uvarint(data, pos + 16)
        for _ in range(partitions - 1):
            index, code, high_watermark, _, log_start = _answer_partition(data, pos)
            aborted, pos = read_uvarint(data, pos + 30)
            for _ in range(aborted - 1):
                pos = skip_tagged_fields(data, pos + 16)
            size, pos = read_uvarint(data, pos + 4)
            start, pos = pos, pos + max(size - 1, 0)
            if pos > end:
                raise ValueError("records exceed the response")
            found.append(
                FetchedPartition(topic_id, index, code, high_watermark, log_start, start, pos)
            )
            pos = skip_tagged_fields(data, pos)
        pos = skip_tagged_fields(data, pos)
    return FetchAnswer(error, session_id, found)
