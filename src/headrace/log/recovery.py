"""Opening a log: at once after a clean stop, with a scan after a crash.

After a clean stop the names in the folder, the end of the active segment and the newest producer
snapshot say everything. Otherwise each segment from the one that holds the recovery point is read
as a whole: batches must be sane, follow each other and match their CRC. Indexes, producer state,
transactions and epochs are made from what is found.

Bytes that are no sound batch are either a torn tail or damage (decision 0031):

- With nothing sound behind them and at or beyond the recovery point they are a torn tail, the end
  of what was written when the broker died. The log is cut there.
- Everything else is damage, a hole (`damage.py`). It stays, what follows it stays readable, and the
  log never ends before the recovery point: a new segment begins there if need be.
- A partition with other replicas is also cut at a hole beyond the recovery point: a power cut may
  have lost any part of what was not synced. The others have it, and it is fetched from them.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.disk import Disk
from headrace.errors import KafkaError
from headrace.log.availability import LogOwner
from headrace.log.checked import checked_batches
from headrace.log.checkpoints import MOVED_FROM, read_epochs
from headrace.log.compaction.swap import settle
from headrace.log.damage import assign_holes, next_batch, read_holes, write_holes
from headrace.log.epochs import FILE_NAME as EPOCHS_FILE
from headrace.log.epochs import EpochCache
from headrace.log.holes import Hole
from headrace.log.indexes import POSITION_MASK
from headrace.log.log import Log
from headrace.log.producer_state import ProducerState
from headrace.log.segment import MAX_RELATIVE, NEW_FILE, Segment, own_file
from headrace.log.segment_files import (
    DELETED,
    INDEX,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
    remove_if_there,
    segment_path,
)
from headrace.log.segment_indexes import UnusableIndex
from headrace.log.segments import LogSegments
from headrace.log.snapshots import (
    list_snapshots,
    load_snapshot,
    rebuild,
    remove_snapshots,
    replay,
    replay_batch,
    write_snapshot,
)
from headrace.log.transactions import EndedTransactions, load_transactions
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import Header

_TEMPORARY = (DELETED, ".tmp", MOVED_FROM)
_DIGITS = 20
_LARGEST_OFFSET = 2**63 - 1

_Opened = tuple[int, ProducerState, EndedTransactions]
"""The log end offset, and the producer state and transactions at that offset."""

_logger = logging.getLogger("headrace.log")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The entries of one partition in the log directory's checkpoint files."""

    start_offset: int | None = 0
    """None if the file that has it is lost."""
    recovery_point: int | None = None
    clean: bool = False
    cleaned_to: int = 0
    """Below it compaction has left gaps."""
    replicated: bool = False
    """Whether the partition has other replicas."""


def create_log(
    partition: TopicPartition,
    folder: str,
    settings: LogSettings,
    disk: Disk,
    now_ms: int,
    owner: LogOwner | None = None,
) -> Log:
    """A new empty log in an existing empty folder; nothing is synced yet."""
    segment = Segment(disk, folder, 0, 0, settings.index_interval_bytes)
    segment.opened(NEW_FILE)
    segment.release()  # ten thousand idle partitions must not cost ten thousand descriptors
    return Log(
        partition,
        folder,
        settings,
        disk,
        LogSegments([segment]),
        start_offset=0,
        end_offset=0,
        recovery_point=0,
        producers=ProducerState(settings.fork_offset(partition.partition)),
        transactions=EndedTransactions(),
        epochs=EpochCache(),
        now_ms=now_ms,
        owner=owner,
        new=True,
    )


