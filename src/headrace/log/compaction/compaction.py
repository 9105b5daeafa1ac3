"""Compacts one log: keeps the last value of every key, at its offset.

There are two passes. The first records the last offset of every key in the dirty part of the log,
as far as it fits into the key map (`compaction/keys.py`). The second reads everything from the log
start to there and writes the remaining records into new files (`compaction/rewrite.py`), one for
each group of segments. The log itself is not changed: `compaction/swap.py` replaces the old files
by the new ones. This runs in its own process (`compaction/worker.py`); `compaction/plan.py` decides
what to compact and when.
"""

import time
from collections.abc import Iterator

import numpy as np

from headrace.disk import Disk
from headrace.errors import KafkaError
from headrace.log.compaction.batches import Batch, BatchRecords, chunks, decoded
from headrace.log.compaction.job import Answer, Failed, Finished, Job
from headrace.log.compaction.keys import KeyMap
from headrace.log.compaction.plan import SourceSegment, groups
from headrace.log.compaction.rewrite import Rewrite
from headrace.log.compaction.swap import remove_cleaned
from headrace.log.compaction.throttler import Throttler
from headrace.log.compaction.transactions import CleanedTransactions
from headrace.log.segment_files import INDEX, LOG, TIME_INDEX, segment_path
from headrace.wire.batch import CONTROL, TRANSACTIONAL
from headrace.wire.markers import decode_marker

# A map with less free space than this share counts as full: the last few keys would have to be
# added one by one.
_FULL_PART = 256


def compact(job: Job, disk: Disk) -> Iterator[Answer]:
    """Do the job; yields each answer as soon as it is ready."""
    began = time.monotonic()
    pace = Throttler(job.bytes_per_second)
    try:
        walk = FirstWalk(job, disk, pace)
        walk.run()
        rewrite = Rewrite(disk, job, walk.keys, walk.map_end, pace)
        for group in groups(_sources(job, disk, walk.map_end), job):
            yield rewrite.group(group)
    except (KafkaError, OSError, MemoryError) as error:
        remove_cleaned(disk, job.folder)
        yield Failed(f"{type(error).__name__}: {error}")
        return
    yield Finished(
        walk.map_end + 1,
        rewrite.records_read,
        rewrite.records_kept,
        rewrite.bytes_read,
        rewrite.bytes_kept,
        time.monotonic() - began,
    )


def _sources(job: Job, disk: Disk, map_end: int) -> list[SourceSegment]:
    return [
        SourceSegment(base, size, _size(disk, job, base, INDEX), _size(disk, job, base, TIME_INDEX))
        for base, size in job.segments
        if base <= map_end
    ]


def _size(disk: Disk, job: Job, base: int, suffix: str) -> int:
    try:
        return disk.file_size(segment_path(job.folder, base, suffix))
    except FileNotFoundError:
        return 0


class FirstWalk:
    """Fills the key map from the dirty part of the log."""

    def __init__(self, job: Job, disk: Disk, pace: Throttler) -> None:
        self._job = job
        self._disk = disk
        self._pace = pace
        self._transactions = CleanedTransactions(job.aborted)
        expected = job.end - job.first_dirty
        self.keys = KeyMap(job.map_bytes, job.map_load_factor, expected)
        self.map_end = job.first_dirty - 1
        """The offset up to which every key is in the map."""

    def run(self) -> None:
        """Read until the end of the dirty part, or until the map is full."""
        job = self._job
        ends = [*(base for base, _ in job.segments[1:]), job.end]
        for (base, size), end in zip(job.segments, ends, strict=True):
            if end <= job.first_dirty:
                continue
            for buffer, batches in chunks(self._disk, segment_path(job.folder, base, LOG), size):
                self._pace.spend(batches[-1].end)
                if not self._note(buffer, batches):
                    return
            # Compaction may have left a gap at the segment's end.
            self.map_end = end - 1

    def _note(self, buffer: bytes, batches: list[Batch]) -> bool:
        """Put the keys of a chunk into the map; False if it is full."""
        chosen = [batch for batch in batches if self._counts(batch, buffer)]
        for records in decoded(buffer, chosen, self._job.max_decompressed_bytes):
            if not self._put(records):
                return False
        self.map_end = max(self.map_end, batches[-1].last_offset)
        return True

    def _counts(self, batch: Batch, buffer: bytes) -> bool:
        """Whether the batch has records that consumers see."""
        header, last = batch.header, batch.last_offset
        producer_id, count = header.producer_id, header.record_count
        if header.attributes & CONTROL:
            marker = decode_marker(buffer[batch.at : batch.end]) if count else None
            self._transactions.may_go(producer_id, last, marker, not count)
            return False
        if header.attributes & TRANSACTIONAL and self._transactions.is_aborted(producer_id, last):
            return False
        return count > 0 and last >= self._job.first_dirty

    def _put(self, records: BatchRecords) -> bool:
        keys, offsets = self.keys, records.offsets
        chosen = np.flatnonzero(
            (records.columns.key_bytes >= 0) & (offsets >= self._job.first_dirty)
        )
        hashes, offsets = keys.hashes(records.columns, chosen), offsets[chosen]
        at = 0
        while at < len(chosen):
            if keys.room <= keys.capacity // _FULL_PART:
                return False
            to = min(at + keys.room, len(chosen))
            keys.put(hashes[at:to], offsets[at:to])
            self.map_end = int(offsets[to - 1])
            at = to
        return True
