"""Writes batches without the records that compaction removes.

Offsets and timestamps in a record are deltas from those of its batch, so the remaining records are
copied unchanged, in runs of neighbours. Only a batch that gets a delete horizon has to be written
record by record, because that changes its base timestamp.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.log.compaction.batches import BatchRecords
from headrace.wire.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    OVERHEAD,
    TRANSACTIONAL,
    Header,
    put_checksum,
)
from headrace.wire.compression import compress
from headrace.wire.records import write_varint

Flags: TypeAlias = npt.NDArray[np.bool_]

_NO_TIMESTAMP = -1
_EMPTY_ATTRIBUTES = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL


class Remains:
    """The records of some batches, and which of them are kept."""

    __slots__ = ("_latest", "_records", "_run_ends", "_run_starts", "_runs", "_stay", "counts",
                 "tombstones")  # fmt: skip

    def __init__(self, records: BatchRecords, stay: Flags) -> None:
        columns, firsts = records.columns, records.firsts
        self._records = records
        self._stay = stay
        self.counts: list[int] = np.add.reduceat(stay, firsts, dtype=np.int64).tolist()
        """The number of records of each batch that are kept."""
        tombs = stay & (columns.value_bytes < 0)
        self.tombstones: list[bool] = np.logical_or.reduceat(tombs, firsts).tolist()
        """Whether there are tombstones among them."""
        deltas = np.where(stay, columns.timestamp_deltas, np.iinfo(np.int64).min)
        self._latest: list[int] = np.maximum.reduceat(deltas, firsts).tolist()
        # A run begins at a record that is kept after one that is not, within a batch.
        before = np.empty_like(stay)
        before[0], before[1:] = False, stay[:-1]
        before[firsts] = False
        begins = stay & ~before
        after = np.empty_like(stay)
        after[-1], after[:-1] = False, stay[1:]
        after[firsts[1:] - 1] = False
        self._run_starts: list[int] = columns.starts[begins].tolist()
        self._run_ends: list[int] = columns.ends[stay & ~after].tolist()
        counts = np.add.reduceat(begins, firsts, dtype=np.int64)
        self._runs: list[int] = [0, *np.cumsum(counts).tolist()]

    def rebuilt(self, index: int, delete_horizon_ms: int | None) -> bytearray:
        """The batch with the kept records; with a new delete horizon unless that is None."""
        header = self._records.batches[index].header
        attributes, base_time = header.attributes, header.base_timestamp
        if attributes & LOG_APPEND_TIME:
            latest = header.max_timestamp
        else:
            latest = max(self._latest[index] + base_time, _NO_TIMESTAMP)
        if delete_horizon_ms is None:
            payload = self._copied(index)
        else:
            payload = self._restamped(index, header, delete_horizon_ms)
            attributes |= DELETE_HORIZON
            base_time = delete_horizon_ms
        codec = attributes & CODEC_MASK
        if codec:
            payload = compress(codec, payload)
        return _batch(header, attributes, base_time, latest, self.counts[index], payload)

    def _copied(self, index: int) -> bytes:
        view = memoryview(self._records.buffer)
        begin, end = self._runs[index], self._runs[index + 1]
        starts, ends = self._run_starts[begin:end], self._run_ends[begin:end]
        return b"".join([view[at:to] for at, to in zip(starts, ends, strict=True)])

    def _restamped(self, index: int, header: Header, horizon_ms: int) -> bytes:
        records, view = self._records, memoryview(self._records.buffer)
        first = int(records.firsts[index])
        rows = first + np.flatnonzero(self._stay[first : first + header.record_count])
        columns = records.columns
        if header.attributes & LOG_APPEND_TIME:
            deltas = np.full(len(rows), header.max_timestamp - horizon_ms)
        else:
            deltas = columns.timestamp_deltas[rows] + (header.base_timestamp - horizon_ms)
        out = bytearray()
        places = (columns.offset_at[rows].tolist(), columns.ends[rows].tolist(), deltas.tolist())
        for at, end, delta in zip(*places, strict=True):
            time = bytearray(1)  # the attributes, which are unused
            write_varint(time, delta)
            write_varint(out, len(time) + end - at)
            out += time
            out += view[at:end]
        return bytes(out)


def emptied(header: Header) -> bytearray:
    """The batch without its records; it keeps the producer's sequence and the offsets."""
    return _batch(
        header, header.attributes & _EMPTY_ATTRIBUTES, _NO_TIMESTAMP, header.max_timestamp, 0, b""
    )


def _batch(
    header: Header, attributes: int, base_time: int, latest: int, count: int, payload: bytes
) -> bytearray:
    out = bytearray(HEADER_BYTES)
    changed = header._replace(
        batch_length=HEADER_BYTES - OVERHEAD + len(payload),
        attributes=attributes,
        base_timestamp=base_time,
        max_timestamp=latest,
        record_count=count,
    )
    HEADER.pack_into(out, 0, *changed)
    out += payload
    put_checksum(out)
    return out
