"""Decodes the records of many batches at once into columns, for analysis.

`decode` checks the batches of a Fetch response or a segment, leaves out what a reader must not see,
decompresses, and returns for all records the positions of their keys, values and headers in the
payload. Nothing is copied: the caller chooses the target format.

Each record begins with its length, which is needed to find the next one. There are three ways to
do that, and the fastest that applies is used: runs of records of one size, all batches in parallel,
and the plain loop of `columns.py`. Everything else is done for all records at once. This module
needs numpy; the broker never imports it.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.batch import (
    CHECKSUMMED_FROM,
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    OVERHEAD,
    TRANSACTIONAL,
)
from headrace.wire.checksum import crc32c
from headrace.wire.columns import Bytes, Numbers, add_starts, varints
from headrace.wire.records import MIN_RECORD_BYTES

Buffer: TypeAlias = bytes | bytearray
Flags: TypeAlias = npt.NDArray[np.bool_]
Headers: TypeAlias = npt.NDArray[np.void]

MAX_DECOMPRESSED_BYTES = 1 << 30
"""The largest decompressed size of a batch."""
GROUP_BYTES = 64 << 20
"""Batches are decoded together until their records have this size, decompressed."""
LANES_MIN = 128
"""From this number of batches on, decoding them in parallel columns is faster."""
RUN_MIN = 16
"""Runs of one size that are shorter on average than this are slower than the plain loop."""

_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "u1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
assert _HEADER.itemsize == HEADER_BYTES


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """Records in their order. Positions are in `payload`; a null has the length -1."""

    payload: Buffer
    octets: Bytes
    """The payload as a numpy array."""
    offset: Numbers
    timestamp_ms: Numbers
    append_time: Flags
    """Whether the timestamp is the broker's append time."""
    key_at: Numbers
    key_length: Numbers
    value_at: Numbers
    value_length: Numbers
    headers_at: Numbers
    """The position of the number of headers."""
    end: Numbers
    """The position after the record."""

    def __len__(self) -> int:
        return len(self.offset)

    def select(self, chosen: Numbers) -> "BatchColumns":
        """Only the records with these indexes."""
        return BatchColumns(
            self.payload,
            self.octets,
            self.offset[chosen],
            self.timestamp_ms[chosen],
            self.append_time[chosen],
            self.key_at[chosen],
            self.key_length[chosen],
            self.value_at[chosen],
            self.value_length[chosen],
            self.headers_at[chosen],
            self.end[chosen],
        )


@dataclass(frozen=True, slots=True)
class HeaderColumns:
    """The headers of all records in order; `counts` is the number of headers of each record."""

    counts: Numbers
    name_at: Numbers
    name_length: Numbers
    value_at: Numbers
    value_length: Numbers


def decode(
    data: bytearray | bytes,
    positions: Sequence[int],
    start: int,
    stop: int,
    aborted: Sequence[tuple[int, int]] = (),
    *,
    check_crcs: bool = True,
) -> Iterator[BatchColumns]:
    """The records with offsets in [start, stop) of the batches at `positions`, in a few groups.

    Control batches and those of `aborted` transactions (producer id, first offset) are left out.
    CORRUPT_MESSAGE if a batch is malformed.
    """
    at = np.array(positions, np.int64)
    octets = np.frombuffer(data, np.uint8)
    headers = octets[at[:, None] + np.arange(HEADER_BYTES)].view(_HEADER)[:, 0]
    if (headers["magic"] != MAGIC).any():
        raise _corrupt("a record batch is not of format 2")
    if check_crcs:
        _check_crcs(data, positions, headers)
    base = headers["base_offset"]
    wanted = (headers["attributes"] & CONTROL) == 0
    wanted &= (base + headers["last_offset_delta"] >= start) & (base < stop)
    wanted &= headers["count"] != 0  # compaction leaves empty batches
    if aborted:
        wanted &= ~_aborted_batches(data, positions, headers, aborted)
    chosen = np.flatnonzero(wanted)
    for group, payload, begins, ends in _payloads(data, at, headers, chosen):
        columns = _decode_group(payload, headers[group], begins, ends)
        offset = columns.offset
        if len(columns) and (offset[0] < start or offset[-1] >= stop):
            columns = columns.select(np.flatnonzero((offset >= start) & (offset < stop)))
        if len(columns):
            yield columns


