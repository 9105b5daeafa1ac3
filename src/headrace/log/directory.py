"""All logs in one data folder of the broker: listing, opening, checkpoints, deletion.

    .lock                             held while a broker uses the folder
    meta.properties                   whose folder this is
    .kafka_cleanshutdown              there only between a clean stop and the next start
    recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint,
    cleaner-offset-checkpoint
    <topic>-<partition>/              one log each
    <topic>-<partition>.<id>-delete/  a deleted one whose files still have to go
    <topic>-<partition>.<id>-future/  a copy of one in another data folder (`replication/moves.py`)

After a clean stop a log is opened when it is first asked for. A sync that fails anywhere takes
the whole folder offline, because the disk below it can no longer be trusted.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from headrace.clock import Clock
from headrace.disk import Disk, is_broken, replace_file
from headrace.errors import ErrorCode, KafkaError
from headrace.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED_TO,
    HIGH_WATERMARKS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    START_OFFSETS,
    read_offsets,
    read_properties,
    read_topic_id,
    write_offsets,
    write_properties,
    write_topic_id,
)
from headrace.log.folder_names import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    deleted_folder_name,
    future_folder_name,
    parse_folder_name,
    parse_future_name,
)
from headrace.log.holes import Holes
from headrace.log.log import Log
from headrace.log.recovery import Checkpoint, create_log, open_log
from headrace.log.removal import Removal
from headrace.log.segment import Segment
from headrace.log.segment_files import DELETED, LOG, remove_if_there
from headrace.log.sizes import SIZES, shrunken_logs, write_sizes
from headrace.settings import LogSettings
from headrace.types import TopicPartition

_CLEAN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
_UNKNOWN_POINT = 2**63 - 1
_UNFINISHED = {
    f"{name}.tmp"
    for name in (
        RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS, CLEANED_TO, SIZES, META_PROPERTIES,
        CLEAN_SHUTDOWN,
    )
}  # fmt: skip
"""Left by a crash while one of these files was replaced."""

_logger = logging.getLogger("headrace.log")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class Future:
    """A copy of a partition in another data folder, which will replace it."""

    folder: str
    log: Log | None = None
    """None while a copy that an earlier run began has not been opened."""


class FolderInUse(RuntimeError):
    """Another broker holds the data folder's lock."""


