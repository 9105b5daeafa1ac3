"""Record batches of magic 2, seen from outside: the header, the checksum, rewriting in place.

The layout, big-endian, of what Produce carries, the disk holds and Fetch sends:

     0  base_offset              int64   written by the broker
     8  batch_length             int32   bytes that follow this field
    12  partition_leader_epoch   int32   written by the broker
    16  magic                    int8    2
    17  crc                      uint32  CRC-32C of everything after this field
    21  attributes               int16   bits 0-2 codec, 3 log-append time, 4 transactional,
                                         5 control, 6 delete horizon
    23  last_offset_delta        int32
    27  base_timestamp           int64
    35  max_timestamp            int64
    43  producer_id              int64
    51  producer_epoch           int16
    53  base_sequence            int32
    57  record_count             int32
    61  records                  (compressed as one block if the codec says so)

Offset and epoch stand before the checksummed part, so the broker stamps them into a client's
bytes without touching the rest. Single records are the business of `records.py`.
"""

import struct
from typing import TypeAlias

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.checksum import crc32c

Header: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

HEADER = struct.Struct(">qiiBIhiqqqhii")
HEADER_BYTES = 61
OVERHEAD = 12
CHECKSUMMED_FROM = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35

_unpack = HEADER.unpack_from
_put_crc = struct.Struct(">I").pack_into
_put_attributes = struct.Struct(">h").pack_into
_put_timestamp = struct.Struct(">q").pack_into


def read_header(buf: bytes | bytearray | memoryview, pos: int) -> Header:
    """The thirteen fields of the batch header at `pos`; the caller has checked that it fits."""
    return _unpack(buf, pos)


def checked_header(
    buf: bytes | bytearray | memoryview, view: memoryview, pos: int, end: int
) -> Header:
    """The header of the one whole batch in [pos, end), or the error that the producer deserves."""
    if end - pos < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the record batch is shorter than its header")
    header = _unpack(buf, pos)
    if header[3] != MAGIC:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE if header[3] > MAGIC else ErrorCode.INVALID_RECORD,
            f"record batches must have magic 2, not {header[3]}",
        )
    if header[1] != end - pos - OVERHEAD:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE
            if header[1] > end - pos - OVERHEAD or header[1] < 49
            else ErrorCode.INVALID_RECORD,
            "a Produce request holds exactly one whole record batch per partition",
        )
    if crc32c(view[pos + CHECKSUMMED_FROM : end]) != header[4]:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the record batch's CRC-32C does not match")
    if header[12] != header[6] + 1 or header[12] <= 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batch says {header[12]} records but its last offset delta is {header[6]}",
        )
    return header


def stamp_append_time(buf: bytearray, view: memoryview, pos: int, end: int, now_ms: int) -> None:
    """Give the whole batch the broker's time, as `message.timestamp.type=LogAppendTime` asks."""
    attributes = _unpack(buf, pos)[5]
    _put_attributes(buf, pos + ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    _put_timestamp(buf, pos + MAX_TIMESTAMP_AT, now_ms)
    _put_crc(buf, pos + CRC_AT, crc32c(view[pos + CHECKSUMMED_FROM : end]))


def put_max_timestamp(
    buf: bytearray, view: memoryview, pos: int, end: int, max_timestamp: int
) -> None:
    """Correct the maximum timestamp of the batch in [pos, end), and its checksum."""
    _put_timestamp(buf, pos + MAX_TIMESTAMP_AT, max_timestamp)
    _put_crc(buf, pos + CRC_AT, crc32c(view[pos + CHECKSUMMED_FROM : end]))


def put_checksum(buf: bytearray) -> None:
    """Write the checksum of the one whole batch in `buf`."""
    _put_crc(buf, CRC_AT, crc32c(memoryview(buf)[CHECKSUMMED_FROM:]))
