"""Encodes columns into record batches of magic 2, without a loop over records.

The bytes before, between and after the keys and values are computed for all records at once with
numpy; Arrow joins the pieces. The layouts are in `wire/batch.py` and `wire/records.py`.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.sink.partitioner import parts_of
from headrace.wire.batch import (
    CHECKSUMMED_FROM,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    OVERHEAD,
    TRANSACTIONAL,
)
from headrace.wire.checksum import crc32c
from headrace.wire.compression import LZ4, compress

Ints = npt.NDArray[np.int64]

# A length, attributes, two deltas, two lengths: at most this many bytes in addition to the
# contents.
LARGEST_FRAME_BYTES = 24
LARGEST_TIME_BYTES = 9
# Kafka's clients use lz4's fast mode; the codec's own default is a slow one.
LZ4_FAST = 0


def _scalar(value: bytes) -> pa.BinaryScalar:
    """A scalar without pa.scalar, which imports pandas and delays planning by 0.3 s."""
    bounds = np.array([0, len(value)], np.int32)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(value)]
    return pa.Array.from_buffers(pa.binary(), 1, buffers)[0]


_EMPTY = _scalar(b"")
_NO_HEADERS = _scalar(b"\0")


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """Records as binary arrays of equal length; `headers` is a result of `encode_headers`."""

    keys: pa.BinaryArray | None
    values: pa.BinaryArray
    headers: pa.BinaryArray | None
    times: pa.Int64Array | None = None
    """Milliseconds since 1970; null: the time of the write."""

    def __len__(self) -> int:
        return len(self.values)

    def take(self, order: npt.NDArray[np.int64]) -> "RecordArrays":
        """The records in another order."""
        index = pa.array(order)
        return RecordArrays(
            None if self.keys is None else self.keys.take(index),
            self.values.take(index),
            None if self.headers is None else self.headers.take(index),
            None if self.times is None else self.times.take(index),
        )

    def slice(self, first: int, last: int) -> "RecordArrays":
        """The records [first, last)."""
        return RecordArrays(
            None if self.keys is None else self.keys.slice(first, last - first),
            self.values.slice(first, last - first),
            None if self.headers is None else self.headers.slice(first, last - first),
            None if self.times is None else self.times.slice(first, last - first),
        )

    def sizes(self) -> Ints:
        """An upper bound of each record's size."""
        sizes = np.maximum(lengths(self.values), 0) + LARGEST_FRAME_BYTES
        if self.keys is not None:
            sizes += np.maximum(lengths(self.keys), 0)
        if self.headers is not None:
            sizes += lengths(self.headers)
        if self.times is not None:
            sizes += LARGEST_TIME_BYTES
        return sizes


@dataclass(frozen=True, slots=True)
class Stamp:
    """The fields of a batch header about its producer and its time."""

    producer_id: int
    producer_epoch: int
    transactional: bool
    codec: int
    timestamp_ms: int


def cuts(sizes: Ints, batch_bytes: int) -> list[int]:
    """The bounds of batches; a record larger than a batch gets its own."""
    ends = np.cumsum(sizes)
    bounds = [0]
    while bounds[-1] < len(sizes):
        before = int(ends[bounds[-1] - 1]) if bounds[-1] else 0
        fitting = int(np.searchsorted(ends, before + batch_bytes, side="right"))
        bounds.append(max(bounds[-1] + 1, fitting))
    return bounds


def encode(
    columns: RecordArrays, bounds: list[int], stamp: Stamp, sequences: list[int]
) -> Iterator[bytearray]:
    """One batch for each pair of adjacent `bounds`, with its first sequence number."""
    starts, counts = np.array(bounds[:-1]), np.diff(bounds)
    deltas = np.arange(bounds[-1]) - np.repeat(starts, counts)
    times = firsts = None
    if columns.times is not None and len(columns):
        # The timestamp of a batch is that of its first record.
        times = columns.times.fill_null(stamp.timestamp_ms).to_numpy(zero_copy_only=False)
        firsts = times[starts]
        times = times - np.repeat(firsts, counts)
    offsets, data = parts_of(_records(columns, deltas, times))
    view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
    for place, (start, end) in enumerate(itertools.pairwise(bounds)):
        first = last = stamp.timestamp_ms
        if times is not None and firsts is not None:
            first = int(firsts[place])
            last = first + int(times[start:end].max())
        records = view[int(offsets[start]) : int(offsets[end])]
        yield _batch(records, end - start, stamp, sequences[place], (first, last))


def encode_headers(column: pa.Array) -> pa.BinaryArray:
    """The encoded headers of each record with their number, from a list of (key, value)."""
    lists = column.cast(_HEADER_LIST)
    items = lists.flatten()
    names, values = items.field("key"), items.field("value")
    if names.null_count:
        raise ValueError("the column 'headers' has a header without a key")
    name_sizes, value_sizes = lengths(names), lengths(values)
    each = pc.binary_join_element_wise(
        _varints(name_sizes), names, _varints(value_sizes), _filled(values), _EMPTY
    )
    counts = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), each), _EMPTY)
    return pc.binary_join_element_wise(_varints(counts.astype(np.int64)), joined, _EMPTY)


