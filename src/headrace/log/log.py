"""One partition's log on one disk: append, read, roll, truncate, delete, flush.

A log is a list of segments; the last one is active. All calls come from the thread of its owner;
only `flush` may run in a worker thread. `append` runs for every produced batch: the batch is
validated already, is not decoded, and is written with one system call. `recovery.py` opens a log.
"""

import logging
import struct
from contextlib import suppress

from headrace.disk import Disk, write_fully
from headrace.errors import ErrorCode, KafkaError
from headrace.log import snapshots
from headrace.log.availability import Availability, LogOwner
from headrace.log.checked import DamageFound, checked_stop
from headrace.log.damage import write_holes
from headrace.log.durability import Durability
from headrace.log.epochs import EpochCache
from headrace.log.producer_state import MAX_SEQUENCE, ProducerState
from headrace.log.rolling import roll_due
from headrace.log.segment import MAX_RELATIVE, NEW_FILE, Segment
from headrace.log.segment_files import LOG, linking
from headrace.log.segments import LogSegments
from headrace.log.slices import Slice
from headrace.log.snapshots import write_snapshot
from headrace.log.timestamps import (
    NOTHING_SEARCHED,
    Searched,
    TimestampOffset,
    first_at_or_after,
    with_largest_timestamp,
)
from headrace.log.transactions import EndedTransactions
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import OVERHEAD, Header, HeaderFields, read_header

_TRANSACTIONAL_OR_CONTROL = 0x30
_ALWAYS_CHECK = -1

_logger = logging.getLogger("headrace.log")
_stamp = struct.Struct(">qii").pack_into