class LogDirectory:
    """One data folder of the broker and the logs in it."""

    def __init__(
        self,
        path: str,
        disk: Disk,
        clock: Clock,
        on_failure: "Callable[[LogDirectory], None] | None" = None,
    ) -> None:
        self.path = path.rstrip("/") or "/"
        self.disk = disk
        self.clock = clock
        self.offline: str | None = None
        self._on_failure = on_failure
        self.meta: dict[str, str] | None = None
        self.stopped_cleanly = False
        self._lock = -1
        self._logs: dict[TopicPartition, Log] = {}
        self._unopened: set[TopicPartition] = set()
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        self._starts_lost = False
        self._cleaned_to: dict[TopicPartition, int] = {}
        self._leftovers: list[str] = []
        self.futures: dict[TopicPartition, Future] = {}
        self.removal = Removal(disk, clock, self.checkpoint)
        self._unflushed_since: dict[TopicPartition, int] = {}
        # Partitions that the checkpoint files may still name.
        self._on_disk: set[TopicPartition] = set()
        self._checkpoint_lock = threading.Lock()

    # -- start and stop -------------------------------------------------------------------------

    def open(self) -> None:
        """Take the folder's lock and list its logs; FolderInUse if another broker has it."""
        disk = self.disk
        if not disk.is_folder(self.path):
            disk.make_folders(self.path)
            disk.sync_folder(self.path.rpartition("/")[0] or "/")
        try:
            self._lock = disk.lock(f"{self.path}/.lock")
        except BlockingIOError as error:
            raise FolderInUse(
                f"log.dirs: {self.path} is in use by another broker; "
                "stop that one, or give this one a folder of its own"
            ) from error
        self.meta = read_properties(disk, f"{self.path}/{META_PROPERTIES}")
        self._recovery_points = read_offsets(disk, f"{self.path}/{RECOVERY_POINTS}") or {}
        starts = read_offsets(disk, f"{self.path}/{START_OFFSETS}")
        self._starts_lost = starts is None
        self._start_offsets = starts or {}
        self._cleaned_to = read_offsets(disk, f"{self.path}/{CLEANED_TO}") or {}
        self._on_disk = {*self._recovery_points, *self._start_offsets, *self._cleaned_to}
        names = disk.list_folder(self.path)
        self.stopped_cleanly = CLEAN_SHUTDOWN in names
        for name in names:
            partition = parse_folder_name(name)
            if partition is not None and disk.is_folder(f"{self.path}/{name}"):
                self._unopened.add(partition)
            elif (future := parse_future_name(name)) is not None and future not in self.futures:
                self.futures[future] = Future(f"{self.path}/{name}")
            elif name.endswith((DELETE_SUFFIX, FUTURE_SUFFIX)):
                self._leftovers.append(f"{self.path}/{name}")
            elif name in _UNFINISHED:
                remove_if_there(disk, f"{self.path}/{name}")
        if self.stopped_cleanly:
            # From here on a stop without the marker counts as a crash.
            disk.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
            disk.sync_folder(self.path)

    def write_meta(self, properties: Mapping[str, str]) -> None:
        """Write meta.properties: the broker and the cluster that this folder belongs to."""
        write_properties(self.disk, f"{self.path}/{META_PROPERTIES}", properties)
        self.meta = dict(properties)

    def recover(
        self,
        settings_for: Callable[[TopicPartition], LogSettings],
        progress: Callable[[TopicPartition, int, int], None] | None = None,
        threads: int = 1,
        is_replicated: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        """Open and so recover every log; calls `progress(partition, done, total)` after each."""

        def recover_one(partition: TopicPartition) -> TopicPartition:
            try:
                if self.offline is None:
                    self.get(partition, settings_for(partition), is_replicated(partition))
            except KafkaError as error:
                # The log, or its whole folder, stays offline; other logs are not affected.
                _logger.error("%s cannot be recovered: %s", partition, error.message)
            except Exception:
                _logger.exception("%s cannot be recovered; all others are", partition)
            return partition

        waiting = sorted(self._unopened)
        for done, partition in enumerate(_each(recover_one, waiting, threads), 1):
            if progress is not None:
                progress(partition, done, len(waiting))
        if self.offline is None:
            try:
                self.checkpoint()
            except KafkaError as error:
                # A disk that is only full: what is there can be read, and this is tried again.
                _logger.error("%s; it is tried again", error.message)

    def close(self, threads: int = 1) -> None:
        """Close all logs and leave the clean marker; without it if anything went wrong."""
        clean = self.offline is None and (self.stopped_cleanly or not self._unopened)
        self.remove_dropped(finish=True)
        futures = [future.log for future in self.futures.values() if future.log is not None]
        for closed in _each(_close, [*self._logs.values(), *futures], threads):
            clean = clean and closed
        if self.offline is None:
            try:
                self.checkpoint()
                if clean:
                    write_sizes(self.disk, self.path, self._logs.values(), self._unopened)
                    replace_file(self.disk, f"{self.path}/{CLEAN_SHUTDOWN}", _CLEAN_CONTENT)
            except (KafkaError, OSError) as error:
                _logger.error("%s could not be closed cleanly: %s", self.path, error)
        self._release_lock()

    def abandon(self) -> None:
        """Release the folder after a failed start; unchanged if no log was opened."""
        if self._logs:
            self.close()
            return
        if self.stopped_cleanly and self.offline is None:
            try:
                replace_file(self.disk, f"{self.path}/{CLEAN_SHUTDOWN}", _CLEAN_CONTENT)
            except OSError as error:
                _logger.error("%s could not be closed cleanly: %s", self.path, error)
        self._release_lock()

    def _release_lock(self) -> None:
        if self._lock >= 0:
            self.disk.close(self._lock)
            self._lock = -1

    def is_whole(self) -> bool:
        """Whether it was stopped cleanly and no log has lost anything since."""
        lost = list(shrunken_logs(self.disk, self.path)) if self.stopped_cleanly else []
        for partition, size in lost:
            _logger.error("%s in %s has lost %d bytes since its stop", partition, self.path, size)
        return self.stopped_cleanly and not lost

    # -- logs -----------------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """All partitions that have a folder here, opened or not."""
        return sorted({*self._logs, *self._unopened})

    def count(self) -> int:
        """How many partitions have a folder here."""
        return len(self._logs) + len(self._unopened)

    def topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        """The topic id in a partition's folder, or None if it has none."""
        return read_topic_id(self.disk, f"{self.path}/{partition}/{PARTITION_METADATA}")

    def write_topic_id(self, partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """Put the topic id into a partition's folder again."""
        write_topic_id(self.disk, f"{self.path}/{partition}/{PARTITION_METADATA}", topic_id)

    def has(self, partition: TopicPartition) -> bool:
        """Whether the partition has a folder here."""
        return partition in self._logs or partition in self._unopened

    def holds_records(self, partition: TopicPartition) -> bool:
        """Whether the partition has records, or files that should be gone; opens nothing."""
        if partition not in self._unopened:
            return partition in self._logs
        folder = f"{self.path}/{partition}"
        return any(
            name.endswith(DELETED)
            or (name.endswith(LOG) and self.disk.file_size(f"{folder}/{name}") > 0)
            for name in self.disk.list_folder(folder)
        )

    def get(
        self, partition: TopicPartition, settings: LogSettings, replicated: bool = False
    ) -> Log:
        """The partition's log; opened, and recovered if need be, at the first call.

        `replicated` says whether other brokers have replicas of it.
        """
        log = self._logs.get(partition)
        if log is not None:
            return log
        self._check_online()
        if partition not in self._unopened:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.path} holds no {partition}"
            )
        checkpoint = Checkpoint(
            None if self._starts_lost else self._start_offsets.get(partition, 0),
            self._recovery_points.get(partition),
            self.stopped_cleanly,
            self._cleaned_to.get(partition, 0),
            replicated,
        )
        folder = f"{self.path}/{partition}"
        try:
            log = open_log(
                partition, folder, settings, self.disk, self.clock.now_ms(), checkpoint, self
            )
        except OSError as error:
            raise self._storage_error(f"cannot open the log in {folder}: {error}", error) from error
        self._logs[partition] = log
        self._unopened.discard(partition)
        return log

    def create(self, partition: TopicPartition, topic_id: uuid.UUID, settings: LogSettings) -> Log:
        """A new empty log; cheap, so nothing of it is synced before its first flush."""
        self._check_online()
        folder = f"{self.path}/{partition}"
        if partition in self._on_disk:
            # A deleted topic of that name: its offsets must not be taken for this one's.
            self.checkpoint()
        try:
            log = self._create(folder, partition, topic_id, settings)
        except OSError as error:
            reason = f"cannot create the log in {folder}: {error}"
            raise self._storage_error(reason, error) from error
        self._logs[partition] = log
        return log

    def _create(
        self, folder: str, partition: TopicPartition, topic_id: uuid.UUID, settings: LogSettings
    ) -> Log:
        try:
            self.disk.make_folder(folder)
        except FileExistsError:
            # An attempt that failed may have left it, if even clearing up was not possible.
            if any(
                name.endswith(LOG) and self.disk.file_size(f"{folder}/{name}") > 0
                for name in self.disk.list_folder(folder)
            ):
                raise
            remove_tree(self.disk, folder)
            self.disk.make_folder(folder)
        try:
            write_topic_id(self.disk, f"{folder}/{PARTITION_METADATA}", topic_id)
            return create_log(partition, folder, settings, self.disk, self.clock.now_ms(), self)
        except OSError:
            with suppress(OSError):  # what is left of it would be in the way of the next attempt
                remove_tree(self.disk, folder)
            raise

    def delete(self, partition: TopicPartition) -> Callable[[], None]:
        """Drop a partition's log; returns the work that removes its files, for a worker.

        `sync_names` makes this durable across a power cut.
        """
        self.forget(partition, "its topic was deleted")
        if self.offline is not None:
            return _nothing  # the next start finds the folder, and that its topic was deleted
        return self.discard(partition, f"{self.path}/{partition}")

    def forget(self, partition: TopicPartition, reason: str) -> None:
        """Drop the partition from memory; its folder stays."""
        log = self._logs.pop(partition, None)
        if log is not None:
            log.abandon(reason)
            self.removal.forget(log.folder)
        self._unopened.discard(partition)
        for known in (
            self._recovery_points, self._start_offsets, self._cleaned_to, self._unflushed_since,
        ):  # fmt: skip
            known.pop(partition, None)

    def discard(self, partition: TopicPartition, folder: str) -> Callable[[], None]:
        """Rename a folder so that no start takes it for the partition's; the work to remove it."""
        target = f"{self.path}/{deleted_folder_name(partition)}"
        try:
            self.disk.rename(folder, target)
        except FileNotFoundError:
            pass  # it was never written to
        except OSError as error:
            reason = f"cannot delete {folder}: {error}"
            raise self._storage_error(reason, error) from error
        return partial(remove_tree, self.disk, target)

    # -- copies that come from another folder ---------------------------------------------------

    def create_future(
        self, partition: TopicPartition, topic_id: uuid.UUID, settings: LogSettings
    ) -> Log:
        """A new empty copy; removes the copy of an earlier run."""
        self._check_online()
        if partition in self._on_disk:
            self.checkpoint()  # it was here before: those offsets must not count for the new one
        folder = f"{self.path}/{future_folder_name(partition)}"
        try:
            log = self._create(folder, partition, topic_id, settings)
        except OSError as error:
            reason = f"cannot create the copy in {folder}: {error}"
            raise self._storage_error(reason, error) from error
        self.futures[partition] = Future(folder, log)
        return log

    def open_future(self, partition: TopicPartition, settings: LogSettings) -> Log:
        """The copy that an earlier run began and closed cleanly. Made for a worker."""
        self._check_online()
        future = self.futures[partition]
        try:
            future.log = open_log(
                partition, future.folder, settings, self.disk, self.clock.now_ms(),
                Checkpoint(None, 0, clean=True), self,
            )  # fmt: skip
        except OSError as error:
            reason = f"cannot open the copy in {future.folder}: {error}"
            raise self._storage_error(reason, error) from error
        return future.log

    def adopt_future(self, partition: TopicPartition, cleaned_to: int | None) -> Log:
        """Give the copy the partition's name; OSError if that fails, and nothing has changed."""
        future = self.futures[partition]
        assert future.log is not None, "a copy that was never opened is not whole"
        self.disk.rename(future.folder, f"{self.path}/{partition}")
        del self.futures[partition]
        self._logs[partition] = future.log
        if cleaned_to is not None:
            self._cleaned_to[partition] = cleaned_to
        return future.log

    def inherit(self, partition: TopicPartition, source: "LogDirectory") -> None:
        """Take over the partition's checkpoints from the folder that it was moved from."""
        for mine, theirs in (
            (self._start_offsets, source._start_offsets), (self._cleaned_to, source._cleaned_to),
        ):  # fmt: skip
            if partition in theirs:
                mine[partition] = max(mine.get(partition, 0), theirs[partition])

    def leave(self, partition: TopicPartition) -> None:
        """The partition was moved: schedule the removal of its folder here."""
        target = f"{self.path}/{deleted_folder_name(partition)}"
        self.disk.rename(f"{self.path}/{partition}", target)
        self.disk.sync_folder(self.path)
        self._leftovers.append(target)

    def drop_future(self, partition: TopicPartition) -> Callable[[], None]:
        """Drop a copy; returns the work that removes its files, for a worker."""
        future = self.futures.pop(partition)
        if future.log is not None:
            future.log.abandon("it is no longer wanted")
            self.removal.forget(future.folder)
        if self.offline is not None:
            return _nothing
        return self.discard(partition, future.folder)

    def sync_names(self) -> None:
        """Bring the names of the folders to the disk. Made for a worker."""
        self.disk.sync_folder(self.path)

    def remove_dropped(self, *, finish: bool = False) -> None:
        """Rename or remove the files of segments that left their logs. Made for a worker.

        A disk that refuses is offline, unless it is only full.
        """
        if self.offline is not None or not self.removal.waiting:
            return
        try:
            if finish:
                self.removal.finish()
            else:
                self.removal.run()
        except OSError as error:
            if is_broken(error):
                self.fail(f"removing old segments failed: {error}")
            else:
                _logger.warning("%s: old segments are removed later: %s", self.path, error)

    def expire_producers(self) -> None:
        """Expire idle producer ids."""
        now_ms = self.clock.now_ms()
        for log in self._logs.values():
            if log.producers.producers:
                log.producers.expire(now_ms, log.settings.producer_id_expiration_ms)

    def take_leftovers(self) -> list[Callable[[], None]]:
        """Work that removes what earlier deletions left behind, for a worker."""
        paths, self._leftovers = self._leftovers, []
        return [partial(remove_tree, self.disk, path) for path in paths]

    # -- checkpoints ----------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write the recovery points and start offsets of all logs. Made for a worker."""
        self._check_online()
        with self._checkpoint_lock:
            logs = [*self._logs.values()]
            for log in logs:
                # From here on a log that is cut waits for a checkpoint of its own, which comes
                # after this one: nothing is appended under a recovery point that is too high.
                log.durability.saved_recovery_point = _UNKNOWN_POINT
            points = {log.partition: log.durability.safe_point for log in logs}
            self._recovery_points.update(points)
            self._start_offsets.update((log.partition, log.start_offset) for log in logs)
            starts = [(tp, offset) for tp, offset in [*self._start_offsets.items()] if offset > 0]
            self._on_disk = set(self._recovery_points)
            try:
                write_offsets(
                    self.disk, f"{self.path}/{RECOVERY_POINTS}", dict(self._recovery_points)
                )
                write_offsets(self.disk, f"{self.path}/{START_OFFSETS}", dict(starts))
            except OSError as error:
                reason = f"cannot write a checkpoint in {self.path}: {error}"
                raise self._storage_error(reason, error) from error
            for log in logs:
                log.durability.saved_recovery_point = points[log.partition]

    def cleaned_to(self, partition: TopicPartition) -> int | None:
        """The offset below which the log went through compaction, or None if it never did."""
        return self._cleaned_to.get(partition)

    def note_cleaned(self, partition: TopicPartition, offset: int) -> None:
        """The log is compacted up to there; `write_cleaned` makes it last."""
        if partition in self._logs:
            self._cleaned_to[partition] = offset

    def write_cleaned(self) -> None:
        """Write how far each log is compacted. Made for a worker."""
        self._check_online()
        with self._checkpoint_lock:
            write_offsets(self.disk, f"{self.path}/{CLEANED_TO}", dict(self._cleaned_to))

    def damaged(self) -> Iterator[Log]:
        """The opened logs that are known to be damaged."""
        if not Holes.any_known:  # without a loop over ten thousand logs
            return iter(())
        return (log for log in [*self._logs.values()] if log.holes)

    def due_for_flush(self) -> list[Log]:
        """Logs that rolled, or whose `flush.messages` or `flush.ms` is reached.

        Call it periodically: the time runs from the call that first sees new records.
        """
        now_ms = int(self.clock.monotonic() * 1000)
        due = []
        for partition, log in self._logs.items():
            pending = log.end_offset - log.durability.recovery_point
            if log.offline is not None or (pending <= 0 and not log.durability.sealed):
                self._unflushed_since.pop(partition, None)
                continue
            since_ms = self._unflushed_since.setdefault(partition, now_ms)
            settings = log.settings
            if (
                log.durability.sealed
                or pending >= settings.flush_messages
                or now_ms - since_ms >= settings.flush_ms
            ):
                due.append(log)
        return due

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks that were last written."""
        return read_offsets(self.disk, f"{self.path}/{HIGH_WATERMARKS}") or {}

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of all partitions here; KafkaError if that fails."""
        try:
            write_offsets(self.disk, f"{self.path}/{HIGH_WATERMARKS}", offsets)
        except OSError as error:
            reason = f"cannot write the high watermarks in {self.path}: {error}"
            raise self._storage_error(reason, error) from error

    # -- what the logs report -------------------------------------------------------------------

    def segments_dropped(self, segments: Sequence[Segment], delay_ms: int) -> None:
        """Remember to remove their files."""
        self.removal.drop(segments, delay_ms)

    def files_set_aside(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remember to remove them."""
        self.removal.remove_later(paths, delay_ms)

    def log_restarts(self, folder: str) -> None:
        """Clear the folder of what was dropped."""
        self.removal.hurry(folder)

    def log_failed(self, partition: TopicPartition, reason: str) -> None:
        """Take the whole folder offline."""
        self.fail(reason)

    def fail(self, reason: str) -> None:
        """Take the folder offline until the next start. May run in a worker thread."""
        if self.offline is not None:
            return
        self.offline = reason
        _logger.error(
            "%s is offline: %s; restart the broker when the disk is well", self.path, reason
        )
        for log in [*self._logs.values()]:
            log.take_offline(f"its folder is offline: {reason}")
        if self._on_failure is not None:
            self._on_failure(self)

    def release_files(self) -> None:
        """Close the files of a folder that is offline; not while the owner may be writing."""
        for log in self._logs.values():
            log.abandon("its folder is offline")

    def _storage_error(self, reason: str, error: OSError) -> KafkaError:
        if is_broken(error):
            self.fail(reason)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def log_went_back(self, partition: TopicPartition, end: int) -> None:
        """Save the lower recovery point before anything is appended above it."""
        if partition in self._logs and self._cleaned_to.get(partition, 0) > end:
            self._cleaned_to[partition] = end
            self.write_cleaned()
        self.checkpoint()

    def _check_online(self) -> None:
        if self.offline is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.path} is offline: {self.offline}"
            )


def _close(log: Log) -> bool:
    try:
        log.close()
    except KafkaError as error:
        _logger.error("%s could not be closed cleanly: %s", log.partition, error)
        return False
    return True


def _each(
    work: Callable[[_Item], _Result], items: Sequence[_Item], threads: int
) -> Iterator[_Result]:
    """The work on each item, in several threads: they mostly wait for the disk."""
    if threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="logs") as pool:
        yield from pool.map(work, items)


def _nothing() -> None:
    """No files to remove."""


def remove_tree(disk: Disk, folder: str) -> None:
    """Remove a folder of files; one that is gone already is fine."""
    try:
        names = disk.list_folder(folder)
    except FileNotFoundError:
        return
    for name in names:
        remove_if_there(disk, f"{folder}/{name}")
    disk.remove_folder(folder)