def decode_headers(columns: BatchColumns) -> HeaderColumns:
    """The positions of the headers of these records; checks the end of each record, too."""
    octets = columns.octets
    try:
        counts, at = varints(octets, columns.headers_at)
        room = columns.end - at
        if (counts < 0).any() or (counts * 2 > room).any():
            raise _corrupt("a record has more headers than bytes")
        total = int(counts.sum())
        first = np.cumsum(counts) - counts
        found = np.empty((4, total), np.int64)
        for number in range(int(counts.max(initial=0))):
            having = np.flatnonzero(counts > number)
            end = columns.end[having]
            name_length, name_at = varints(octets, at[having])
            if (name_length < 0).any() or (name_length >= end - name_at).any():
                raise _corrupt("a header's name does not fit into its record")
            value_length, value_at = varints(octets, name_at + name_length)
            if (value_length < -1).any() or (value_length > end - value_at).any():
                raise _corrupt("a header's value does not fit into its record")
            at[having] = value_at + np.maximum(value_length, 0)
            found[:, first[having] + number] = name_at, name_length, value_at, value_length
    except IndexError:
        raise _corrupt("a header reaches past its batch") from None
    if (at != columns.end).any():
        raise _corrupt("a record's headers do not end where the record does")
    return HeaderColumns(counts, *found)


# --- Batches --------------------------------------------------------------------------------------


def _corrupt(why: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, why)


def _check_crcs(data: bytearray | bytes, positions: Sequence[int], headers: Headers) -> None:
    lengths, sums = headers["length"].tolist(), headers["crc"].tolist()
    with memoryview(data) as view:
        for at, length, expected in zip(positions, lengths, sums, strict=True):
            if crc32c(view[at + CHECKSUMMED_FROM : at + OVERHEAD + length]) != expected:
                (offset,) = struct.unpack_from(">q", data, at)
                raise _corrupt(f"the CRC-32C of the batch at offset {offset} does not match")


def _aborted_batches(
    data: bytearray | bytes,
    positions: Sequence[int],
    headers: Headers,
    aborted: Sequence[tuple[int, int]],
) -> Flags:
    """Which batches belong to aborted transactions: from the first offset on, up to the marker."""
    ahead = sorted(((first, producer) for producer, first in aborted), reverse=True)
    open_now: set[int] = set()
    lasts = (headers["base_offset"] + headers["last_offset_delta"]).tolist()
    producers = headers["producer_id"].tolist()
    attributes = headers["attributes"].tolist()
    dropped = np.zeros(len(positions), np.bool_)
    for index, last in enumerate(lasts):
        while ahead and ahead[-1][0] <= last:
            open_now.add(ahead.pop()[1])
        if attributes[index] & CONTROL:
            open_now.discard(producers[index])
        elif attributes[index] & TRANSACTIONAL and producers[index] in open_now:
            dropped[index] = True
    return dropped


def _payloads(
    data: bytearray | bytes, at: Numbers, headers: Headers, chosen: Numbers
) -> Iterator[tuple[Numbers, Buffer, Numbers, Numbers]]:
    """Groups of batches, the payload with their records, and the position of each batch in it."""
    if not len(chosen):
        return
    begins = at[chosen] + HEADER_BYTES
    ends = at[chosen] + OVERHEAD + headers["length"][chosen]
    codecs = (headers["attributes"][chosen] & CODEC_MASK).tolist()
    if not any(codecs):
        yield chosen, data, begins, ends
        return
    from headrace.wire.compression import decompress

    pieces: list[Buffer | memoryview] = []
    first = size = 0
    view = memoryview(data)
    for index, codec in enumerate(codecs):
        piece = view[begins[index] : ends[index]]
        pieces.append(decompress(codec, piece, MAX_DECOMPRESSED_BYTES) if codec else piece)
        size += len(pieces[-1])
        if size >= GROUP_BYTES or index == len(codecs) - 1:
            lengths = np.array([len(each) for each in pieces], np.int64)
            last = np.cumsum(lengths)
            only = pieces[0]
            alone = len(pieces) == 1 and not isinstance(only, memoryview)
            payload = only if alone else b"".join(pieces)
            assert not isinstance(payload, memoryview)
            yield chosen[first : index + 1], payload, last - lengths, last
            pieces, first, size = [], index + 1, 0