def open_log(
    partition: TopicPartition,
    folder: str,
    settings: LogSettings,
    disk: Disk,
    now_ms: int,
    checkpoint: Checkpoint,
    owner: LogOwner | None = None,
) -> Log:
    """The log in that folder, recovered if it was not closed cleanly."""
    names = _tidy(disk, folder, settle(disk, folder, disk.list_folder(folder)))
    bases = _segment_bases(names)
    segments = LogSegments(_segment(disk, folder, base, settings) for base in bases)
    if not segments:
        interval = settings.index_interval_bytes
        segments.append(Segment(disk, folder, checkpoint.start_offset or 0, 0, interval))
        segments[0].opened(NEW_FILE)
    for segment, following in pairwise(segments):
        segment.seal()
        segment.upper = following.base_offset
    entries = read_epochs(disk, f"{folder}/{EPOCHS_FILE}")
    if not entries and any(segment.size for segment in segments):
        entries = None  # records have epochs, so the file must have been lost
    start = checkpoint.start_offset
    if start is None:
        start = _start_by_epochs(entries, segments[0])
    epochs = EpochCache(entries or ())
    known_holes = read_holes(disk, folder, names)
    opened = None
    if checkpoint.clean and checkpoint.recovery_point is not None and entries is not None:
        point, since = checkpoint.recovery_point, settings.fork_offset(partition.partition)
        opened = _open_clean(disk, folder, names, segments, point, since)
    if opened is None:
        scan = _Scan(disk, folder, names, segments, settings, epochs, partition, checkpoint)
        opened = scan.run(lost_epochs=entries is None)
    end, producers, transactions = opened
    assign_holes(segments, known_holes, max(start, segments[0].base_offset), end)
    holes = segments.holes(end)
    if holes != known_holes:
        write_holes(disk, folder, holes)
    producers.expire(now_ms, settings.producer_id_expiration_ms)
    _make_active(segments[-1])
    log = Log(
        partition,
        folder,
        settings,
        disk,
        segments,
        start_offset=max(start, segments[0].base_offset),
        end_offset=end,
        recovery_point=end,
        producers=producers,
        transactions=transactions,
        epochs=epochs,
        now_ms=now_ms,
        owner=owner,
    )
    log.has_hole_list = bool(holes)
    epochs.truncate_end(max(end, log.start_offset))
    epochs.truncate_start(log.start_offset)
    log.durability.saved_recovery_point = max(checkpoint.recovery_point or 0, end)
    if log.start_offset > end:
        _logger.warning(
            "%s ends at offset %d, before its start offset %d; the log starts at the start offset",
            partition,
            end,
            log.start_offset,
        )
        log.restart_at(log.start_offset)
    return log


def _tidy(disk: Disk, folder: str, names: list[str]) -> list[str]:
    """Remove files that an interrupted run left; returns the names of the others."""
    kept = []
    bases = {name.removesuffix(LOG) for name in names if name.endswith(LOG)}
    for name in names:
        stem, _, suffix = name.rpartition(".")
        orphan = "." + suffix in (INDEX, TIME_INDEX, TRANSACTION_INDEX) and stem not in bases
        if name.endswith(_TEMPORARY) or orphan:
            remove_if_there(disk, f"{folder}/{name}")
        else:
            kept.append(name)
    return kept


def _segment_bases(names: list[str]) -> list[int]:
    stems = (name.removesuffix(LOG) for name in names if name.endswith(LOG))
    bases = (int(stem) for stem in stems if len(stem) == _DIGITS and stem.isdecimal())
    return sorted(base for base in bases if base <= _LARGEST_OFFSET)


def _segment(disk: Disk, folder: str, base: int, settings: LogSettings) -> Segment:
    size = disk.file_size(segment_path(folder, base, LOG))
    return Segment(disk, folder, base, size, settings.index_interval_bytes)


def _make_active(segment: Segment) -> None:
    """Prepare the last segment for appends."""
    own_file(segment, segment.size)
    for _, header in segment.walk(0):
        segment.first_timestamp = header.max_timestamp
        return


def _start_by_epochs(entries: Sequence[tuple[int, int]] | None, first: Segment) -> int:
    """The log start offset according to its epochs: the oldest entry moves with it."""
    for epoch, start in (entries or ())[:1]:
        for _, header in first.walk(0):
            return (
                start
                if header.base_offset < start and 0 <= header.partition_leader_epoch <= epoch
                else 0
            )
    return 0


def _load_indexes(active: Segment) -> bool:
    """Read the index files of a log's last segment; False if they cannot be its own."""
    indexes = active.indexes
    try:
        indexes.load(active.size)
    except UnusableIndex:
        return False
    return not indexes.offsets or bool(indexes.times) or active.first_time() < 0


