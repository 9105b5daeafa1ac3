"""The hot messages by hand: Produce and Fetch, requests and responses, in every version.

A generic codec costs more than the rest of the request. Parsing checks the whole request before
anything acts on it: invalid lengths raise MalformedRequest before any log is written.
"""

import struct
from typing import NamedTuple, TypeAlias

from headrace.errors import MalformedRequest
from headrace.wire.results import NO_REPLICA, FetchResult, ProduceResult, Records
from headrace.wire.varint import MAX_TAGGED_FIELDS, read_uvarint, skip_tagged_fields, uvarint

Buffer: TypeAlias = bytearray
TopicKey: TypeAlias = bytes
"""A topic as the request names it: its name in UTF-8, or the 16 bytes of its id."""

_i16 = struct.Struct(">h").unpack_from
_i32 = struct.Struct(">i").unpack_from
_two_i32 = struct.Struct(">ii").unpack_from
_acks_timeout = struct.Struct(">hi").unpack_from
_put_i16 = struct.Struct(">h").pack
_put_i32 = struct.Struct(">i").pack

# ------------------------------------------------------------------------------ Produce requests

ProducePartition: TypeAlias = tuple[int, int, int]
"""Index, and where its records begin and end in the buffer; both are -1 for null records."""

MANY_PRODUCED = 1000
MANY_FETCHED = 2000
"""Requests that list more partitions than this take a slower way, which lets others through."""


class ManyPartitions(Exception):
    """A Produce or Fetch with so many partitions that it is processed in steps."""


PRODUCE_VERSIONS = range(14)
PRODUCE_FIRST_READ = 3
"""Older versions are advertised, as by Kafka, because some clients need that; they are refused."""
PRODUCE_FLEXIBLE_FROM = 9
PRODUCE_TOPIC_IDS_FROM = 13


class ProduceRequest(NamedTuple):
    """A Produce request as positions in the receive buffer."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicKey, list[ProducePartition]]]


def parse_produce(
    buf: Buffer, view: memoryview, pos: int, end: int, version: int
) -> ProduceRequest:
    """The request body in [pos, end)."""
    if version >= PRODUCE_FLEXIBLE_FROM:
        return _parse_flexible_produce(buf, view, pos, end, version)
    if version < PRODUCE_FIRST_READ:
        raise MalformedRequest(
            f"Produce v{version} carries messages of an old format; send v{PRODUCE_FIRST_READ} "
            "or later"
        )
    length = _i16(buf, pos)[0]
    pos += 2
    name = None
    if length >= 0:
        name = _transactional_id(view[pos : pos + length])
        pos += length
    acks, timeout_ms = _acks_timeout(buf, pos)
    count = _i32(buf, pos + 6)[0]
    pos += 10
    topics: list[tuple[TopicKey, list[ProducePartition]]] = []
    listed = 0
    for _ in range(count):
        size = _i16(buf, pos)[0]
        if size < 0 or pos + size > end:
            raise MalformedRequest("a topic name reaches past the end of the request")
        key = bytes(view[pos + 2 : pos + 2 + size])
        pos += 2 + size
        partition_count = _i32(buf, pos)[0]
        pos += 4
        listed += partition_count if partition_count > 0 else 1
        if listed > MANY_PRODUCED:
            raise ManyPartitions
        partitions: list[ProducePartition] = []
        for _ in range(partition_count):
            index, size = _two_i32(buf, pos)
            pos += 8
            if size < 0:
                partitions.append((index, -1, -1))
                continue
            if pos + size > end:
                raise MalformedRequest("a record batch reaches past the end of the request")
            partitions.append((index, pos, pos + size))
            pos += size
        topics.append((key, partitions))
    if pos > end:
        raise MalformedRequest("the Produce request is longer than its frame")
    return ProduceRequest(name, acks, timeout_ms, topics)


def _parse_flexible_produce(
    buf: Buffer, view: memoryview, pos: int, end: int, version: int
) -> ProduceRequest:
    length, pos = read_uvarint(buf, pos)
    name = None
    if length:
        name = _transactional_id(view[pos : pos + length - 1])
        pos += length - 1
    acks, timeout_ms = _acks_timeout(buf, pos)
    count, pos = read_uvarint(buf, pos + 6)
    topics: list[tuple[TopicKey, list[ProducePartition]]] = []
    listed = 0
    for _ in range(count - 1):
        if version >= PRODUCE_TOPIC_IDS_FROM:
            size = 17
        else:
            size, pos = read_uvarint(buf, pos)
        if size == 0 or pos + size > end + 1:
            raise MalformedRequest("a topic name reaches past the end of the request")
        key = bytes(view[pos : pos + size - 1])
        partition_count, pos = read_uvarint(buf, pos + size - 1)
        listed += partition_count if partition_count > 0 else 1
        if listed > MANY_PRODUCED:
            raise ManyPartitions
        partitions: list[ProducePartition] = []
        for _ in range(partition_count - 1):
            index = _i32(buf, pos)[0]
            size, pos = read_uvarint(buf, pos + 4)
            if size == 0:
                partitions.append((index, -1, -1))
            else:
                size += pos - 1
                if size > end:
                    raise MalformedRequest("a record batch reaches past the end of the request")
                partitions.append((index, pos, size))
                pos = size
            pos = pos + 1 if buf[pos] == 0 else skip_tagged_fields(buf, pos)
        topics.append((key, partitions))
        pos = pos + 1 if buf[pos] == 0 else skip_tagged_fields(buf, pos)
    if pos >= end:
        raise MalformedRequest("the Produce request is longer than its frame")
    return ProduceRequest(name, acks, timeout_ms, topics)


def _transactional_id(raw: memoryview) -> str:
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest("the transactional id is not UTF-8") from error


_ONE_ITEM = 2
"""The length of a flexible array that has one item."""
_USUAL_NAME_BYTES = 0x7E
"""Names up to this size have a length of one byte in front."""
_usual_with_name = [
    struct.Struct(f">BhiBB{size}sBiB").unpack_from for size in range(_USUAL_NAME_BYTES + 1)
]
"""By the name's size: transactional id, acks, timeout, topics, name, partitions, index, and the
first byte of the records' size."""
_usual_with_id = struct.Struct(">BhiB16sBiB").unpack_from


