"""All logs in one data folder of the broker: listing, opening, checkpoints, deletion.

    recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint,
    cleaner-offset-checkpoint
    <topic>-<partition>/              one log each
    <topic>-<partition>.<id>-delete/  a deleted one whose files are still to be removed
    <topic>-<partition>.<id>-future/  a copy of one in another data folder (`futures.py`)
    <topic>-<partition>.<id>-fork/    an unfinished fork of another one (`forks/`)

The lock and the identity of the folder are in `data_folder.py`.
After a clean stop a log is opened when it is first asked for. A sync that fails anywhere takes
the whole folder offline, because the disk below it can no longer be trusted.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from headrace.clock import Clock
from headrace.disk import Disk, is_broken
from headrace.errors import ErrorCode, KafkaError
from headrace.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED_TO,
    HIGH_WATERMARKS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    START_OFFSETS,
    write_topic_id,
)
from headrace.log.data_folder import SIZES, DataFolder, remove_tree
from headrace.log.directory_checkpoints import DirectoryCheckpoints
from headrace.log.folder_names import (
    DELETE_SUFFIX,
    FORK_SUFFIX,
    FUTURE_SUFFIX,
    parse_folder_name,
    parse_future_name,
)
from headrace.log.futures import FutureLog, FutureLogs
from headrace.log.log import Log
from headrace.log.recovery import create_log, open_log
from headrace.log.removal import Removal
from headrace.log.segment_files import DELETED, LOG, linking, remove_if_there
from headrace.settings import LogSettings
from headrace.types import TopicPartition

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
        self.folder = DataFolder(self.path, disk)
        self.disk = disk
        self.clock = clock
        self.offline: str | None = None
        self._on_failure = on_failure
        self._logs: dict[TopicPartition, Log] = {}
        self._unopened: set[TopicPartition] = set()
        self.checkpoints = DirectoryCheckpoints(self.path, disk, self.storage)
        self.futures = FutureLogs(self)
        self.removal = Removal(disk, clock, self.checkpoint)
        self._unflushed_since: dict[TopicPartition, int] = {}

    # -- start and stop -------------------------------------------------------------------------

    def open(self) -> None:
        """Take the folder's lock and list its logs; FolderInUse if another broker has it."""
        disk = self.disk
        names = self.folder.open()
        self.checkpoints.load()
        for name in names:
            partition = parse_folder_name(name)
            if partition is not None and disk.is_folder(f"{self.path}/{name}"):
                self._unopened.add(partition)
            elif (future := parse_future_name(name)) is not None and future not in self.futures:
                self.futures[future] = FutureLog(f"{self.path}/{name}")
            elif name.endswith((DELETE_SUFFIX, FUTURE_SUFFIX, FORK_SUFFIX)):
                self.folder.leftovers.append(f"{self.path}/{name}")
            elif name in _UNFINISHED:
                remove_if_there(disk, f"{self.path}/{name}")
        self.folder.remove_clean_mark()

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
                _logger.exception(
                    "%s cannot be recovered; the other logs are not affected", partition
                )
            return partition

        waiting = sorted(self._unopened)
        for done, partition in enumerate(_each(recover_one, waiting, threads), 1):
            if progress is not None:
                progress(partition, done, len(waiting))
        if self.offline is None:
            try:
                self.checkpoint()
            except KafkaError as error:
                # The disk is only full: the logs can be read, and the checkpoint is tried again.
                _logger.error("%s; it is tried again", error.message)

    def close(self, threads: int = 1) -> None:
        """Close all logs and leave the clean marker; without it if anything went wrong."""
        clean = self.offline is None and (self.folder.stopped_cleanly or not self._unopened)
        self.remove_dropped(finish=True)
        futures = [future.log for future in self.futures.values() if future.log is not None]
        for closed in _each(_close, [*self._logs.values(), *futures], threads):
            clean = clean and closed
        if self.offline is None:
            try:
                self.checkpoint()
                if clean:
                    self.folder.write_sizes(self._logs.values(), self._unopened)
                    self.folder.mark_clean()
            except (KafkaError, OSError) as error:
                _logger.error("%s could not be closed cleanly: %s", self.path, error)
        self.folder.unlock()

    def abandon(self) -> None:
        """Release the folder after a failed start; unchanged if no log was opened."""
        if self._logs:
            self.close()
            return
        if self.folder.stopped_cleanly and self.offline is None:
            try:
                self.folder.mark_clean()
            except OSError as error:
                _logger.error("%s could not be closed cleanly: %s", self.path, error)
        self.folder.unlock()

    # -- logs -----------------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """All partitions that have a folder here, opened or not."""
        return sorted({*self._logs, *self._unopened})

    def count(self) -> int:
        """How many partitions have a folder here."""
        return len(self._logs) + len(self._unopened)

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
        self.check_online()
        if partition not in self._unopened:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.path} holds no {partition}"
            )
        folder = f"{self.path}/{partition}"
        known = self.checkpoints.of(
            partition, clean=self.folder.stopped_cleanly, replicated=replicated
        )
        with self.storage(f"open the log in {folder}"):
            log = open_log(partition, folder, settings, self.disk, self.clock.now_ms(), known, self)
        self._logs[partition] = log
        self._unopened.discard(partition)
        return log

    def create(self, partition: TopicPartition, topic_id: uuid.UUID, settings: LogSettings) -> Log:
        """A new empty log; cheap, so nothing of it is synced before its first flush."""
        folder = f"{self.path}/{partition}"
        with self.storage(f"create the log in {folder}"):
            log = self.create_in(folder, partition, topic_id, settings)
        self._logs[partition] = log
        return log

    def create_in(
        self, folder: str, partition: TopicPartition, topic_id: uuid.UUID, settings: LogSettings
    ) -> Log:
        """A new empty log in that folder; OSError if that fails, and the folder is removed."""
        self.check_online()
        if self.checkpoints.may_name(partition):
            # A deleted topic of that name: its offsets must not be taken for this one's.
            self.checkpoints.forget(partition)
            self.checkpoint()
        try:
            self.disk.make_folder(folder)
        except FileExistsError:
            # An earlier attempt may have failed and left it.
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
            with suppress(OSError):  # a rest of it would prevent the next attempt
                remove_tree(self.disk, folder)
            raise

    def delete(self, partition: TopicPartition) -> Callable[[], None]:
        """Drop a partition's log; returns the work that removes its files, for a worker.

        `folder.sync` makes this durable.
        """
        self.forget(partition, "its topic was deleted")
        if self.offline is not None:
            return _nothing  # the next start finds the folder, and that its topic was deleted
        return self.discard(partition, f"{self.path}/{partition}")

    def forget(self, partition: TopicPartition, reason: str) -> None:
        """Drop the partition from memory; its folder stays."""
        log = self._logs.pop(partition, None)
        if log is not None:
            with linking:  # its files may get the names of another log's
                log.abandon(reason)
            self.removal.forget(log.folder)
        self._unopened.discard(partition)
        self.checkpoints.forget(partition)
        self._unflushed_since.pop(partition, None)

    def discard(self, partition: TopicPartition, folder: str) -> Callable[[], None]:
        """Rename a folder so that no start takes it for the partition's; the work to remove it."""
        with self.storage(f"delete {folder}"):
            try:
                target = self.folder.rename_deleted(partition, folder)
            except FileNotFoundError:
                return _nothing  # it was never written to
        return partial(remove_tree, self.disk, target)

    # -- moves between data folders, and forks -----------------------------------------------------

    def adopt(self, partition: TopicPartition, folder: str, log: Log) -> None:
        """Give a complete log the partition's name; OSError if that fails."""
        self.disk.rename(folder, f"{self.path}/{partition}")
        self._logs[partition] = log

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

    # -- checkpoints ----------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write the recovery points and start offsets of all logs. Made for a worker."""
        self.check_online()
        self.checkpoints.write(self._logs.values())

    def opened_logs(self) -> list[Log]:
        """The logs that are open."""
        return [*self._logs.values()]

    def due_for_flush(self) -> list[Log]:
        """Logs that rolled, or whose `flush.messages` or `flush.ms` is reached.

        Call it periodically: the time runs from the call that first sees new records.
        """
        now_ms = int(self.clock.monotonic() * 1000)
        due = []
        for partition, log in self._logs.items():
            pending = log.end_offset - log.durability.recovery_point
            if log.availability.offline is not None or (pending <= 0 and not log.durability.sealed):
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

    # -- what the logs report -------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Take the folder offline until the next start. May run in a worker thread."""
        if self.offline is not None:
            return
        self.offline = reason
        _logger.error(
            "%s is offline: %s; repair the disk and restart the broker", self.path, reason
        )
        for log in [*self._logs.values()]:
            log.availability.take_offline(f"its folder is offline: {reason}")
        if self._on_failure is not None:
            self._on_failure(self)

    def release_files(self) -> None:
        """Close the files of a folder that is offline; not while the owner may be writing."""
        for log in self._logs.values():
            log.abandon("its folder is offline")

    @contextmanager
    def storage(self, what: str) -> Iterator[None]:
        """Turn an OSError into KafkaError 56; takes the folder offline unless it is only full."""
        try:
            yield
        except OSError as error:
            reason = f"cannot {what}: {error}"
            if is_broken(error):
                self.fail(reason)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error

    def log_truncated(self, partition: TopicPartition, end: int) -> None:
        """Save the lower recovery point before anything is appended above it."""
        self.check_online()
        if partition in self._logs and (self.checkpoints.cleaned_to(partition) or 0) > end:
            self.checkpoints.set_cleaned_to(partition, end)
            self.checkpoints.write_cleaned_to()
        self.checkpoint()

    def check_online(self) -> None:
        """KafkaError 56 if the folder is offline."""
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