def _open_clean(
    disk: Disk,
    folder: str,
    names: list[str],
    segments: list[Segment],
    recovery_point: int,
    since: int,
) -> _Opened | None:
    """The state of a clean stop; None if the files contradict it.

    `since` is that of `ProducerState`.
    """
    active = segments[-1]
    end = active.base_offset
    try:
        if active.size and not _load_indexes(active):
            return None
        indexes = active.indexes
        latest, latest_offset = indexes.largest_timestamp, indexes.largest_offset
        matches = not indexes.times
        position = (indexes.offsets[-1] & POSITION_MASK) if indexes.offsets else 0
        for at, header in active.walk(position):
            end = header.next_offset
            active.indexes.add_batch(at, header.base_offset, end - 1, header.max_timestamp)
            matches = matches or (
                header.max_timestamp == latest and header.base_offset <= latest_offset < end
            )
        if not matches:
            at, base = active.locate(latest_offset)
            matches = base >= 0 and active.header_at(at).max_timestamp == latest
        # The last entry of the time index must have the largest timestamp of all.
        if indexes.times and (indexes.largest_timestamp > latest or not matches):
            return None
        # Everything was synced. A copy from another data folder has no recovery point.
        if active.holes.known or (recovery_point and end != recovery_point):
            _logger.warning(
                "%s was closed cleanly at offset %d but ends at %d; it is scanned",
                folder, recovery_point, end,
            )  # fmt: skip
            return None
        snapshots = list_snapshots(names)
        first = segments[0].base_offset
        useless = [offset for offset in snapshots if not first <= offset <= end]
        remove_snapshots(disk, folder, useless)
        transactions = load_transactions(disk, folder, names, segments, end)
        return end, rebuild(disk, folder, names, segments, end, since), transactions
    except KafkaError as error:
        _logger.warning("%s was closed cleanly, but %s; it is scanned", folder, error)
        return None