def parse_usual_produce(
    buf: Buffer, pos: int, end: int, version: int
) -> tuple[int, TopicKey, int, int, int] | None:
    """A flexible request with one batch and no transactional id, as most producers send it.

    Acks, topic, partition index, and where the batch begins and ends; None where the request is
    of another shape, which is `parse_produce`'s to say.
    """
    if version >= PRODUCE_TOPIC_IDS_FROM:
        no_id, acks, _, topics, key, partitions, index, size = _usual_with_id(buf, pos)
        pos += 30
    else:
        size = buf[pos + 8] - 1
        if not 0 <= size <= _USUAL_NAME_BYTES:
            return None
        pos_after = pos + 15 + size
        no_id, acks, _, topics, _, key, partitions, index, size = _usual_with_name[size](buf, pos)
        pos = pos_after
    if no_id or topics != _ONE_ITEM or partitions != _ONE_ITEM:
        return None
    if size >= 0x80:
        size, pos = read_uvarint(buf, pos - 1)
    stop = pos + size - 1
    # Three empty blocks of tagged fields end the partition, the topic and the request.
    if size == 0 or stop + 3 != end or buf[stop] or buf[stop + 1] or buf[stop + 2]:
        return None
    return acks, key, index, pos, stop


# ----------------------------------------------------------------------------- Produce responses

_produced_v3 = struct.Struct(">ihqq").pack
_produced_v5 = struct.Struct(">ihqqq").pack
_no_error_v8 = b"\0\0\0\0\xff\xff"
_no_error_v9 = b"\x01\0\0"
_throttle_tags = struct.Struct(">iB").pack
_size_correlation = struct.Struct(">ii").pack
_size_correlation_tags = struct.Struct(">iiB").pack


