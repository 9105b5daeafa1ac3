"""Builds the log of a fork: the beginning of another partition's log, without a copy of it.

Segments that end at or before the cut get hard links in the fork's folder. The segment that holds
the cut is copied up to the end of the batch that contains it. The fork's own records begin in a new
segment. The first batches there are the markers of transactions that the parent ended after the
cut, so that the records before the cut are committed or aborted as they are in the parent.

The fork's folder is `<topic>-<partition>.<id>-fork` until it is complete. A crash leaves such a
folder, which the next start removes, and the fork is built again.
"""

import errno
import struct
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.disk import READ_ONLY, Disk, copy_file, sync_file, write_fully
from headrace.log.checkpoints import PARTITION_METADATA, write_epochs, write_topic_id
from headrace.log.damage import read_holes, write_holes
from headrace.log.data_folder import remove_tree
from headrace.log.epochs import FILE_NAME as EPOCHS_FILE
from headrace.log.folder_names import fork_folder_name
from headrace.log.forks.plan import ForkPlan
from headrace.log.log import Log
from headrace.log.producer_state import Producer, ProducerState
from headrace.log.recovery import Checkpoint, open_log
from headrace.log.segment import NEW_FILE, Segment
from headrace.log.segment_files import ALL_SUFFIXES, LOG, linking, segment_path
from headrace.log.snapshots import (
    list_snapshots,
    load_snapshot,
    record_batch,
    replay,
    replay_batch,
    write_snapshot,
)
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import CONTROL, OVERHEAD, TRANSACTIONAL, read_header
from headrace.wire.markers import encode_marker

if TYPE_CHECKING:
    from headrace.log.directory import LogDirectory

_NO_LINKS = frozenset(
    (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS)
)
"""Errors of a file system that has no hard links, or no more of them: the file is copied."""

_stamp = struct.Struct(">qii").pack_into


class ParentChanged(Exception):
    """The parent's files are no longer those of the plan; make another plan."""


@dataclass(frozen=True, slots=True)
class BuiltFork:
    """A complete fork that has not got its name yet."""

    directory: "LogDirectory"
    folder: str
    log: Log


def build_fork(
    plan: ForkPlan,
    directory: "LogDirectory",
    partition: TopicPartition,
    topic_id: uuid.UUID,
    settings: LogSettings,
) -> BuiltFork:
    """Build the fork in the parent's data folder, durably. Runs in a worker thread.

    ParentChanged, and KafkaError 56 if the disk fails; nothing is left of the fork then.
    """
    directory.check_online()
    folder = f"{directory.path}/{fork_folder_name(partition)}"
    with directory.storage(f"build the fork {partition} in {folder}"):
        try:
            builder = _Builder(plan, directory.disk, folder, settings)
            end = builder.build(topic_id)
            cleaned_to = directory.checkpoints.cleaned_to(plan.parent.partition)
            cleaned_to = None if cleaned_to is None else min(cleaned_to, end)
            log = open_log(
                partition, folder, settings, directory.disk, directory.clock.now_ms(),
                Checkpoint(plan.start_offset, end, clean=True, cleaned_to=cleaned_to or 0),
                directory,
            )  # fmt: skip
            directory.checkpoints.announce(partition, plan.start_offset, end, cleaned_to)
            directory.checkpoint()
        except Exception as error:
            with suppress(OSError):  # the next start removes the rest
                remove_tree(directory.disk, folder)
            directory.checkpoints.forget(partition)
            if isinstance(error, FileNotFoundError) or plan.parent.generation != plan.generation:
                raise ParentChanged(str(error)) from error
            raise
    return BuiltFork(directory, folder, log)