class _Scan:
    """One recovery: reads every batch from the recovery point's segment on."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        names: list[str],
        segments: list[Segment],
        settings: LogSettings,
        epochs: EpochCache,
        partition: TopicPartition,
        checkpoint: Checkpoint,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._names = names
        self._segments = segments
        self._interval = settings.index_interval_bytes
        self._epochs = epochs
        self._partition = partition
        self._replicated = checkpoint.replicated
        self._compacted = "compact" in settings.cleanup_policy
        self._recovery_point = min(checkpoint.recovery_point or 0, _LARGEST_OFFSET)
        # A clean stop has synced everything: no batch ends after that offset. The checkpoint has no
        # checksum, so the snapshot that a clean stop writes must confirm it.
        self._stopped = checkpoint.clean
        confirmed = checkpoint.clean and self._recovery_point in list_snapshots(names)
        self._clean_end = self._recovery_point if confirmed else None
        self._cleaned_to = checkpoint.cleaned_to
        self._since = settings.fork_offset(partition.partition)
        self._producers = ProducerState(self._since)
        self._transactions = EndedTransactions()
        # Snapshots within the scanned range; they include the producers of lost batches.
        self._later_snapshots: list[int] = []
        self._changed_files = False

    def run(self, *, lost_epochs: bool) -> _Opened:
        """Scan, and return the state of the log; the whole log if the epoch checkpoint is lost."""
        point = 0 if lost_epochs else self._recovery_point
        gapless_from = max(point, self._cleaned_to)
        segments = self._segments
        first = len(segments) - 1
        while first > 0 and segments[first].base_offset > point:
            first -= 1
        end = base = segments[first].base_offset
        self._check_sealed_indexes(first)
        self._load_producers(first, base)
        index = first
        while index < len(segments):
            segment = segments[index]
            if index > first:
                if segment.base_offset < end:
                    self._drop_from(index, f"the segment before it ends at offset {end}")
                    break
                # Only compaction leaves a gap between two segments.
                lost = segment.base_offset > end >= gapless_from and not self._compacted
                if lost and self._may_be_cut(end):
                    self._drop_from(index, f"the segment before it ends at offset {end}")
                    break
                self._begin_segment(segments[index - 1], segment, end if lost else None)
            end, position = self._scan_segment(index, gapless_from)
            if position < segment.size:
                behind = next((one for one in segments[index + 1 :] if one.size), None)
                if self._may_be_cut(end) or (behind is None and end >= self._recovery_point):
                    self._cut(segment, position, end)
                    self._drop_from(index + 1, "the segment before it was truncated")
                    break
                following = self._recovery_point if behind is None else behind.base_offset
                self._add_hole(segment, Hole(position, segment.size, end, following))
                if behind is None:
                    self._drop_from(index + 1, "it is empty")
                end = following
            index += 1
        end = self._end_at_recovery_point(end)
        self._finish(first, end)
        return end, self._producers, self._transactions

    def _may_be_cut(self, offset: int) -> bool:
        """Whether what is lost from this offset on may be fetched again from other replicas.

        A replica must not have a hole where an unsynced segment has lost its end.
        """
        return self._replicated and offset >= self._recovery_point

    def _begin_segment(self, before: Segment, segment: Segment, lost_from: int | None) -> None:
        """Begin the next segment; `lost_from` is the end of the one before, if there is a gap."""
        base = segment.base_offset
        if lost_from is not None:
            self._add_hole(before, Hole(before.size, before.size, lost_from, base))
        if before.holes.known and base in self._later_snapshots:
            # It was taken at the roll, so it includes the producers of lost batches.
            at, producers = load_snapshot(
                self._disk, self._folder, self._later_snapshots, base, base, self._since
            )
            self._producers = producers if at == base else self._producers
        write_snapshot(self._disk, self._folder, base, self._producers, sync=True)
        self._transactions.write(self._disk, before, base)

    def _end_at_recovery_point(self, end: int) -> int:
        """Complete the log: lost offsets below the recovery point become a hole and are not
        reused.
        """
        active, following = self._segments[-1], self._recovery_point
        torn = bool(active.holes.known) and active.holes.known[-1].following >= end
        if end < following and not self._is_confirmed(following):
            _logger.warning(
                "%s ends at offset %d, but its recovery point is %d; using the end of the batches",
                self._partition, end, following,
            )  # fmt: skip
            following = end
        if end < following:
            self._add_hole(active, Hole(active.size, active.size, end, following))
        elif not torn:
            return end
        end = max(end, following)
        fresh = Segment(self._disk, self._folder, end, 0, self._interval)
        fresh.opened(NEW_FILE)
        self._begin_segment(active, fresh, None)
        self._segments.append(fresh)
        self._changed_files = True
        return end

    def _is_confirmed(self, recovery_point: int) -> bool:
        """Whether the log has reached that offset; the checkpoint has no checksum.

        At a clean stop the log ended there, and a snapshot has that name.
        """
        if self._stopped:
            return recovery_point <= max(self._later_snapshots, default=0)
        return recovery_point <= self._segments[-1].base_offset + MAX_RELATIVE

    def _add_hole(self, segment: Segment, hole: Hole) -> None:
        segment.use_holes([*segment.holes.known, hole])
        if hole.first == hole.following:
            _logger.warning(
                "%s: ignoring %d bytes at position %d of %s that belong to no batch",
                self._partition, hole.stop - hole.start, hole.start, segment.files.path(LOG),
            )  # fmt: skip
            return
        _logger.error(
            "%s: %s is damaged at position %d: the offsets %d to %d cannot be read. Later records "
            "are kept. The damaged ones are fetched from another replica if one is in sync. "
            "Otherwise restore the file, or let readers continue at offset %d",
            self._partition, segment.files.path(LOG), hole.start, hole.first, hole.following - 1,
            hole.following,
        )  # fmt: skip

    def _check_sealed_indexes(self, count: int) -> None:
        for segment in self._segments[:count]:
            segment.offset_index()
            segment.time_index()
            segment.release()

    def _load_producers(self, first: int, base: int) -> None:
        snapshots = list_snapshots(self._names)
        oldest = self._segments[0].base_offset
        self._later_snapshots = [offset for offset in snapshots if offset > base]
        offset, self._producers = load_snapshot(
            self._disk, self._folder, snapshots, oldest, base, self._since
        )
        sealed = self._segments[:first]
        if offset < base:
            replay(self._producers, sealed, max(offset, oldest), base)
        self._transactions = load_transactions(self._disk, self._folder, self._names, sealed, base)

    def _scan_segment(self, index: int, gapless_from: int) -> tuple[int, int]:
        """Build the indexes; returns the offset and the position after the last valid batch."""
        # The checksum does not cover the base offset. Only compaction leaves gaps, so elsewhere
        # a batch that does not follow the one before it is damaged.
        gapless = None if self._compacted else gapless_from
        segment = self._segments[index]
        behind = [one.base_offset for one in self._segments[index + 1 :] if one.size]
        upper = behind[0] if behind else self._clean_bound(segment, gapless)
        segment.sealed = False
        segment.indexes.reset()
        segment.use_holes(())
        end, stop = segment.base_offset, 0
        while True:
            for position, header in checked_batches(segment, gapless, stop, end, upper=upper):
                end = header.next_offset
                stop = position + header.size_bytes
                self._note(segment, position, header)
            if stop >= segment.size:
                break
            without_gaps = gapless is not None and end >= gapless
            found = next_batch(segment, stop, end, upper, gapless=without_gaps)
            if found is None or self._may_be_cut(end):
                break
            start, offset = found
            self._add_hole(segment, Hole(stop, start, end, offset))
            stop, end = found
        segment.holes.examined = True
        self._transactions.stable_below(end)
        return end, stop

    def _clean_bound(self, active: Segment, gapless: int | None) -> int | None:
        """The log end offset of the clean stop, if exactly one batch contradicts it.

        The checksum does not cover the base offset: a single batch above that offset, with a gap of
        its size below it, has a damaged one. If the log continues at that offset or has several
        batches above it, another broker has written to it since.
        """
        bound = self._clean_end
        if bound is None or active.base_offset >= bound:
            return None
        end, beyond = active.base_offset, 0
        for _, header in checked_batches(active, gapless):
            last = header.last_offset
            if last >= bound:
                beyond += 1
            else:
                end = last + 1
        return bound if beyond == 1 and end < bound else None

    def _note(self, segment: Segment, position: int, header: Header) -> None:
        """Add a valid batch to the indexes, the epochs and the producer state."""
        segment.indexes.add_batch(
            position, header.base_offset, header.last_offset, header.max_timestamp
        )
        if header.partition_leader_epoch > self._epochs.latest:
            self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        ended = replay_batch(self._producers, segment, position, header)
        if ended is not None:
            self._transactions.add(ended)

    def _cut(self, segment: Segment, position: int, end: int) -> None:
        _logger.warning(
            "%s: truncated %d bytes after the last whole batch of %s; the log ends at offset %d",
            self._partition,
            segment.size - position,
            segment.files.path(LOG),
            end,
        )
        self._changed_files = True
        own_file(segment, position)
        segment.size = position
        self._disk.ftruncate(segment.opened().fd, position)

    def _drop_from(self, index: int, why: str) -> None:
        for segment in reversed(self._segments[index:]):  # a crash in between leaves no hole
            _logger.warning(
                "%s: dropped %s with %d bytes because %s",
                self._partition,
                segment.files.path(LOG),
                segment.size,
                why,
            )
            segment.remove_files()
        del self._segments[index:]

    def _finish(self, first: int, end: int) -> None:
        """Make the result of the scan durable, so that it need not be repeated after a crash."""
        self._epochs.truncate_end(end)
        for segment in self._segments[first:-1]:
            segment.indexes.write(sync=True)
            segment.seal()
        for segment, following in pairwise(self._segments):
            segment.upper = following.base_offset
        self._segments[-1].upper = None
        kept = {segment.base_offset for segment in self._segments}
        oldest = self._segments[0].base_offset
        snapshots = [*list_snapshots(self._names)]
        useless = [at for at in snapshots if at < oldest or (at in self._later_snapshots)]
        remove_snapshots(self._disk, self._folder, [at for at in useless if at not in kept])
        # A clean stop writes nothing for a log without new records.
        self._transactions.write(self._disk, self._segments[-1], end)
        self._transactions.save_checksums(self._disk, self._folder)
        unchanged = end == self._recovery_point and not self._changed_files
        for segment in self._segments[first:]:
            if not unchanged:
                self._disk.fdatasync(segment.opened().fd)
            segment.release()
            if not segment.holes.known:
                segment.unchecked = 0
        if not unchanged:
            self._disk.sync_folder(self._folder)