def produce_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    topics: list[tuple[TopicKey, list[ProduceResult]]],
) -> bytes:
    """The whole frame of a Produce response."""
    if version >= PRODUCE_FLEXIBLE_FROM:
        return _flexible_produce_response(version, correlation_id, throttle_ms, topics)
    parts = [b"", _put_i32(len(topics))]
    for key, results in topics:
        parts += (_put_i16(len(key)), key, _put_i32(len(results)))
        for result in results:
            index, error, base = result.partition_index, result.error_code, result.base_offset
            append_time = result.log_append_time
            if version < 5:
                parts.append(_produced_v3(index, error, base, append_time))
                continue
            parts.append(_produced_v5(index, error, base, append_time, result.log_start_offset))
            if version < 8:
                continue
            if result.error_message is None:
                parts.append(_no_error_v8)
            else:
                records = result.record_errors
                parts.append(_put_i32(len(records)))
                parts += [_put_i32(place) + _string(why) for place, why in records]
                parts.append(_string(result.error_message))
    parts.append(_put_i32(throttle_ms))
    body = b"".join(parts)
    return _size_correlation(len(body) + 4, correlation_id) + body


# After the result come: no record errors, no message, two empty blocks of tagged fields, the
# throttle time, and another empty block.
_usual_answer_with_name = [
    struct.Struct(f">iiBBB{size}sBihqqqiiB").pack for size in range(_USUAL_NAME_BYTES + 1)
]
_usual_answer_with_id = struct.Struct(">iiBB16sBihqqqiiB").pack


def usual_produce_response(
    version: int, correlation_id: int, throttle_ms: int, key: TopicKey, index: int, base: int,
    append_time: int, start: int,
) -> bytes:  # fmt: skip
    """The frame for one batch that was appended, to a request that `parse_usual_produce` knew."""
    if version >= PRODUCE_TOPIC_IDS_FROM:
        return _usual_answer_with_id(
            62, correlation_id, 0, _ONE_ITEM, key,
            _ONE_ITEM, index, 0, base, append_time, start, 0x01000000, throttle_ms, 0,
        )  # fmt: skip
    size = len(key)
    return _usual_answer_with_name[size](
        47 + size, correlation_id, 0, _ONE_ITEM, size + 1, key,
        _ONE_ITEM, index, 0, base, append_time, start, 0x01000000, throttle_ms, 0,
    )  # fmt: skip


def _flexible_produce_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    topics: list[tuple[TopicKey, list[ProduceResult]]],
) -> bytes:
    parts = [uvarint(len(topics) + 1)]
    for key, results in topics:
        if version < PRODUCE_TOPIC_IDS_FROM:
            parts.append(uvarint(len(key) + 1))
        parts += (key, uvarint(len(results) + 1))
        for result in results:
            parts.append(
                _produced_v5(
                    result.partition_index, result.error_code, result.base_offset,
                    result.log_append_time, result.log_start_offset,
                )
            )  # fmt: skip
            if result.error_message is None:
                parts.append(_no_error_v9)
                continue
            records = result.record_errors
            parts.append(uvarint(len(records) + 1))
            parts += [_put_i32(place) + _compact_string(why) + b"\0" for place, why in records]
            parts.append(_compact_string(result.error_message) + b"\0")
        parts.append(b"\0")
    parts.append(_throttle_tags(throttle_ms, 0))
    body = b"".join(parts)
    return _size_correlation_tags(len(body) + 5, correlation_id, 0) + body


def _string(text: str) -> bytes:
    raw = text.encode()[:32767]
    return _put_i16(len(raw)) + raw


def _compact_string(text: str) -> bytes:
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


# -------------------------------------------------------------------------------- Fetch requests

FETCH_VERSIONS = range(4, 19)
FETCH_FLEXIBLE_FROM = 12
FETCH_TOPIC_IDS_FROM = 13

FetchPartition: TypeAlias = tuple[int, int, int, int, int, int]
"""Index, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes."""


