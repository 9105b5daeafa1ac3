"""Record batches of magic 2: the header, the checksum, changes in place.

The layout, big-endian, is the same in Produce requests, on disk and in Fetch responses:

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
    61  records                  (compressed as one block if a codec is set)

Offset and epoch precede the part that the checksum covers, so the broker writes them into a
client's batch without changing the rest. `records.py` decodes single records.
"""

import struct
from typing import NamedTuple, TypeAlias

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.checksum import crc32c

HEADER = struct.Struct(">qiiBIhiqqqhii")
HEADER_BYTES = 61
OVERHEAD = 12
"""The bytes before those that `batch_length` counts."""
CHECKSUMMED_FROM = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35

unpack_header = HEADER.unpack_from
_put_crc = struct.Struct(">I").pack_into
_put_attributes = struct.Struct(">h").pack_into
_put_timestamp = struct.Struct(">q").pack_into

HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `Header` in its order, for code that each Produce, Fetch or scan of a log runs.

It unpacks them into local variables. Creating a `Header` would make a small Produce 5% slower.
"""


class Header(NamedTuple):
    """The fields of a batch before its records, in the order of the layout."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch."""
        return self.batch_length + OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record, or that of the last one before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1


def read_header(buf: bytes | bytearray | memoryview, pos: int) -> Header:
    """The batch header at `pos`; the caller has checked that it fits."""
    return Header._make(unpack_header(buf, pos))


def checked_header(
    buf: bytes | bytearray | memoryview, view: memoryview, pos: int, end: int
) -> HeaderFields:
    """The header of the one whole batch in [pos, end); KafkaError if it is invalid."""
    if end - pos < HEADER_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the record batch is shorter than its header")
    fields: HeaderFields = unpack_header(buf, pos)
    _, length, _, magic, crc, _, last_delta, _, _, _, _, _, count = fields
    if magic != MAGIC:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE if magic > MAGIC else ErrorCode.INVALID_RECORD,
            f"record batches must have magic 2, not {magic}",
        )
    if length != end - pos - OVERHEAD:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE
            if length > end - pos - OVERHEAD or length < HEADER_BYTES - OVERHEAD
            else ErrorCode.INVALID_RECORD,
            "a Produce request holds exactly one whole record batch per partition",
        )
    if crc32c(view[pos + CHECKSUMMED_FROM : end]) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the record batch's CRC-32C does not match")
    if count != last_delta + 1 or count <= 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"the batch has {count} records, but its last offset delta is {last_delta}",
        )
    return fields


def stamp_append_time(buf: bytearray, view: memoryview, pos: int, end: int, now_ms: int) -> None:
    """Set the append time of the whole batch, for `message.timestamp.type=LogAppendTime`."""
    attributes = read_header(buf, pos).attributes
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
