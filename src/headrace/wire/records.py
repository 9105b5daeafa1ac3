"""Decodes and encodes the single records of a batch of magic 2.

Produce and Fetch do not decode records. Searches by timestamp, compaction, the coordinators, the
console and topics with their own codec do. One record, after the batch's header and
decompression (all numbers but the attributes are zigzag variable-length integers):

    length            bytes that follow this field
    attributes        int8, unused
    timestamp delta   from the batch's base timestamp
    offset delta      from the batch's base offset
    key length        -1: no key        key
    value length      -1: no value      value
    header count      then for each: key length, key, value length (-1: none), value
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias, cast

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    OVERHEAD,
    Header,
    put_checksum,
    read_header,
)

Buffer: TypeAlias = bytes | bytearray | memoryview
RecordHeader: TypeAlias = tuple[str, bytes | None]

# Length, attributes, two deltas, two lengths and the header count: a byte each at least.
MIN_RECORD_BYTES = 7

LENGTH_AT = 8
_WHOLE = 1 << 31
_START_BYTES = 8
_MANY_HEADERS = 1000
_NULL = 1
"""The length -1 as a zigzag number."""

_put_int32 = struct.Struct(">i").pack_into
_put_int16 = struct.Struct(">h").pack_into


class Record(NamedTuple):
    """One record; `offset` and `timestamp` are absolute."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()


def iterate(view: Buffer, start: int, end: int, max_decompressed: int) -> Iterator[Record]:
    """The records of the one batch in [start, end); INVALID_RECORD as soon as one is wrong.

    The caller has checked the batch's checksum.
    """
    header = _header(view, start, end)
    payload = unpack(view, start, end, header, max_decompressed)
    return cast("Iterator[Record]", _walk(payload, header, _WHOLE))


def walk_starts(payload: bytes | bytearray, header: Header) -> Iterator[Record | None]:
    """The records in a batch's decompressed payload; INVALID_RECORD as soon as one is wrong.

    For checks of batches that may be large: keys and values are shortened to a few bytes, which
    are enough for a schema id, and very many headers are checked but not returned. None is yielded
    while such headers are checked; other requests run in between.
    """
    return _walk(payload, header, _START_BYTES)


def _walk(payload: bytes | bytearray, header: Header, field_bytes: int) -> Iterator[Record | None]:
    count, attributes = header.record_count, header.attributes
    base_offset, last_delta = header.base_offset, header.last_offset_delta
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if attributes & LOG_APPEND_TIME else None
    if count < 0 or count * MIN_RECORD_BYTES > len(payload):
        raise invalid(f"{count} records cannot fit in {len(payload)} bytes")
    pos, previous = 0, -1
    for _ in range(count):
        pos, timestamp_delta, delta, key, value, headers = _read_record(payload, pos, field_bytes)
        if not previous < delta <= last_delta:
            raise invalid(f"offset delta {delta} after {previous}, with {last_delta} as the last")
        previous = delta
        if headers and isinstance(headers, _ManyHeaders):
            yield from _check_headers(payload, headers)
            headers = ()
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        yield Record(base_offset + delta, timestamp, key, value, headers)
    if pos != len(payload):
        raise invalid(f"{len(payload) - pos} bytes follow the last record")