class FetchRequest(NamedTuple):
    """A Fetch request, whole."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: list[tuple[TopicKey, int]]
    replica_epoch: int = -1
    rack: str = ""


_read_fetch_head = struct.Struct(">iiiib").unpack_from
_read_fetch_head_v15 = struct.Struct(">iiib").unpack_from
_partition_v12 = struct.Struct(">iiqiqi").unpack_from
_replica = struct.Struct(">iq").unpack_from
_partition_v9 = struct.Struct(">iiqqi").unpack_from
_partition_v5 = struct.Struct(">iqqi").unpack_from
_partition_v4 = struct.Struct(">iqi").unpack_from


def parse_fetch(buf: Buffer, view: memoryview, pos: int, end: int, version: int) -> FetchRequest:
    """The request body in [pos, end)."""
    if version >= FETCH_FLEXIBLE_FROM:
        return _parse_flexible_fetch(buf, view, pos, end, version)
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _read_fetch_head(buf, pos)
    pos += 17
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _two_i32(buf, pos)
        pos += 8
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    listed = 0
    count = _i32(buf, pos)[0]
    pos += 4
    for _ in range(count):
        key, pos = _name(buf, view, pos, end)
        partition_count = _i32(buf, pos)[0]
        pos += 4
        listed += partition_count if partition_count > 0 else 1
        if listed > MANY_FETCHED:
            raise ManyPartitions
        partitions: list[FetchPartition] = []
        for _ in range(partition_count):
            if version >= 9:
                index, epoch, offset, start, size = _partition_v9(buf, pos)
                pos += 28
            elif version >= 5:
                index, offset, start, size = _partition_v5(buf, pos)
                epoch = -1
                pos += 24
            else:
                index, offset, size = _partition_v4(buf, pos)
                epoch = start = -1
                pos += 16
            if pos > end:
                raise MalformedRequest("the Fetch request is longer than its frame")
            partitions.append((index, epoch, offset, -1, start, size))
        topics.append((key, partitions))
    forgotten: list[tuple[TopicKey, int]] = []
    if version >= 7:
        count = _i32(buf, pos)[0]
        pos += 4
        for _ in range(count):
            key, pos = _name(buf, view, pos, end)
            pos = _forget(buf, pos + 4, end, key, _i32(buf, pos)[0], forgotten)
    rack = ""
    if version >= 11:
        size = max(_i16(buf, pos)[0], 0)
        pos += 2 + size
        if size:
            rack = str(view[pos - size : pos], "utf-8")
    if pos > end:
        raise MalformedRequest("the Fetch request is longer than its frame")
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch,
        topics, forgotten, rack=rack,
    )  # fmt: skip


def _parse_flexible_fetch(
    buf: Buffer, view: memoryview, pos: int, end: int, version: int
) -> FetchRequest:
    replica_id = -1
    if version >= 15:
        max_wait_ms, min_bytes, max_bytes, isolation = _read_fetch_head_v15(buf, pos)
        pos += 13
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation = _read_fetch_head(buf, pos)
        pos += 17
    session_id, session_epoch = _two_i32(buf, pos)
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    listed = 0
    count, pos = read_uvarint(buf, pos + 8)
    for _ in range(count - 1):
        key, pos = _flexible_key(buf, view, pos, end, version)
        partition_count, pos = read_uvarint(buf, pos)
        listed += partition_count if partition_count > 0 else 1
        if listed > MANY_FETCHED:
            raise ManyPartitions
        partitions: list[FetchPartition] = []
        for _ in range(partition_count - 1):
            partitions.append(_partition_v12(buf, pos))
            pos += 32
            pos = pos + 1 if buf[pos] == 0 else skip_tagged_fields(buf, pos)
            if pos > end:
                raise MalformedRequest("the Fetch request is longer than its frame")
        topics.append((key, partitions))
        pos = pos + 1 if buf[pos] == 0 else skip_tagged_fields(buf, pos)
    forgotten: list[tuple[TopicKey, int]] = []
    count, pos = read_uvarint(buf, pos)
    for _ in range(count - 1):
        key, pos = _flexible_key(buf, view, pos, end, version)
        partition_count, pos = read_uvarint(buf, pos)
        pos = _forget(buf, pos, end, key, partition_count - 1, forgotten)
        pos = skip_tagged_fields(buf, pos)
    length, pos = read_uvarint(buf, pos)
    rack = ""
    if length > 1:
        rack = str(view[pos : pos + length - 1], "utf-8")
        pos += length - 1
    if pos >= end:
        raise MalformedRequest("the Fetch request is longer than its frame")
    replica_epoch = -1
    if buf[pos]:
        replica_id, replica_epoch = _tagged_replica(buf, pos, end, replica_id)
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch,
        topics, forgotten, replica_epoch, rack,
    )  # fmt: skip


def _tagged_replica(buf: Buffer, pos: int, end: int, replica_id: int) -> tuple[int, int]:
    """From v15 on, a follower names itself in tagged field 1: replica id and its epoch."""
    replica_epoch = -1
    count, pos = read_uvarint(buf, pos)
    if count > MAX_TAGGED_FIELDS:
        raise MalformedRequest(f"{count} tagged fields; at most {MAX_TAGGED_FIELDS} are allowed")
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        if tag == 1 and size >= 12:
            replica_id, replica_epoch = _replica(buf, pos)
        pos += size
        if pos > end:
            raise MalformedRequest("a tagged field reaches past the end of the request")
    return replica_id, replica_epoch


def _name(buf: Buffer, view: memoryview, pos: int, end: int) -> tuple[TopicKey, int]:
    size = _i16(buf, pos)[0]
    if size < 0 or pos + 2 + size > end:
        raise MalformedRequest("a topic name reaches past the end of the request")
    return bytes(view[pos + 2 : pos + 2 + size]), pos + 2 + size


def _flexible_key(
    buf: Buffer, view: memoryview, pos: int, end: int, version: int
) -> tuple[TopicKey, int]:
    if version >= FETCH_TOPIC_IDS_FROM:
        size = 16
    else:
        size, pos = read_uvarint(buf, pos)
        size -= 1
    if size < 0 or pos + size > end:
        raise MalformedRequest("a topic name reaches past the end of the request")
    return bytes(view[pos : pos + size]), pos + size


def _forget(
    buf: Buffer, pos: int, end: int, key: TopicKey, count: int, into: list[tuple[TopicKey, int]]
) -> int:
    if count > 0 and pos + 4 * count > end:
        raise MalformedRequest("the forgotten partitions reach past the end of the request")
    for _ in range(count):
        into.append((key, _i32(buf, pos)[0]))
        pos += 4
    return pos


# ------------------------------------------------------------------------------- Fetch responses

fetched_v12 = struct.Struct(">ihqqqBi").pack
"""Index, error, high watermark, last stable offset, log start, no aborted, preferred replica."""
fetched_v11 = struct.Struct(">ihqqqiii").pack
fetched_v5 = struct.Struct(">ihqqqii").pack
fetched_v4 = struct.Struct(">ihqqii").pack
_fetched_start_v5 = struct.Struct(">ihqqq").pack
_fetched_start_v4 = struct.Struct(">ihqq").pack
_aborted_v12 = struct.Struct(">qqB").pack
_aborted_v4 = struct.Struct(">qq").pack
fetch_head_v12 = struct.Struct(">iBihi").pack
fetch_head_v7 = struct.Struct(">iihi").pack
fetch_head_v4 = struct.Struct(">ii").pack


Chunk: TypeAlias = bytes | Records

INLINE_BYTES = 4 * 1024
"""Records up to this size are read and joined; larger ones go to the socket from the file."""


def fetch_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error: int,
    session_id: int,
    topics: list[tuple[TopicKey, list[FetchResult]]],
) -> list[Chunk]:
    """The whole frame of a Fetch response: bytes, and ranges of files between them."""
    if version >= FETCH_FLEXIBLE_FROM:
        return _flexible_fetch_response(
            version, correlation_id, throttle_ms, error, session_id, topics
        )
    if version >= 7:
        head = fetch_head_v7(correlation_id, throttle_ms, error, session_id)
    else:
        head = fetch_head_v4(correlation_id, throttle_ms)
    parts = [head, _put_i32(len(topics))]
    chunks: list[Chunk] = []
    for key, results in topics:
        parts += (_put_i16(len(key)), key, _put_i32(len(results)))
        for result in results:
            index, code, start = result.partition_index, result.error_code, result.log_start_offset
            high_watermark, stable = result.high_watermark, result.last_stable_offset
            records = result.records
            size = 0 if records is None else records.length
            if result.aborted is not None or result.preferred_replica != NO_REPLICA:
                parts += (_fetched_unusual(version, result), _put_i32(size))
            elif version >= 11:
                parts.append(fetched_v11(index, code, high_watermark, stable, start, -1, -1, size))
            elif version >= 5:
                parts.append(fetched_v5(index, code, high_watermark, stable, start, -1, size))
            else:
                parts.append(fetched_v4(index, code, high_watermark, stable, -1, size))
            if records is not None:
                parts = _add_records(records, parts, chunks)
    return _with_size(chunks, parts)


def _flexible_fetch_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    error: int,
    session_id: int,
    topics: list[tuple[TopicKey, list[FetchResult]]],
) -> list[Chunk]:
    head = fetch_head_v12(correlation_id, 0, throttle_ms, error, session_id)
    parts = [head, uvarint(len(topics) + 1)]
    chunks: list[Chunk] = []
    for key, results in topics:
        if version < FETCH_TOPIC_IDS_FROM:
            parts.append(uvarint(len(key) + 1))
        parts += (key, uvarint(len(results) + 1))
        for result in results:
            if result.aborted is None and result.preferred_replica == NO_REPLICA:
                parts.append(
                    fetched_v12(
                        result.partition_index, result.error_code, result.high_watermark,
                        result.last_stable_offset, result.log_start_offset, 0, -1,
                    )
                )  # fmt: skip
            else:
                parts.append(_fetched_unusual(version, result))
            records = result.records
            if records is None:
                parts.append(b"\x01\0")
            else:
                parts.append(uvarint(records.length + 1))
                parts = _add_records(records, parts, chunks)
                parts.append(b"\0")
        parts.append(b"\0")
    parts.append(b"\0")
    return _with_size(chunks, parts)


def _fetched_unusual(version: int, result: FetchResult) -> bytes:
    """A partition's fields up to its records, with aborted transactions or a preferred replica."""
    aborted = result.aborted or []
    fields = (
        result.partition_index, result.error_code, result.high_watermark,
        result.last_stable_offset, result.log_start_offset,
    )  # fmt: skip
    parts = [_fetched_start_v5(*fields) if version >= 5 else _fetched_start_v4(*fields[:4])]
    if version >= FETCH_FLEXIBLE_FROM:
        parts.append(uvarint(len(aborted) + 1))
        parts += [_aborted_v12(producer_id, first, 0) for producer_id, first in aborted]
    else:
        parts.append(_put_i32(len(aborted)))
        parts += [_aborted_v4(producer_id, first) for producer_id, first in aborted]
    if version >= 11:
        parts.append(_put_i32(result.preferred_replica))
    return b"".join(parts)