class Log:
    """One partition's records on disk."""

    __slots__ = (
        "_active", "_dirty", "_epoch", "_fd", "_pwrite", "_roll_bytes", "_roll_offset",
        "_roll_timestamp", "availability", "compacting", "created_ms", "disk", "durability",
        "end_offset", "epochs", "folder", "generation", "has_hole_list", "owner", "partition",
        "producers", "segments", "settings", "start_offset", "transactions",
    )  # fmt: skip

    def __init__(
        self,
        partition: TopicPartition,
        folder: str,
        settings: LogSettings,
        disk: Disk,
        segments: LogSegments,
        *,
        start_offset: int,
        end_offset: int,
        recovery_point: int,
        producers: ProducerState,
        transactions: EndedTransactions,
        epochs: EpochCache,
        now_ms: int,
        owner: LogOwner | None = None,
        new: bool = False,
    ) -> None:
        self.partition = partition
        self.folder = folder
        self.disk = disk
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.transactions = transactions
        self.epochs = epochs
        self.created_ms = now_ms
        self.settings = settings
        self.segments = segments
        self._active = segments[-1]
        self.owner = owner
        self._pwrite = disk.pwrite
        self.availability = Availability(self)
        self.durability = Durability(disk, folder, epochs, transactions, recovery_point, new=new)
        self.generation = 0
        """Grows at the beginning and at the end of each truncation."""
        self._dirty = False
        self.compacting = False
        """Whether a compaction is about to replace segments."""
        self.has_hole_list = False
        """Whether the folder has a list of damaged offsets; see `damage.py`."""
        self._epoch = epochs.latest
        self.producers = producers
        self.check_next_append()

    def use_settings(self, settings: LogSettings) -> None:
        """Apply the topic's settings, which may change at any time."""
        self.settings = settings
        self.check_next_append()

    @property
    def holes(self) -> list[tuple[int, int]]:
        """The known damage: ranges of lost offsets, each with the first offset after it."""
        found = self.segments.holes(self.end_offset)
        return [(first, behind) for first, behind in found if behind > self.start_offset]

    # -- append -------------------------------------------------------------------------------

    def append(
        self,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
        header: HeaderFields,
        epoch: int,
        now_ms: int,
    ) -> int:
        """Append the validated batch in buf[pos:end] as its leader; its base offset.

        `view` is a memoryview of `buf`, whose offset and epoch are overwritten in place. A
        duplicate of an idempotent producer is not written again and gets its old offset.
        KafkaError: as `ProducerState.check`; 18 larger than a segment; 56 the disk failed.
        """
        (
            _, _, _, _, _, attributes, delta, _, max_timestamp, producer_id, producer_epoch,
            sequence, _,
        ) = header  # fmt: skip
        producer = None
        if producer_id >= 0:
            producer = self.producers.producers.get(producer_id)
            if (
                producer is None
                or producer.expected != sequence
                or producer.epoch != producer_epoch
                or producer.kind != attributes & _TRANSACTIONAL_OR_CONTROL
            ):
                producer = None
                duplicate = self.producers.check(header)
                if duplicate >= 0:
                    return duplicate
        base, segment = self.end_offset, self._active
        last, position = base + delta, segment.size
        size = end - pos
        if (
            position + size > self._roll_bytes
            or max_timestamp > self._roll_timestamp
            or last > self._roll_offset
        ):
            segment = self._segment_for(size, max_timestamp, base, last, now_ms)
            position = segment.size
        if epoch != self._epoch:
            self.epochs.assign(epoch, base)
            self._epoch = epoch
        _stamp(buf, pos, base, size - OVERHEAD, epoch)
        try:
            written = self._pwrite(self._fd, view[pos:end], position)
            if written != size:
                write_fully(self.disk, self._fd, view[pos + written : end], position + written)
        except OSError as error:
            raise self._undo_write(segment, error) from error
        segment.size = position + size
        self.end_offset = last + 1
        indexes = segment.indexes
        if max_timestamp > indexes.largest_timestamp:
            indexes.largest_timestamp = max_timestamp
            indexes.largest_offset = last
        if position > indexes.due:
            indexes.add_entry(position, base, last)
            if indexes.is_full(self.settings.segment_index_bytes):
                self.check_next_append()
        if producer is not None:
            producer.timestamp = max_timestamp
            producer.add(sequence, (sequence + delta) & MAX_SEQUENCE, base, last)
        elif producer_id >= 0:
            self._record(Header._make(header), base, view[pos:end])
        return base

    def append_replica(self, view: memoryview, pos: int, end: int, now_ms: int) -> None:
        """Append the validated batches in view[pos:end] as a follower: offsets stay as they are.

        ValueError if they do not continue this log.
        """
        while pos < end:
            header = read_header(view, pos)
            size = header.size_bytes
            base, last = header.base_offset, header.last_offset
            if base < self.end_offset:
                if last < self.end_offset or self.segments.size_bytes:
                    raise ValueError(
                        f"{self.partition}: a batch at {base} cannot follow {self.end_offset}"
                    )
                # The leader's log starts inside this batch, which is copied as a whole.
                self.restart_at(base)
            segment = self._active
            if (
                segment.size + size > self._roll_bytes
                or header.max_timestamp > self._roll_timestamp
                or last > self._roll_offset
            ):
                segment = self._segment_for(size, header.max_timestamp, base, last, now_ms)
            position = segment.size
            try:
                write_fully(self.disk, self._fd, view[pos : pos + size], position)
            except OSError as error:
                raise self._undo_write(segment, error) from error
            segment.size = position + size
            self.end_offset = last + 1
            segment.indexes.add_batch(position, base, last, header.max_timestamp)
            if segment.indexes.is_full(self.settings.segment_index_bytes):
                self.check_next_append()
            if header.partition_leader_epoch > self._epoch:
                self.epochs.assign(header.partition_leader_epoch, base)
                self._epoch = self.epochs.latest
            if header.producer_id >= 0:
                self._record(header, base, view[pos : pos + size])
            pos += size

    def _record(self, header: Header, base: int, batch: memoryview) -> None:
        ended = snapshots.record_batch(self.producers, header, base, batch.tobytes)
        if ended is not None:
            self.transactions.add(ended)

    def _undo_write(self, segment: Segment, error: OSError) -> KafkaError:
        """Remove a partially written batch; the log end offset does not change."""
        self.check_next_append()
        path = segment.files.path(LOG)
        try:
            self.disk.ftruncate(segment.opened().fd, segment.size)
        except OSError as second:
            return self.availability.fail(f"{path} cannot be truncated after {error}: {second}")
        return self.availability.error(f"writing to {path} failed: {error}", error)

    # -- rolling ------------------------------------------------------------------------------

    def check_next_append(self) -> None:
        """Let the next append call `_segment_for`, which checks every limit."""
        self._roll_bytes = _ALWAYS_CHECK
        self._roll_timestamp = self._roll_offset = 0
        self._fd = -1

    def _segment_for(
        self, size: int, max_timestamp: int, base: int, last: int, now_ms: int
    ) -> Segment:
        """The segment for a batch of that size, timestamp and last offset; rolls if that is due."""
        self.availability.check()
        settings = self.settings
        if size > settings.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes is larger than segment.bytes={settings.segment_bytes}",
            )
        age_ms = now_ms - self.created_ms
        if roll_due(self._active, settings, size, max_timestamp, last, age_ms):
            self._roll_at(base, now_ms)
        segment = self._active
        try:
            self._fd = segment.opened().fd
            segment.on_release = self.check_next_append
        except OSError as error:
            raise self.availability.error(
                f"cannot open {segment.files.path(LOG)}: {error}", error
            ) from error
        segment.indexes.interval = settings.index_interval_bytes
        if segment.size == 0:
            segment.first_timestamp = max_timestamp
        self._dirty = True
        self._roll_offset = segment.base_offset + MAX_RELATIVE
        self._roll_timestamp = segment.first_timestamp + settings.segment_ms
        # Without a timestamp in its first batch, the age of the segment decides. Only this function
        # checks the age, so every batch calls it.
        timeless = segment.first_timestamp < 0
        self._roll_bytes = _ALWAYS_CHECK if timeless else settings.segment_bytes
        return segment

    def roll(self, now_ms: int | None = None) -> None:
        """Seal the active segment and begin a new one; nothing to do if it is empty."""
        self.availability.check()
        if self._active.size:
            self._roll_at(self.end_offset, self.created_ms if now_ms is None else now_ms)

    def _roll_at(self, base: int, now_ms: int) -> None:
        old = self._active
        fresh = Segment(self.disk, self.folder, base, 0, self.settings.index_interval_bytes)
        try:
            fresh.opened(NEW_FILE)
            old.indexes.write(sync=False)
            self.transactions.write(self.disk, old, base)
            write_snapshot(self.disk, self.folder, base, self.producers, sync=False)
        except OSError as error:
            self.check_next_append()
            reason = f"{self.partition}: cannot begin a segment at offset {base}: {error}"
            with suppress(OSError):  # an empty last segment is harmless
                fresh.remove_files()
            raise self.availability.error(reason, error) from error
        self.check_next_append()
        self._dirty = True
        self.durability.names = True
        if old.size:
            old.seal()
            old.upper = base
            self.durability.sealed.append((old, base))
            self.segments.append(fresh)
        else:
            self.segments[-1] = fresh
            old.remove_files()
        self._active = fresh
        self.created_ms = now_ms

    # -- read ---------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, limit: int, whole_first: bool) -> Slice | None:
        """Whole batches of one segment from the one that holds `offset`, all below `limit`.

        At most `max_bytes`; a larger first batch is returned if `whole_first` is set. None if there
        is nothing to return. KafkaError: 1 out of range, 2 damaged, 56 offline.
        """
        end = self.end_offset
        active = self._active
        if offset >= limit or offset >= end:
            if offset > end:
                raise _out_of_range(self, offset)
            if offset == end:
                self.segments.remember(end, active, active.size)
            return None
        if offset < self.start_offset:
            raise _out_of_range(self, offset)
        if self.availability.offline is not None:
            self.availability.check()
        segments = self.segments
        try:
            hint = segments.positions.get(offset)
            if hint is None:
                segment, position = segments.locate(offset)
            else:
                segment, position = hint
                if position >= segment.size:  # it rolled since
                    segment, position = segments.locate(offset)
            if limit >= end and segment is active:
                stop, following = active.size, end
            else:
                stop, following = segments.stop_at(segment, limit, end)
            if stop <= position:
                return None  # compaction left nothing between offset and limit
            if stop - position > max_bytes:
                stop, following = segment.boundary(position, offset, position + max_bytes)
                if stop <= position:
                    if not whole_first:
                        return None
                    _, header = next(segment.walk(position))
                    stop, following = position + header.size_bytes, header.next_offset
            if position < segment.unchecked:
                stop, following = checked_stop(segment, position, stop, following, segments, end)
            if following >= 0:
                segments.remember(following, segment, stop)
            segment.used = True
            file = segment.file or segment.opened()
        except DamageFound:
            segments.positions.clear()
            return self.read(offset, max_bytes, limit, whole_first)
        except OSError as error:
            reason = f"reading {self.folder} failed: {error}"
            raise self.availability.error(reason, error) from error
        return Slice(file, position, stop - position, following)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which every transaction has ended with a committed marker."""
        if not self.producers.open_transactions and not self.transactions.unreplicated:
            return high_watermark
        first = self.transactions.stable_below(high_watermark)
        for opened in self.producers.open_transactions.values():
            first = min(first, opened)
            break  # they are ordered by offset
        return first if first >= self.start_offset else self.start_offset

    def find_timestamp(
        self, timestamp_ms: int, searched: Searched = NOTHING_SEARCHED
    ) -> TimestampOffset | None:
        """The first record with at least this timestamp, or None.

        LongSearch: it may be in a batch that takes long to search, and is not in `searched`.
        """
        self.availability.check()
        return first_at_or_after(self.segments, timestamp_ms, self.start_offset, searched)

    def max_timestamp(self, searched: Searched = NOTHING_SEARCHED) -> TimestampOffset | None:
        """The first record with the largest timestamp of all, or None if the log is empty.

        LongSearch as above.
        """
        self.availability.check()
        return with_largest_timestamp(self.segments, searched)

    # -- truncation and deletion --------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to `offset`, durably; a batch that contains it is removed as a whole."""
        self.availability.check()
        if offset >= self.end_offset:
            return
        if offset < self.segments[0].base_offset:
            self.restart_at(offset)
            return
        index = self.segments.index_of(offset)
        segment = self.segments[index]
        try:
            position, base = segment.locate(offset) if offset > segment.base_offset else (0, -1)
            end = offset if base < 0 else min(offset, base)
            with linking:
                self.generation += 1  # from here on, no fork gets a link to a file that changes
            if self.durability.lower(end) and self.owner is not None:
                # A crash during the truncation must not make missing bytes look like damage.
                self.owner.log_truncated(self.partition, end)
            dropped = self.segments[index + 1 :]
            del self.segments[index + 1 :]
            for later in reversed(dropped):  # a crash in between must not leave a hole
                later.remove_files()
            if dropped:
                self.disk.sync_folder(self.folder)
            segment.truncate(position)
            segment.use_holes([hole for hole in segment.holes.known if hole.first < end])
            self.start_offset = min(self.start_offset, end)
            self._after_truncation(end)
        except OSError as error:
            reason = f"truncating {segment.files.path(LOG)} failed: {error}"
            raise self.availability.fail(reason) from error

    def restart_at(self, offset: int) -> None:
        """Remove all records; the next one gets this offset."""
        self.availability.check()
        try:
            if self.owner is not None:
                self.owner.removal.rename_now(self.folder)
            if self.durability.lower(0) and self.owner is not None:
                self.owner.log_truncated(self.partition, 0)
            for segment in self.segments:
                segment.remove_files()
            fresh = Segment(self.disk, self.folder, offset, 0, self.settings.index_interval_bytes)
            fresh.opened(NEW_FILE)
            self.segments[:] = [fresh]
            names = self.disk.list_folder(self.folder)
            snapshots.remove_snapshots(self.disk, self.folder, snapshots.list_snapshots(names))
            self.epochs.clear()
            self.transactions.clear()
            self.start_offset = offset
            self._after_truncation(offset)
        except OSError as error:
            raise self.availability.fail(f"emptying {self.folder} failed: {error}") from error

    def _after_truncation(self, end: int) -> None:
        """Apply the lower log end offset to all state; durable before the next append."""
        self.generation += 1
        self._active = self.segments[-1]
        self.segments.positions.clear()
        self.durability.keep(self.segments)
        self._dirty = True
        self.end_offset = end
        self.durability.lower(end)
        self.transactions.truncate(end)
        self.epochs.truncate_end(end)
        self._epoch = self.epochs.latest
        self.durability.save_epochs()
        if self.has_hole_list:
            holes = self.segments.holes(end)
            write_holes(self.disk, self.folder, holes)
            self.has_hole_list = bool(holes)
        names = self.disk.list_folder(self.folder)
        later = [offset for offset in snapshots.list_snapshots(names) if offset > end]
        snapshots.remove_snapshots(self.disk, self.folder, later)
        self.disk.sync_folder(self.folder)
        self.producers = snapshots.rebuild(
            self.disk, self.folder, names, self.segments, end, self.producers.since
        )
        self.check_next_append()
        unsaved = self.durability.lower(end) or self.start_offset >= end
        if unsaved and self.owner is not None:
            self.owner.log_truncated(self.partition, end)

    def delete_records_before(self, offset: int) -> int:
        """Move the log start offset to `offset` or later; returns it.

        Segments that end before it leave the log; the owner removes their files later.
        KafkaError 1 above the log end offset.
        """
        self.availability.check()
        if offset > self.end_offset:
            raise _out_of_range(self, offset)
        if offset > self.start_offset:
            self.start_offset = offset
            self._dirty = True
            self.epochs.truncate_start(offset)
        count = self.segments.index_of(self.start_offset)
        if count:
            dropped = self.segments[:count]
            del self.segments[:count]
            self.transactions.drop_before(self.segments[0].base_offset)
            self.segments.positions.clear()
            self.durability.drop_below(self.segments[0].base_offset)
            if self.owner is not None:
                self.owner.removal.drop(dropped, self.settings.file_delete_delay_ms)
        return self.start_offset

    def delete_segments(self, count: int, now_ms: int) -> None:
        """Remove the oldest segments; rolls a new one first if these are all."""
        if count == len(self.segments):
            self.roll(now_ms)
        self.delete_records_before(self.segments[count].base_offset)

    def skip_to(self, offset: int) -> None:
        """Set the log end to at least this offset: compaction removed the records before it."""
        self._roll_at(offset, self.created_ms)
        self.end_offset = offset

    def take_over(self, other: "Log", folder: str) -> None:
        """Replace a log with the same records; this one's folder was renamed to `folder`."""
        self.folder = folder
        self.durability.folder_renamed(folder, self.segments)
        self._dirty = True
        self.producers = other.producers
        self.epochs.adopt(other.epochs.entries)
        self.delete_records_before(other.start_offset)

    # -- durability ---------------------------------------------------------------------------

    def flush(self) -> int:
        """Flush all records; returns the flushed offset. May run in a worker thread.

        If a sync fails, the content of the disk is unknown: the log goes offline until a restart.
        """
        self.availability.check()
        generation, end, active = self.generation, self.end_offset, self._active
        sealed = self.durability.take()
        try:
            behind = end > self.durability.recovery_point
            self.durability.sync(sealed, active if behind else None, self.segments)
        except OSError as error:
            self.availability.check()  # the owner may have closed or deleted the log
            raise self.availability.fail(f"syncing {self.folder} failed: {error}") from error
        if generation != self.generation:
            self.durability.keep(self.segments, sealed)
        else:
            self.durability.recovery_point = max(end, self.durability.recovery_point)
        return self.durability.recovery_point

    def close(self) -> None:
        """Flush, and write the files that let the next start open this log without a scan."""
        if self.availability.offline is None and (self._dirty or self.epochs.dirty):
            try:
                self.transactions.write(self.disk, self._active, self.end_offset)
                self.flush()
                self._active.indexes.write(sync=True)
                write_snapshot(self.disk, self.folder, self.end_offset, self.producers, sync=True)
                self.disk.sync_folder(self.folder)
            except OSError as error:
                raise self.availability.fail(f"closing {self.folder} failed: {error}") from error
        self.abandon("it is closed")

    def abandon(self, reason: str) -> None:
        """Close the log: no more reads or writes."""
        self.availability.take_offline(reason)
        self.segments.positions.clear()
        for segment in self.segments:
            segment.release()


def _out_of_range(log: Log, offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{log.partition} holds the offsets {log.start_offset} to {log.end_offset}, not {offset}",
    )