def encode_batch(
    records: Sequence[Record],
    base_offset: int = 0,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    epoch: int = -1,
    *,
    level: int | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """One batch of `records`, with its checksum.

    The records get consecutive offsets from `base_offset` on; with `last_offset_delta` they keep
    their own offsets, including gaps, as compaction needs.
    """
    base_timestamp = records[0].timestamp if records else -1
    max_timestamp = max((record.timestamp for record in records), default=-1)
    payload = bytearray()
    for index, record in enumerate(records):
        delta = index if last_offset_delta is None else record.offset - base_offset
        _write_record(payload, record, record.timestamp - base_timestamp, delta)
    last = len(records) - 1 if last_offset_delta is None else last_offset_delta
    packed: Buffer = payload
    if codec:
        from headrace.wire.compression import compress

        packed = compress(codec, payload, level)
    out = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        out, 0, base_offset, HEADER_BYTES - OVERHEAD + len(packed), epoch, MAGIC, 0,
        attributes & ~CODEC_MASK | codec, last, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    out += packed
    put_checksum(out)
    return out


def repack(
    old: Buffer, header: Header, payload: bytes | bytearray, codec: int, level: int | None
) -> bytearray:
    """The batch whose header is `old`, with its payload packed by another codec."""
    if codec:
        from headrace.wire.compression import compress

        payload = compress(codec, payload, level)
    out = bytearray(old)
    _put_int32(out, LENGTH_AT, HEADER_BYTES - OVERHEAD + len(payload))
    _put_int16(out, ATTRIBUTES_AT, header.attributes & ~CODEC_MASK | codec)
    out += payload
    put_checksum(out)
    return out


def _step(first: int) -> int:
    """The size of a record by the first byte of its length.

    Negative: a second byte, times 64, is to be added to it. 0: neither.
    """
    if first & 1:
        return 0
    if first >= 0x80:
        return -((first & 0x7F) // 2 + 2)
    return first // 2 + 1 if first // 2 >= MIN_RECORD_BYTES - 1 else 0


STEPS = tuple(_step(first) for first in range(256))


def invalid(why: str) -> KafkaError:
    """The error for records that do not match their batch."""
    return KafkaError(ErrorCode.INVALID_RECORD, f"the record batch is invalid: {why}")


def _header(view: Buffer, start: int, end: int) -> Header:
    if end - start < HEADER_BYTES:
        raise invalid(f"{end - start} bytes are shorter than a batch header")
    header = read_header(view, start)
    if header.magic != MAGIC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"record batches must have magic {MAGIC}, not {header.magic}",
        )
    if header.batch_length != end - start - OVERHEAD:
        raise invalid(
            f"its length is {header.batch_length} bytes instead of {end - start - OVERHEAD}"
        )
    return header


def unpack(
    view: Buffer, start: int, end: int, header: Header, max_decompressed: int
) -> bytes | bytearray:
    """The records, decompressed; a copy, because indexing bytes is faster than a memoryview."""
    packed = memoryview(view)[start + HEADER_BYTES : end]
    codec = header.attributes & CODEC_MASK
    if not codec:
        return bytes(packed)
    from headrace.wire.compression import decompress

    return decompress(codec, packed, max_decompressed)


def _read_record(
    buf: bytes | bytearray, pos: int, field_bytes: int
) -> tuple[int, int, int, bytes | None, bytes | None, "tuple[RecordHeader, ...] | _ManyHeaders"]:
    """The position after the record at `pos`, its deltas, key, value and headers.

    Numbers of one byte, and lengths of two, are read here: a call costs more than reading them.
    """
    try:
        first, second = buf[pos], buf[pos + 1]
        if first & 0x80 and second < 0x80 and not first & 1:
            length, pos = (first & 0x7F | second << 7) >> 1, pos + 2
        else:
            length, pos = read_varint(buf, pos)
        end = pos + length
        if length < MIN_RECORD_BYTES - 1 or end > len(buf):
            raise invalid(f"a record of {length} bytes does not fit")
        pos += 1
        if (first := buf[pos]) & 0x81:
            timestamp_delta, pos = read_varint(buf, pos, 63)
        else:
            timestamp_delta, pos = first >> 1, pos + 1
        first, second = buf[pos], buf[pos + 1]
        if first & 0x80 and second < 0x80 and not first & 1:
            offset_delta, pos = (first & 0x7F | second << 7) >> 1, pos + 2
        else:
            offset_delta, pos = read_varint(buf, pos)
        key: bytes | None
        if buf[pos] == _NULL:
            key, pos = None, pos + 1
        else:
            key, pos = _read_bytes(buf, pos, end, field_bytes)
        value, pos = _read_bytes(buf, pos, end, field_bytes)
        headers: tuple[RecordHeader, ...] | _ManyHeaders = ()
        if not buf[pos]:
            pos += 1
        else:
            count, pos = read_varint(buf, pos)
            if count > _MANY_HEADERS and field_bytes != _WHOLE:
                headers, pos = _ManyHeaders(count, pos, end), end
            else:
                headers, pos = _read_headers(buf, pos, end, count)
    except IndexError:
        raise invalid("a record reaches past its end") from None
    if pos != end:
        raise invalid(f"a record's fields end at byte {pos} and the record at {end}")
    return pos, timestamp_delta, offset_delta, key, value, headers


class _ManyHeaders(NamedTuple):
    """The headers of a record that has very many of them."""

    number: int
    pos: int
    end: int


def _check_headers(buf: bytes | bytearray, headers: _ManyHeaders) -> Iterator[None]:
    left, pos, end = headers
    try:
        while left:
            some = min(left, _MANY_HEADERS)
            _, pos = _read_headers(buf, pos, end, some)
            left -= some
            yield None
    except IndexError:
        raise invalid("a record reaches past its end") from None
    if pos != end:
        raise invalid(f"a record's fields end at byte {pos} and the record at {end}")


def _read_headers(
    buf: bytes | bytearray, pos: int, end: int, count: int
) -> tuple[tuple[RecordHeader, ...], int]:
    # Two lengths of a byte each at least: checked before anything grows with `count`.
    if count < 0 or count * 2 > end - pos:
        raise invalid(f"{count} headers cannot fit in {end - pos} bytes")
    headers: list[RecordHeader] = []
    for _ in range(count):
        name, pos = _read_bytes(buf, pos, end)
        if name is None:
            raise invalid("a header has no key")
        value, pos = _read_bytes(buf, pos, end)
        # As in Apache Kafka, invalid UTF-8 is accepted and shown as U+FFFD.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), pos


def _read_bytes(
    buf: bytes | bytearray, pos: int, end: int, most: int = _WHOLE
) -> tuple[bytes | None, int]:
    length, pos = read_varint(buf, pos)
    if length < 0:
        if length == -1:
            return None, pos
        raise invalid(f"a field has the length {length}")
    stop = pos + length
    if stop > end:
        raise invalid(f"a field of {length} bytes reaches past its record")
    return bytes(buf[pos : stop if length <= most else pos + most]), stop


def read_varint(buf: bytes | bytearray, pos: int, max_shift: int = 28) -> tuple[int, int]:
    """The zigzag number at `pos` and the position after it: 5 bytes at most, or 10 with 63."""
    byte = buf[pos]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), pos + 1
    raw, shift = byte & 0x7F, 7
    while True:
        pos += 1
        byte = buf[pos]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > max_shift:
            raise invalid("a variable-length integer is too long")
    if raw >> (64 if max_shift == 63 else 32):
        raise invalid("a variable-length integer is too large")
    return raw >> 1 ^ -(raw & 1), pos + 1


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(1)
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_bytes(body, name.encode())
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
        return
    write_varint(out, len(data))
    out += data


def write_varint(out: bytearray, value: int) -> None:
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