def _add_records(records: Records, parts: list[bytes], chunks: list[Chunk]) -> list[bytes]:
    """Records joined to the bytes so far if they are small, else a chunk of their own."""
    if records.length <= INLINE_BYTES:
        parts.append(records.read())
        return parts
    chunks.append(b"".join(parts))
    chunks.append(records)
    return []


def fetch_body(version: int, topics: list[tuple[TopicKey, list[FetchResult]]]) -> list[Chunk]:
    """A part of the array of topics of a Fetch response, without the length of the array."""
    chunks = fetch_response(version, 0, 0, 0, 0, topics)
    head = chunks[0]
    assert isinstance(head, bytes), "a response begins with its size"
    chunks[0] = head[len(_fetch_head(version, 0, 0, 0, len(topics))) + 4 :]
    if version >= FETCH_FLEXIBLE_FROM:
        tail = chunks[-1]
        assert isinstance(tail, bytes), "a response ends with its tagged fields"
        chunks[-1] = tail[:-1]
    return chunks


def join_fetch_bodies(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    session_id: int,
    topics: int,
    bodies: list[Chunk],
) -> list[Chunk]:
    """The whole frame of a Fetch response, of parts that `fetch_body` made."""
    head = _fetch_head(version, correlation_id, throttle_ms, session_id, topics)
    tail = [b"\0"] if version >= FETCH_FLEXIBLE_FROM else []
    return _with_size([head, *bodies], tail)


def _fetch_head(
    version: int, correlation_id: int, throttle_ms: int, session_id: int, topics: int
) -> bytes:
    if version >= FETCH_FLEXIBLE_FROM:
        return fetch_head_v12(correlation_id, 0, throttle_ms, 0, session_id) + uvarint(topics + 1)
    if version >= 7:
        return fetch_head_v7(correlation_id, throttle_ms, 0, session_id) + _put_i32(topics)
    return fetch_head_v4(correlation_id, throttle_ms) + _put_i32(topics)


def _with_size(chunks: list[Chunk], parts: list[bytes]) -> list[Chunk]:
    tail = b"".join(parts)
    if not chunks:
        return [_put_i32(len(tail)) + tail]
    if tail:
        chunks.append(tail)
    size = 0
    for chunk in chunks:
        size += len(chunk) if isinstance(chunk, bytes) else chunk.length
    chunks[0] = _put_i32(size) + chunks[0]  # type: ignore[operator]  # the head is always bytes
    return chunks