def _decode_group(
    payload: Buffer, headers: Headers, begins: Numbers, ends: Numbers
) -> BatchColumns:
    counts = headers["count"].astype(np.int64)
    if (counts < 0).any() or (counts * MIN_RECORD_BYTES > ends - begins).any():
        raise _corrupt("a batch has more records than bytes")
    octets = np.frombuffer(payload, np.uint8)
    try:
        starts = record_starts(payload, octets, begins, ends, counts)
        length, body = varints(octets, starts)
        end = body + length
        check_chain(starts, end, counts, ends)
        timestamp_delta, at = varints(octets, body + 1)
        offset_delta, at = varints(octets, at)
        key_length, key_at = varints(octets, at)
        _check_lengths(key_length, key_at, end)
        value_length, value_at = varints(octets, key_at + np.maximum(key_length, 0))
        _check_lengths(value_length, value_at, end)
    except IndexError:
        raise _corrupt("a record reaches past its batch") from None
    headers_at = value_at + np.maximum(value_length, 0)
    offset = np.repeat(headers["base_offset"].astype(np.int64), counts) + offset_delta
    last = np.repeat((headers["base_offset"] + headers["last_offset_delta"]), counts)
    if (offset_delta < 0).any() or (offset > last).any() or (np.diff(offset) <= 0).any():
        raise _corrupt("the offsets of a batch's records are out of order")
    by_broker = (headers["attributes"] & LOG_APPEND_TIME) != 0
    base_time = np.where(by_broker, headers["max_timestamp"], headers["base_timestamp"])
    append_time = np.repeat(by_broker, counts)
    timestamp = np.repeat(base_time.astype(np.int64), counts)
    timestamp += np.where(append_time, 0, timestamp_delta) if by_broker.any() else timestamp_delta
    return BatchColumns(
        payload, octets, offset, timestamp, append_time,
        key_at, key_length, value_at, value_length, headers_at, end,
    )  # fmt: skip


def _check_lengths(length: Numbers, at: Numbers, end: Numbers) -> None:
    """What begins at `at` ends inside its record; another byte at least follows it."""
    if (length < -1).any() or (length >= end - at).any():
        raise _corrupt("a record's key or value does not fit into it")


def check_chain(starts: Numbers, end: Numbers, counts: Numbers, ends: Numbers) -> None:
    """Each record ends where the next begins, and the last one where its batch does."""
    last = np.cumsum(counts) - 1
    inner = end[:-1] == starts[1:]
    inner[last[:-1]] = True
    if not inner.all() or (end[last] != ends).any():
        raise _corrupt("the records do not fill their batch")


# --- The chain of records -------------------------------------------------------------------------


def record_starts(
    payload: Buffer, octets: Bytes, begins: Numbers, ends: Numbers, counts: Numbers
) -> Numbers:
    """Where each record begins, at its length. IndexError where the chain leaves the payload."""
    if len(counts) >= LANES_MIN:
        return _lockstep(octets, begins, counts)
    found = [
        _one_batch(payload, octets, *batch)
        for batch in zip(begins.tolist(), ends.tolist(), counts.tolist(), strict=True)
    ]
    return found[0] if len(found) == 1 else np.concatenate(found)


def _lockstep(octets: Bytes, begins: Numbers, counts: Numbers) -> Numbers:
    """Find one record of every batch in each step; batches with more records come first."""
    order = np.argsort(-counts, kind="stable")
    position = begins[order]
    place = (np.cumsum(counts) - counts)[order]
    # Step s continues with the batches that have more than s records.
    ascending = counts[order][::-1]
    active = len(counts) - np.searchsorted(ascending, np.arange(ascending[-1]), side="right")
    starts = np.empty(int(counts.sum()), np.int64)
    for step, lanes in enumerate(active.tolist()):
        at = position[:lanes]
        starts[place[:lanes] + step] = at
        length, body = varints(octets, at)
        if (length < MIN_RECORD_BYTES - 1).any() or (length > len(octets)).any():
            raise _corrupt("a record is too short or too long")
        position[:lanes] = body + length
    return starts


def _one_batch(payload: Buffer, octets: Bytes, begin: int, end: int, count: int) -> Numbers:
    """Use runs of records of one size while they are long, then the plain loop."""
    starts = np.empty(count, np.int64)
    done, position, runs = 0, begin, 0
    while done < count and (runs < 4 or done >= runs * RUN_MIN):
        size, width = _record_size(payload, position)
        most = min(count - done, (end - position) // size)
        same = np.ones(most, np.bool_)
        for byte in range(width):
            # Records of one size: their lengths are at equal distances.
            column = octets[position + byte : position + most * size : size]
            same &= column == payload[position + byte]
        length = most if same.all() else int(same.argmin())
        if not length:
            raise _corrupt("a record reaches past its batch")
        starts[done : done + length] = position + size * np.arange(length)
        done += length
        position += size * length
        runs += 1
    if done < count:
        rest = array("q")
        add_starts(rest, payload, position, count - done, end)
        starts[done:] = np.frombuffer(rest, np.int64)
    return starts


def _record_size(payload: Buffer, position: int) -> tuple[int, int]:
    """A record's whole size, and how many bytes of it are its length."""
    raw = shift = 0
    for width in range(1, 6):
        byte = payload[position + width - 1]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            length = raw >> 1
            if raw & 1 or length < MIN_RECORD_BYTES - 1:
                break
            return length + width, width
        shift += 7
    raise _corrupt("a record is too short, or its length is malformed")
