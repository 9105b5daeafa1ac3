"""Opening a log: at once after a clean stop, with a scan after a crash.

After a clean stop the names in the folder, the end of the active segment and the newest producer
snapshot say everything. Otherwise each segment from the one that holds the recovery point is read
as a whole: batches must be sane, follow each other and match their CRC. The log is cut behind the
last batch that does, later segments are dropped, and indexes, producer state, transactions and
epochs made anew.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.disk import Disk
from headrace.errors import KafkaError
from headrace.log.checked import checked_batches
from headrace.log.checkpoints import MOVED_FROM, read_epochs
from headrace.log.compaction_swap import settle
from headrace.log.epochs import FILE_NAME as EPOCHS_FILE
from headrace.log.epochs import EpochCache
from headrace.log.log import Log
from headrace.log.owner import LogOwner
from headrace.log.producer_state import ProducerState
from headrace.log.segment import (
    DELETED,
    INDEX,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Segment,
    remove_if_there,
    segment_path,
)
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
from headrace.wire.batch import OVERHEAD

_TEMPORARY = (DELETED, ".tmp", MOVED_FROM)

_Opened = tuple[int, ProducerState, EndedTransactions]
"""The log's end, and what is known of its producers and their transactions there."""

_logger = logging.getLogger("headrace.log")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the log directory's checkpoint files say of one partition."""

    start_offset: int | None = 0
    """None if the file that has it is lost."""
    recovery_point: int | None = None
    clean: bool = False
    cleaned_to: int = 0
    """Below it compaction has left gaps."""


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
    segment.create_file()
    segment.release()  # ten thousand idle partitions must not cost ten thousand descriptors
    return Log(
        partition,
        folder,
        settings,
        disk,
        [segment],
        start_offset=0,
        end_offset=0,
        recovery_point=0,
        producers=ProducerState(),
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
    """The log in that folder, made whole again if it was not closed cleanly."""
    names = _tidy(disk, folder, settle(disk, folder, disk.list_folder(folder)))
    bases = _segment_bases(names)
    segments = [_segment(disk, folder, base, settings) for base in bases]
    if not segments:
        interval = settings.index_interval_bytes
        segments = [Segment(disk, folder, checkpoint.start_offset or 0, 0, interval)]
        segments[0].create_file()
    for segment in segments[:-1]:
        segment.seal()
    entries = read_epochs(disk, f"{folder}/{EPOCHS_FILE}")
    if not entries and any(segment.size for segment in segments):
        entries = None  # records have epochs, so the file must have been lost
    start = checkpoint.start_offset
    if start is None:
        start = _start_by_epochs(entries, segments[0])
    epochs = EpochCache(entries or ())
    opened = None
    if checkpoint.clean and checkpoint.recovery_point is not None and entries is not None:
        opened = _open_clean(disk, folder, names, segments)
    if opened is None:
        scan = _Scan(disk, folder, names, segments, settings, epochs)
        point = 0 if entries is None else checkpoint.recovery_point or 0
        opened = scan.run(partition, point, checkpoint.cleaned_to)
    end, producers, transactions = opened
    producers.expire(now_ms, settings.producer_id_expiration_ms)
    _read_first_timestamp(segments[-1])
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
    epochs.truncate_end(max(end, log.start_offset))
    epochs.truncate_start(log.start_offset)
    log.saved_recovery_point = max(checkpoint.recovery_point or 0, end)
    if log.start_offset > end:
        _logger.warning(
            "%s ends at offset %d, before its start offset %d; it begins anew there",
            partition,
            end,
            log.start_offset,
        )
        log.restart_at(log.start_offset)
    return log


def _tidy(disk: Disk, folder: str, names: list[str]) -> list[str]:
    """Remove what an interrupted run left behind; the names that stay."""
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
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def _segment(disk: Disk, folder: str, base: int, settings: LogSettings) -> Segment:
    size = disk.file_size(segment_path(folder, base, LOG))
    return Segment(disk, folder, base, size, settings.index_interval_bytes)


def _read_first_timestamp(segment: Segment) -> None:
    if segment.size:
        _, header = next(segment.walk(0))
        segment.first_timestamp = header[8]


def _start_by_epochs(entries: Sequence[tuple[int, int]] | None, first: Segment) -> int:
    """Where the log begins, as far as its epochs tell: the oldest of them is moved along."""
    if entries and first.size:
        _, header = next(first.walk(0))
        epoch, start = entries[0]
        if header[0] < start and 0 <= header[2] <= epoch:
            return start
    return 0


def _open_clean(
    disk: Disk, folder: str, names: list[str], segments: list[Segment]
) -> _Opened | None:
    """What a clean stop left; None if the files do not bear it out."""
    active = segments[-1]
    end = active.base_offset
    try:
        if active.size and not active.load_indexes():
            return None
        latest, latest_offset = active.largest_timestamp, active.largest_offset
        told = not active.times
        position = (active.offsets[-1] & 0xFFFFFFFF) if active.offsets else 0
        for at, header in active.walk(position):
            end = header[0] + header[6] + 1
            active.note_batch(at, header[0], end - 1, header[8])
            told = told or (header[8] == latest and header[0] <= latest_offset < end)
        if not told:
            _, batch = active.locate(latest_offset)
            told = batch is not None and batch[8] == latest
        # The time index ends with the largest time of all, or it is not what was written.
        if active.times and (active.largest_timestamp > latest or not told):
            return None
        snapshots = list_snapshots(names)
        first = segments[0].base_offset
        useless = [offset for offset in snapshots if not first <= offset <= end]
        remove_snapshots(disk, folder, useless)
        transactions = load_transactions(disk, folder, names, segments, end)
        return end, rebuild(disk, folder, names, segments, end), transactions
    except KafkaError as error:
        _logger.warning("%s was closed cleanly, yet %s; it is scanned", folder, error)
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
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._names = names
        self._segments = segments
        self._epochs = epochs
        self._compacted = "compact" in settings.cleanup_policy
        self._producers = ProducerState()
        self._transactions = EndedTransactions()
        self._cut_something = False

    def run(self, partition: TopicPartition, recovery_point: int, cleaned_to: int) -> _Opened:
        """What is left after the scan."""
        gapless_from = max(recovery_point, cleaned_to)
        segments = self._segments
        first = len(segments) - 1
        while first > 0 and segments[first].base_offset > recovery_point:
            first -= 1
        base = segments[first].base_offset
        self._check_sealed_indexes(first)
        self._load_producers(first, base)
        end = base
        for index in range(first, len(segments)):
            segment = segments[index]
            # What an unsynced segment lost at its end must not show as a hole in the middle.
            lost = segment.base_offset > end >= gapless_from and not self._compacted
            if index > first and (lost or segment.base_offset < end):
                self._drop_from(partition, index, f"the segment before it ends at offset {end}")
                break
            if index > first:
                base = segment.base_offset
                write_snapshot(self._disk, self._folder, base, self._producers, sync=True)
                self._transactions.write(self._disk, segments[index - 1], base)
            end, position = self._scan_segment(segment, gapless_from)
            if position < segment.size:
                self._cut(partition, segment, position, end)
                self._drop_from(partition, index + 1, "the segment before it was cut")
                break
        self._finish(first, end, recovery_point)
        return end, self._producers, self._transactions

    def _check_sealed_indexes(self, count: int) -> None:
        for segment in self._segments[:count]:
            segment.offset_index()
            segment.time_index()
            segment.release()

    def _load_producers(self, first: int, base: int) -> None:
        snapshots = list_snapshots(self._names)
        oldest = self._segments[0].base_offset
        useless = [offset for offset in snapshots if not oldest <= offset <= base]
        remove_snapshots(self._disk, self._folder, useless)
        offset, self._producers = load_snapshot(self._disk, self._folder, snapshots, oldest, base)
        sealed = self._segments[:first]
        if offset < base:
            replay(self._producers, sealed, max(offset, oldest), base)
        self._transactions = load_transactions(self._disk, self._folder, self._names, sealed, base)

    def _scan_segment(self, segment: Segment, gapless_from: int) -> tuple[int, int]:
        """The offset and the position behind the last good batch; indexes are made on the way."""
        # The base offset is outside of the checksum. Only compaction leaves gaps, so elsewhere
        # a batch that does not follow the one before it is damaged.
        gapless = None if self._compacted else gapless_from
        segment.sealed = False
        segment.reset_indexes()
        end, stop = segment.base_offset, 0
        for position, header in checked_batches(segment, gapless):
            end = header[0] + header[6] + 1
            stop = position + header[1] + OVERHEAD
            segment.note_batch(position, header[0], end - 1, header[8])
            if header[2] > self._epochs.latest:
                self._epochs.assign(header[2], header[0])
            ended = replay_batch(self._producers, segment, position, header)
            if ended is not None:
                self._transactions.add(ended)
        self._transactions.settled_below(end)
        return end, stop

    def _cut(self, partition: TopicPartition, segment: Segment, position: int, end: int) -> None:
        _logger.warning(
            "%s: cut %d bytes behind the last whole batch of %s; the log ends at offset %d",
            partition,
            segment.size - position,
            segment.path(LOG),
            end,
        )
        self._cut_something = True
        segment.size = position
        self._disk.ftruncate(segment.opened().fd, position)

    def _drop_from(self, partition: TopicPartition, index: int, why: str) -> None:
        for segment in reversed(self._segments[index:]):  # a crash in between leaves no hole
            _logger.warning(
                "%s: dropped %s with %d bytes because %s",
                partition,
                segment.path(LOG),
                segment.size,
                why,
            )
            segment.remove_files()
        del self._segments[index:]

    def _finish(self, first: int, end: int, recovery_point: int) -> None:
        """Make durable what the scan found, so that the next crash starts from here."""
        self._epochs.truncate_end(end)
        for segment in self._segments[first:-1]:
            segment.write_indexes(sync=True)
            segment.seal()
        # A clean stop writes nothing for a log that nobody has written to since.
        self._transactions.write(self._disk, self._segments[-1], end)
        self._transactions.save_checksums(self._disk, self._folder)
        for segment in self._segments[first:]:
            if end != recovery_point or self._cut_something:
                self._disk.fdatasync(segment.opened().fd)
            segment.release()
            segment.unchecked = 0
        if end != recovery_point or self._cut_something:
            self._disk.sync_folder(self._folder)
