"""The usual Fetch of consumers without a session: one partition, no optional fields.

It is decoded with one unpack and encoded with one pack, which takes a third of the time of the
general code in `fast.py`. Other requests are left to that.
"""

import struct
from typing import TypeAlias

from headrace.wire.fast import (
    FETCH_FLEXIBLE_FROM,
    FETCH_TOPIC_IDS_FROM,
    INLINE_BYTES,
    Buffer,
    Chunk,
    TopicKey,
)
from headrace.wire.results import Records
from headrace.wire.varint import uvarint

USUAL_FROM = 11

UsualFetch: TypeAlias = tuple[int, int, int, TopicKey, int, int, int, int]
"""Least bytes, most bytes, isolation, topic, index, leader's epoch, offset, the partition's most
bytes."""

_NAME_BYTES = 0x7E
"""Names up to this size have a length of one byte in flexible versions."""
_ONE_ITEM = 2
"""The length of a flexible array that has one item; an empty one has 1."""
_NOBODY = -1
"""No follower and no session."""
_REPLICA_IN_TAG_FROM = 15

# Replica, wait, least and most bytes, isolation, session, its epoch, topics, name, partitions; the
# partition's index, leader epoch, offset, log start and most bytes; forgotten topics, rack.
_v11 = [struct.Struct(f">iiiibiiih{n}siiiqqiih").unpack_from for n in range(_NAME_BYTES + 1)]
_V11_BYTES = 69
# The same with the last fetched epoch after the offset and empty tagged fields after partition
# and topic; then no forgotten topics, no rack and no tagged field.
_v12 = [struct.Struct(f">iiiibiiBB{n}sBiiqiqi5s").unpack_from for n in range(_NAME_BYTES + 1)]
_V12_BYTES = 65
_v13 = struct.Struct(">iiiibiiB16sBiiqiqi5s").unpack_from
_V13_BYTES = 80
_v15 = struct.Struct(">iiibiiB16sBiiqiqi5s").unpack_from
_V15_BYTES = 76
_NOTHING_MORE = b"\0\0\x01\x01\0"


def parse_usual_fetch(buf: Buffer, pos: int, end: int, version: int) -> UsualFetch | None:
    """The request, from v11 on; None if it has another form."""
    replica = _NOBODY
    if version >= _REPLICA_IN_TAG_FROM:
        if end - pos != _V15_BYTES:
            return None
        (
            _, least, most, isolation, session, session_epoch, topics, key, partitions, index,
            epoch, offset, _, _, bytes_wanted, rest,
        ) = _v15(buf, pos)  # fmt: skip
    elif version >= FETCH_TOPIC_IDS_FROM:
        if end - pos != _V13_BYTES:
            return None
        (
            replica, _, least, most, isolation, session, session_epoch, topics, key, partitions,
            index, epoch, offset, _, _, bytes_wanted, rest,
        ) = _v13(buf, pos)  # fmt: skip
    elif version >= FETCH_FLEXIBLE_FROM:
        size = end - pos - _V12_BYTES
        if not 0 <= size <= _NAME_BYTES:
            return None
        (
            replica, _, least, most, isolation, session, session_epoch, topics, length, key,
            partitions, index, epoch, offset, _, _, bytes_wanted, rest,
        ) = _v12[size](buf, pos)  # fmt: skip
        if length != size + 1:
            return None
    else:
        return _parse_v11(buf, pos, end)
    if (
        topics != _ONE_ITEM
        or partitions != _ONE_ITEM
        or session
        or session_epoch != _NOBODY
        or replica != _NOBODY
        or rest != _NOTHING_MORE
    ):
        return None
    return least, most, isolation, key, index, epoch, offset, bytes_wanted


def _parse_v11(buf: Buffer, pos: int, end: int) -> UsualFetch | None:
    size = end - pos - _V11_BYTES
    if not 0 <= size <= _NAME_BYTES:
        return None
    (
        replica, _, least, most, isolation, session, session_epoch, topics, length, key, partitions,
        index, epoch, offset, _, bytes_wanted, forgotten, rack,
    ) = _v11[size](buf, pos)  # fmt: skip
    if (
        topics != 1
        or partitions != 1
        or length != size
        or session
        or session_epoch != _NOBODY
        or replica != _NOBODY
        or forgotten
        or rack
    ):
        return None
    return least, most, isolation, key, index, epoch, offset, bytes_wanted


# Size, correlation, throttle time, error, session, topics, name, partitions; index, error, high
# watermark, last stable offset, log start, aborted transactions, preferred replica, records.
_answer_v11 = [struct.Struct(f">iiihiih{n}siihqqqiii").pack for n in range(_NAME_BYTES + 1)]
_ANSWER_V11_BYTES = 66
_answer_v12 = [struct.Struct(f">iiBihiBB{n}sBihqqqBi").pack for n in range(_NAME_BYTES + 1)]
_ANSWER_V12_BYTES = 53
_answer_v13 = struct.Struct(">iiBihiB16sBihqqqBi").pack
_ANSWER_V13_BYTES = 68
_ENDS = b"\0\0\0"
"""Empty tagged fields after partition, topic and answer."""


def usual_fetch_response(
    version: int, correlation_id: int, throttle_ms: int, key: TopicKey, index: int,
    high_watermark: int, stable: int, start: int, committed: bool, records: Records,
) -> list[Chunk]:  # fmt: skip
    """The response frame with these records, for a request that `parse_usual_fetch` decoded.

    For `committed` records the list of aborted transactions is empty.
    """
    length = records.length
    if version < FETCH_FLEXIBLE_FROM:
        size = len(key)
        head = _answer_v11[size](
            _ANSWER_V11_BYTES + size + length, correlation_id, throttle_ms, 0, 0, 1, size, key, 1,
            index, 0, high_watermark, stable, start, 0 if committed else -1, -1, length,
        )  # fmt: skip
        return [head + records.read()] if length <= INLINE_BYTES else [head, records]
    length_bytes = uvarint(length + 1)
    after = len(length_bytes) + length + 3
    if version >= FETCH_TOPIC_IDS_FROM:
        head = _answer_v13(
            _ANSWER_V13_BYTES + after, correlation_id, 0, throttle_ms, 0, 0, _ONE_ITEM, key,
            _ONE_ITEM, index, 0, high_watermark, stable, start, committed, -1,
        )  # fmt: skip
    else:
        size = len(key)
        head = _answer_v12[size](
            _ANSWER_V12_BYTES + size + after, correlation_id, 0, throttle_ms, 0, 0, _ONE_ITEM,
            size + 1, key, _ONE_ITEM, index, 0, high_watermark, stable, start, committed, -1,
        )  # fmt: skip
    if length <= INLINE_BYTES:
        return [head + length_bytes + records.read() + _ENDS]
    return [head + length_bytes, records, _ENDS]
