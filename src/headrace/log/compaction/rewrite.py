"""The second pass of compaction: writes what is left of each batch into new segment files.

A record is kept if it is the last one of its key, or if it is after the end of the key map. A
tombstone is kept for `delete.retention.ms` after the first pass that reads it: that pass writes the
time at which it may be removed, the delete horizon, into the batch (attribute bit 6; the base
timestamp is then that time). Transaction markers are kept until no data of their transaction is
left, and then as long as a tombstone. An empty batch is removed, unless it has the last sequence of
an active producer or the last offset of the pass: then it is kept as a header without records.

Batches that keep all their records are copied unchanged. The others keep their header except for
length, count, largest timestamp and checksum.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headrace.disk import CREATE, READ_WRITE, TRUNCATE, Buffer, Disk, write_file, write_fully
from headrace.errors import ErrorCode, KafkaError
from headrace.log.compaction.batches import Batch, BatchRecords, chunks, decoded
from headrace.log.compaction.job import Cleaned, Job
from headrace.log.compaction.keys import KeyMap
from headrace.log.compaction.remains import Flags, Remains, emptied
from headrace.log.compaction.throttler import Throttler
from headrace.log.compaction.transactions import AbortedTransaction, CleanedTransactions
from headrace.log.segment_files import (
    CLEANED,
    INDEX,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
    SegmentFiles,
    segment_path,
)
from headrace.log.segment_indexes import SegmentIndexes
from headrace.log.transactions import encode_aborted
from headrace.wire.batch import (
    CHECKSUMMED_FROM,
    CONTROL,
    DELETE_HORIZON,
    TRANSACTIONAL,
    Header,
    read_header,
)
from headrace.wire.checksum import crc32c
from headrace.wire.markers import decode_marker


class _BatchDecision(NamedTuple):
    """What is known of a batch before its records are decoded."""

    batch: Batch
    records_go: bool
    """Whether all records are removed."""
    stays_empty: bool
    marker_due: bool
    """Whether it is a marker without data of its transaction: it gets a delete horizon."""


class _Output:
    """The new `.log` file and its indexes."""

    def __init__(self, disk: Disk, job: Job, offset: int) -> None:
        self._disk = disk
        self._pieces: list[Buffer] = []
        self._pending = 0
        self._files = SegmentFiles(disk, job.folder, offset)
        self._indexes = SegmentIndexes(self._files, job.index_interval_bytes)
        self._fd = disk.open(self._files.path(LOG + CLEANED), READ_WRITE | CREATE | TRUNCATE)
        self.size = 0

    def add(self, piece: Buffer, header: Header, max_timestamp: int) -> None:
        """Append one batch."""
        self._indexes.add_batch(self.size, header.base_offset, header.last_offset, max_timestamp)
        self._pieces.append(piece)
        self._pending += len(piece)
        self.size += len(piece)

    def write(self) -> int:
        """Write the added batches; returns the bytes written. Their chunk may be freed then."""
        pending = self._pending
        if pending:
            write_fully(self._disk, self._fd, b"".join(self._pieces), self.size - pending)
        self._pieces.clear()
        self._pending = 0
        return pending

    def finish(self, transaction_index: bytes) -> None:
        """Bring all files to the disk."""
        self.write()
        self._disk.fdatasync(self._fd)
        offsets, times = self._indexes.to_bytes()
        self._write_file(INDEX, offsets)
        self._write_file(TIME_INDEX, times)
        if transaction_index:
            self._write_file(TRANSACTION_INDEX, transaction_index)
        self._disk.sync_folder(self._files.folder)

    def _write_file(self, suffix: str, data: Buffer) -> None:
        write_file(self._disk, self._files.path(suffix + CLEANED), data, sync=True)

    def close(self) -> None:
        self._disk.close(self._fd)


class Rewrite:
    """The second pass over all groups of one job."""

    def __init__(self, disk: Disk, job: Job, keys: KeyMap, map_end: int, pace: Throttler) -> None:
        """Everything up to `map_end` is in `keys`."""
        self._disk = disk
        self._job = job
        self._keys = keys
        self._map_end = map_end
        self._pace = pace
        self._transactions = CleanedTransactions(job.aborted)
        aborted = map(AbortedTransaction._make, job.aborted)
        self._aborted = {one.marker_offset: one for one in aborted}
        self._last_data = {producer_id: last for producer_id, last, _ in job.producers}
        self._last_epoch = {producer_id: epoch for producer_id, _, epoch in job.producers}
        self.records_read = self.records_kept = self.bytes_read = self.bytes_kept = 0

    def group(self, segments: list[tuple[int, int]]) -> Cleaned:
        """Write one new segment from these neighbours."""
        job, disk = self._job, self._disk
        output = _Output(disk, job, segments[0][0])
        try:
            for base, size in segments:
                for buffer, batches in chunks(disk, segment_path(job.folder, base, LOG), size):
                    self._pace.spend(batches[-1].end)
                    self._rewrite(buffer, batches, output)
                    self._pace.spend(output.write())
                    self.bytes_read += batches[-1].end
            kept, self._transactions.kept = tuple(self._transactions.kept), []
            output.finish(encode_aborted(self._aborted[marker] for marker in kept))
        finally:
            output.close()
        self.bytes_kept += output.size
        return Cleaned(tuple(base for base, _ in segments), output.size, kept)

    def _rewrite(self, buffer: bytes, batches: list[Batch], output: _Output) -> None:
        view = memoryview(buffer)
        decisions = [self._decide(batch, buffer, view) for batch in batches]
        looked_at = [
            decision.batch
            for decision in decisions
            if not decision.records_go
            and not decision.batch.header.attributes & CONTROL
            and decision.batch.header.record_count
        ]
        left = self._remains(buffer, looked_at)
        for decision in decisions:
            batch = decision.batch
            header = batch.header
            self.records_read += header.record_count
            if header.attributes & CONTROL and not decision.records_go and header.record_count:
                self._add_control(decision, view, output)
                continue
            count = 0
            if not decision.records_go and header.record_count:
                remains, index = next(left)
                count = remains.counts[index]
                if count:
                    self._add_data(batch, remains, index, view, output)
            if not count and decision.stays_empty:
                output.add(emptied(header), header, header.max_timestamp)

    def _decide(self, batch: Batch, buffer: bytes, view: memoryview) -> _BatchDecision:
        header = batch.header
        if crc32c(view[batch.at + CHECKSUMMED_FROM : batch.end]) != header.crc:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch at offset {header.base_offset} fails its checksum",
            )
        attributes, producer_id = header.attributes, header.producer_id
        if attributes & CONTROL:
            marker = decode_marker(buffer[batch.at : batch.end]) if header.record_count else None
            free = self._transactions.may_go(
                producer_id, batch.last_offset, marker, not header.record_count
            )
            goes = free and (self._horizon_passed(header) or not header.record_count)
            marker_due = free
        else:
            goes = bool(attributes & TRANSACTIONAL) and self._transactions.is_aborted(
                producer_id, batch.last_offset
            )
            marker_due = False
        stays = self._is_last_of_producer(header) or batch.last_offset + 1 == self._job.end
        return _BatchDecision(batch, goes, stays, marker_due)

    def _is_last_of_producer(self, header: Header) -> bool:
        """Whether the batch has the last sequence or the epoch of an active producer."""
        last = self._last_data.get(header.producer_id)
        if last is None:
            return False
        if last >= 0:
            return header.last_offset == last
        return (
            bool(header.attributes & CONTROL)
            and header.producer_epoch == self._last_epoch[header.producer_id]
        )

    # -- which records are kept -----------------------------------------------------------------

    def _remains(self, buffer: bytes, batches: list[Batch]) -> Iterator[tuple[Remains, int]]:
        """For each batch, the part in which it was decompressed, and its index there."""
        for records in decoded(buffer, batches, self._job.max_decompressed_bytes):
            remains = Remains(records, self._stay(records))
            for index in range(len(records.batches)):
                yield remains, index

    def _stay(self, records: BatchRecords) -> Flags:
        """Which of the records are kept."""
        columns, offsets = records.columns, records.offsets
        stay: Flags = offsets > self._map_end
        mapped = np.flatnonzero(~stay & (columns.key_bytes >= 0))
        if mapped.size:
            newest = self._keys.get(self._keys.hashes(columns, mapped))
            stay[mapped] = offsets[mapped] >= newest
        due = np.array([self._horizon_passed(batch.header) for batch in records.batches])
        if due.any():
            stay &= (columns.value_bytes >= 0) | ~due[records.which] | (offsets > self._map_end)
        return stay

    def _horizon_passed(self, header: Header) -> bool:
        return (
            bool(header.attributes & DELETE_HORIZON) and header.base_timestamp <= self._job.now_ms
        )

    # -- writing --------------------------------------------------------------------------------

    def _add_data(
        self, batch: Batch, remains: Remains, index: int, view: memoryview, output: _Output
    ) -> None:
        header, count = batch.header, remains.counts[index]
        self.records_kept += count
        new_horizon = remains.tombstones[index] and not header.attributes & DELETE_HORIZON
        if count == header.record_count and not new_horizon:
            output.add(view[batch.at : batch.end], header, header.max_timestamp)
            return
        horizon = self._job.now_ms + self._job.delete_retention_ms if new_horizon else None
        rebuilt = remains.rebuilt(index, horizon)
        output.add(rebuilt, header, read_header(rebuilt, 0)[8])

    def _add_control(self, decision: _BatchDecision, view: memoryview, output: _Output) -> None:
        batch, header = decision.batch, decision.batch.header
        self.records_kept += header.record_count
        piece: Buffer = view[batch.at : batch.end]
        if decision.marker_due and not header.attributes & DELETE_HORIZON:
            horizon = self._job.now_ms + self._job.delete_retention_ms
            records = next(decoded(bytes(piece), [Batch(0, len(piece), header)], len(piece)))
            stay = np.ones(len(records.columns), np.bool_)
            piece = Remains(records, stay).rebuilt(0, horizon)
        output.add(piece, header, header.max_timestamp)