class _Builder:
    """The work on one fork's folder."""

    def __init__(self, plan: ForkPlan, disk: Disk, folder: str, settings: LogSettings) -> None:
        self._plan = plan
        self._disk = disk
        self._folder = folder
        self._interval = settings.index_interval_bytes
        self._linked: list[Segment] = []
        self._transactions = plan.transactions

    def build(self, topic_id: uuid.UUID) -> int:
        """Fill the folder; the log end offset of the fork."""
        plan, disk, folder = self._plan, self._disk, self._folder
        disk.make_folder(folder)
        path = f"{folder}/{PARTITION_METADATA}"
        write_topic_id(disk, path, topic_id)
        sync_file(disk, path)
        self._link_segments()
        copy = self._copy_segment()
        producers = self._producers_before(copy)
        if copy is not None:
            self._scan_copy(copy, producers)
        end = self._begin_own_segment(producers)
        epochs = [one for one in plan.parent.epochs.entries if one[1] < plan.end_offset]
        write_epochs(disk, f"{folder}/{EPOCHS_FILE}", tuple(epochs))
        holes = read_holes(disk, plan.folder, disk.list_folder(plan.folder))
        write_holes(disk, folder, [one for one in holes if one[1] <= plan.end_offset])
        self._transactions.save_checksums(disk, folder)
        disk.sync_folder(folder)
        return end

    def _link_segments(self) -> None:
        plan, disk = self._plan, self._disk
        names = set(disk.list_folder(plan.folder))
        for segment in plan.linked:
            base = segment.base_offset
            for suffix in ALL_SUFFIXES:
                if suffix == LOG or f"{base:020d}{suffix}" in names:
                    self._link(segment, suffix)
            size = disk.file_size(segment_path(self._folder, base, LOG))
            own = Segment(disk, self._folder, base, size, self._interval)
            own.seal()
            self._linked.append(own)
        ends = [one.base_offset for one in plan.linked[1:]]
        ends.append(plan.copied.base_offset if plan.copied else plan.end_offset)
        for own, upper in zip(self._linked, ends, strict=False):
            own.upper = upper
            if upper > plan.unsynced_from:
                own.sync()

    def _link(self, segment: Segment, suffix: str) -> None:
        """Give a file of the parent a second name; a copy if the file system cannot do that."""
        disk, base = self._disk, segment.base_offset
        source = segment_path(self._plan.folder, base, suffix)
        target = segment_path(self._folder, base, suffix)
        with linking:
            self._check_parent(segment)
            try:
                disk.link(source, target)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            else:
                return
            fd = disk.open(source, READ_ONLY)
        try:
            copy_file(disk, fd, target, disk.size(fd))
        finally:
            disk.close(fd)

    def _check_parent(self, segment: Segment) -> None:
        """ParentChanged if the parent was truncated or deleted, or the segment has left it."""
        parent = self._plan.parent
        if (
            parent.availability.offline is not None
            or parent.generation != self._plan.generation
            or segment not in [*parent.segments]
        ):
            raise ParentChanged("records were truncated, compacted or deleted")

    def _copy_segment(self) -> Segment | None:
        segment, length, disk = self._plan.copied, self._plan.copied_bytes, self._disk
        if segment is None:
            return None
        base = segment.base_offset
        with linking:
            self._check_parent(segment)
            fd = disk.open(segment_path(self._plan.folder, base, LOG), READ_ONLY)
        try:
            copy_file(disk, fd, segment_path(self._folder, base, LOG), length)
            self._check_parent(segment)  # a truncation changes an open file
        finally:
            disk.close(fd)
        return Segment(disk, self._folder, base, length, self._interval)

    def _producers_before(self, copy: Segment | None) -> ProducerState:
        """The parent's producer state at the end of the linked segments."""
        plan, disk, linked = self._plan, self._disk, self._linked
        end = plan.end_offset if copy is None else copy.base_offset
        oldest = linked[0].base_offset if linked else end
        snapshots = list_snapshots(disk.list_folder(plan.folder))
        offset, producers = load_snapshot(disk, plan.folder, snapshots, oldest, end)
        if offset < end:
            replay(producers, linked, max(offset, oldest), end)
        return producers

    def _scan_copy(self, copy: Segment, producers: ProducerState) -> None:
        """Build the indexes of the copy, and apply it to the producer state."""
        for position, header in copy.walk(0):
            copy.indexes.add_batch(
                position, header.base_offset, header.last_offset, header.max_timestamp
            )
            ended = replay_batch(producers, copy, position, header)
            if ended is not None:
                self._transactions.add(ended)
        copy.indexes.write(sync=True)
        self._transactions.write(self._disk, copy, self._plan.end_offset)
        copy.release()

    def _begin_own_segment(self, producers: ProducerState) -> int:
        """Create the segment of the fork's own records; the fork's log end offset."""
        disk, folder, base = self._disk, self._folder, self._plan.end_offset
        own = Segment(disk, folder, base, 0, self._interval)
        file = own.opened(NEW_FILE)
        state = _open_transactions(producers)
        epoch = max(self._plan.parent.epochs.epoch_at(base - 1), 0)
        write_snapshot(disk, folder, base, state, sync=True)
        end = base
        for marker in self._markers(state):
            _stamp(marker, 0, end, len(marker) - OVERHEAD, epoch)
            write_fully(disk, file.fd, marker, own.size)
            header = read_header(marker, 0)
            own.indexes.add_batch(own.size, end, end, header.max_timestamp)
            own.size += len(marker)
            ended = record_batch(state, header, end, partial(bytes, marker))
            if ended is not None:
                self._transactions.add(ended)
            end += 1
        disk.fdatasync(file.fd)
        if end > base:
            own.indexes.write(sync=True)
            self._transactions.write(disk, own, end)
            write_snapshot(disk, folder, end, state, sync=True)
        own.release()
        return end

    def _markers(self, state: ProducerState) -> Iterable[bytearray]:
        """The parent's markers of these transactions, in the parent's order."""
        waiting = dict(state.open_transactions)
        found: list[bytearray] = []
        for parents, position, size in self._plan.later:
            if not waiting:
                break
            with linking:
                self._check_parent(parents)
                segment = Segment(
                    self._disk, self._plan.folder, parents.base_offset, size, self._interval
                )
                segment.opened()
            for at, header in segment.walk(position):
                if header.attributes & CONTROL and header.producer_id in waiting:
                    del waiting[header.producer_id]
                    found.append(bytearray(segment.read_batch(at, header)))
                if not waiting:
                    break
            segment.release()
            self._check_parent(parents)
        # Compaction removes markers only when the transaction has no records left.
        for producer_id in waiting:
            producer = state.producers[producer_id]
            epoch = max(producer.coordinator_epoch, 0)
            found.append(encode_marker(producer_id, producer.epoch, False, epoch, 0))
        return found


def _open_transactions(producers: ProducerState) -> ProducerState:
    """Only the open transactions: producers begin with new sequences in a fork."""
    state = ProducerState()
    for producer_id, first in producers.open_transactions.items():
        known = producers.producers[producer_id]
        one = state.producers[producer_id] = Producer(known.epoch)
        one.transaction_start = state.open_transactions[producer_id] = first
        one.kind = TRANSACTIONAL
        one.timestamp, one.coordinator_epoch = known.timestamp, known.coordinator_epoch
    return state