_HEADER_LIST = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))


def lengths(array: pa.BinaryArray) -> Ints:
    """The length of each value, -1 for null."""
    found: Ints = pc.binary_length(array).fill_null(-1).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


def _records(columns: RecordArrays, deltas: Ints, times: Ints | None) -> pa.BinaryArray:
    """All records, each preceded by its length. `times` are relative to that of their batch."""
    count = len(deltas)
    keys, values = columns.keys, columns.values
    key_sizes = np.full(count, -1, np.int64) if keys is None else lengths(keys)
    value_sizes = lengths(values)
    delta_z, key_z, value_z = deltas << 1, _zigzag(key_sizes), _zigzag(value_sizes)
    delta_n, key_n, value_n = _width(delta_z), _width(key_z), _width(value_z)
    headers = 1 if columns.headers is None else lengths(columns.headers)
    bodies = 2 + delta_n + key_n + np.maximum(key_sizes, 0) + value_n + np.maximum(value_sizes, 0)
    # Attributes and the timestamp's delta are between the length and the offset: two zero bytes,
    # unless records have timestamps of their own.
    time_n: Ints | int = 1
    if times is not None:
        time_z = _zigzag(times)
        time_n = _width(time_z)
        bodies += time_n - 1
    body_z = (bodies + headers) << 1
    body_n = _width(body_z)
    offsets = _offsets(body_n + 1 + time_n + delta_n + key_n)
    head = np.zeros(offsets[-1], np.uint8)
    at = offsets[:-1]
    _put(head, at, body_z, body_n)
    if times is not None:
        _put(head, at + body_n + 1, time_z, _width(time_z))
    _put(head, at + body_n + 1 + time_n, delta_z, delta_n)
    _put(head, at + body_n + 1 + time_n + delta_n, key_z, key_n)
    pieces = [_array(offsets, head)]
    if keys is not None:
        pieces.append(_filled(keys))
    pieces += [_varints(value_sizes), _filled(values)]
    pieces.append(_NO_HEADERS if columns.headers is None else columns.headers)
    return pc.binary_join_element_wise(*pieces, _EMPTY)


def _batch(
    records: memoryview, count: int, stamp: Stamp, sequence: int, times_ms: tuple[int, int]
) -> bytearray:
    """`times_ms` are the timestamps of the first record and of the latest one."""
    packed: bytes | memoryview = records
    if stamp.codec:
        packed = compress(stamp.codec, records, LZ4_FAST if stamp.codec == LZ4 else None)
    out = bytearray(HEADER_BYTES)
    attributes = stamp.codec | (TRANSACTIONAL if stamp.transactional else 0)
    HEADER.pack_into(
        out, 0, 0, HEADER_BYTES - OVERHEAD + len(packed), -1, MAGIC, 0, attributes, count - 1,
        *times_ms, stamp.producer_id, stamp.producer_epoch, sequence, count,
    )  # fmt: skip
    out += packed
    with memoryview(out) as view:
        crc = crc32c(view[CHECKSUMMED_FROM:])
    out[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")
    return out


# -------------------------------------------------------------------------------- varints


def _zigzag(values: Ints) -> Ints:
    return (values << 1) ^ (values >> 63)


def _width(raw: Ints) -> Ints:
    """The encoded size of each number."""
    width = np.ones(len(raw), np.int64)
    for limit in (1 << bits for bits in range(7, 63, 7)):
        more = raw >= limit
        if not more.any():
            break
        width += more
    return width


def _put(out: npt.NDArray[np.uint8], at: Ints, raw: Ints, width: Ints) -> None:
    """Write each number at its position, seven bits per byte."""
    out[at] = np.where(width > 1, raw & 0x7F | 0x80, raw)
    for byte in range(1, int(width.max(initial=1))):
        rows = np.flatnonzero(width > byte)
        rest = raw[rows] >> (7 * byte)
        out[at[rows] + byte] = np.where(width[rows] > byte + 1, rest & 0x7F | 0x80, rest)


def _varints(values: Ints) -> pa.BinaryArray:
    raw = _zigzag(values)
    width = _width(raw)
    offsets = _offsets(width)
    out = np.zeros(offsets[-1], np.uint8)
    _put(out, offsets[:-1], raw, width)
    return _array(offsets, out)


def _offsets(sizes: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(sizes)))


def _array(offsets: Ints, data: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    small = offsets.astype(np.int32)
    buffers = [None, pa.py_buffer(small), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _filled(array: pa.BinaryArray) -> pa.BinaryArray:
    return array.fill_null(b"") if array.null_count else array
