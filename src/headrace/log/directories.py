"""All data folders of a broker, usually one per disk, and which one holds each partition.

A folder that fails is offline until the next start: requests for its partitions get a storage
error, the others are served, and new partitions go to the healthy folder with the fewest. The first
folder also holds the cluster's metadata, so a broker does not start without it.
"""

import base64
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.clock import Clock
from headrace.disk import Disk
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.log.checkpoints import MOVED_FROM
from headrace.log.directory import LogDirectory
from headrace.log.holes import Holes
from headrace.log.log import Log
from headrace.log.segment_files import remove_if_there
from headrace.settings import LogSettings
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.log.forks.build import BuiltFork

_logger = logging.getLogger("headrace.log")


class LogDirectories:
    """The data folders of one broker."""

    def __init__(self, paths: tuple[str, ...], disk: Disk, clock: Clock) -> None:
        self.on_failure: Callable[[LogDirectory], None] | None = None
        """Called when a folder goes offline; perhaps in a worker thread."""
        self.all = tuple(LogDirectory(path, disk, clock, self._failed) for path in paths)
        self.first = self.all[0]
        """The folder that also holds the metadata."""
        self.threads = 1
        """How many logs of a folder are recovered or closed at the same time."""
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._preferred: dict[TopicPartition, LogDirectory] = {}

    @property
    def healthy(self) -> list[LogDirectory]:
        """Those that are not offline."""
        return [directory for directory in self.all if directory.offline is None]

    # -- start and stop -------------------------------------------------------------------------

    def open(self) -> None:
        """Take the locks and list the logs; a folder that cannot be used is offline.

        FolderInUse if another broker has one, SettingError if a partition is in two of them.
        """
        for directory in self.all:
            try:
                directory.open()
            except OSError as error:
                directory.fail(f"it cannot be opened: {error}")
                if directory is self.first:
                    raise SettingError(
                        f"log.dirs: {directory.path}, the first data folder, also holds the "
                        f"metadata, and {directory.offline}"
                    ) from error
                continue
            for partition in directory.partitions():
                other = self._homes.setdefault(partition, directory)
                if other is not directory:
                    self._homes[partition] = _finish_interrupted(partition, other, directory)

    def write_meta(self, properties: Mapping[str, str]) -> None:
        """Write into each folder which broker and cluster it belongs to."""
        for directory in self.healthy:
            for name in ("cluster.id", "node.id"):
                value = properties[name]
                known = (directory.folder.meta or {}).get(name, value)
                if known != value:
                    raise SettingError(
                        f"log.dirs: {directory.path} belongs to {name}={known}, not to {value}, "
                        f"as {self.first.path} does; give each broker its own folders"
                    )
            known_id = (directory.folder.meta or {}).get("directory.id") or _new_id()
            wanted = {**(directory.folder.meta or {}), **properties, "directory.id": known_id}
            if directory.folder.meta == wanted:
                continue  # a full disk is no reason not to start
            try:
                directory.folder.write_meta(wanted)
            except OSError as error:
                directory.fail(f"meta.properties cannot be written: {error}")

    def recover(
        self,
        settings_for: Callable[[TopicPartition], LogSettings],
        progress: Callable[[TopicPartition, int, int], None] | None = None,
        is_replicated: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> None:
        """Recover every log in folders that were not closed cleanly."""
        for directory in self.healthy:
            if not directory.folder.stopped_cleanly:
                directory.recover(settings_for, progress, self.threads, is_replicated)

    def close(self) -> None:
        """Close all logs; each folder without an error gets its marker of a clean stop."""
        for directory in self.all:
            directory.close(self.threads)

    def abandon(self) -> None:
        """Release all folders after a failed start."""
        for directory in self.all:
            directory.abandon()

    # -- logs -----------------------------------------------------------------------------------

    def home_of(self, partition: TopicPartition) -> LogDirectory | None:
        """The folder that holds the partition's log, be it offline or not."""
        return self._homes.get(partition)

    def homes(self) -> list[tuple[TopicPartition, LogDirectory]]:
        """All partitions that have a folder, each with its data folder."""
        return sorted(self._homes.items(), key=lambda item: item[0])

    def has(self, partition: TopicPartition) -> bool:
        """Whether the partition has a log in one of the folders."""
        return partition in self._homes

    def holds_records(self, partition: TopicPartition) -> bool:
        """Whether the partition has records, or files that should be gone; opens nothing."""
        home = self._homes.get(partition)
        return home is not None and home.offline is None and home.holds_records(partition)

    def get(
        self, partition: TopicPartition, settings: LogSettings, replicated: bool = False
    ) -> Log:
        """The partition's log; opened, and recovered if need be, at the first call."""
        home = self._homes.get(partition)
        if home is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no data folder holds {partition}"
            )
        return home.get(partition, settings, replicated)

    def create(self, partition: TopicPartition, topic_id: uuid.UUID, settings: LogSettings) -> Log:
        """A new empty log in the healthy folder with the fewest partitions."""
        healthy = self.healthy
        if not healthy:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "every data folder is offline")
        home = self._preferred.pop(partition, None) or min(healthy, key=LogDirectory.count)
        log = home.create(partition, topic_id, settings)
        self._homes[partition] = home
        return log

    def delete(self, partition: TopicPartition) -> Callable[[], None]:
        """Drop a partition's log; returns the work that removes its files, for a worker."""
        return self._homes.pop(partition).delete(partition)

    # -- moving between folders -----------------------------------------------------------------

    def prefer(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Choose the data folder of a partition that has no log yet."""
        self._preferred[partition] = directory

    def is_moving(self, partition: TopicPartition) -> bool:
        """Whether the partition has a copy that is about to take its place."""
        return any(partition in directory.futures for directory in self.all)

    def exchange(self, partition: TopicPartition, target: LogDirectory) -> Callable[[], None]:
        """Replace the partition by its complete copy in `target`.

        Returns the work that makes this durable, for a worker. OSError if the copy cannot be
        renamed.
        """
        source = self._homes[partition]
        cleaned_to = source.checkpoints.cleaned_to(partition)
        old = source.get(partition, LogSettings())
        new = target.futures.adopt(partition, cleaned_to)
        new.take_over(old, f"{target.path}/{partition}")
        source.forget(partition, f"it was moved to {target.path}")
        self._homes[partition] = target

        def finish() -> None:
            # What the old folder knows must be known here before it goes.
            target.folder.sync()
            target.checkpoint()
            if cleaned_to is not None:
                target.checkpoints.write_cleaned_to()
            removal = source.discard(partition, old.folder)
            source.folder.sync()
            remove_if_there(target.disk, f"{new.folder}/{MOVED_FROM}")
            source.checkpoint()
            removal()

        return finish

    def adopt_fork(self, partition: TopicPartition, built: "BuiltFork") -> None:
        """Give a complete fork the partition's name; KafkaError 56 if that fails."""
        directory, log = built.directory, built.log
        with directory.storage(f"rename {built.folder}"):
            directory.adopt(partition, built.folder, log)
        log.folder = f"{directory.path}/{partition}"
        log.durability.folder_renamed(log.folder, log.segments)
        self._preferred.pop(partition, None)
        self._homes[partition] = directory

    def sync_names(self) -> None:
        """Sync the data folders, so that renames are durable. Runs in a worker thread."""
        for directory in self.healthy:
            directory.folder.sync()

    def take_leftovers(self) -> list[Callable[[], None]]:
        """The work that removes folders of earlier deletions, for a worker thread."""
        return [work for directory in self.healthy for work in directory.folder.take_leftovers()]

    def expire_producers(self) -> None:
        """Expire idle producer ids."""
        for directory in self.healthy:
            now_ms = directory.clock.now_ms()
            for log in directory.opened_logs():
                if log.producers.producers:
                    log.producers.expire(now_ms, log.settings.producer_id_expiration_ms)

    # -- durability -----------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write the checkpoints of all folders; a failure of one does not affect the others."""
        for directory in self.healthy:
            try:
                directory.checkpoint()
            except KafkaError as error:
                _logger.error("%s; it is tried again", error.message)

    def damaged(self) -> list[Log]:
        """The opened logs that are known to be damaged."""
        if not Holes.any_known:  # without a loop over ten thousand logs
            return []
        logs = (log for directory in self.healthy for log in directory.opened_logs())
        return [log for log in logs if log.holes]

    def due_for_flush(self) -> list[Log]:
        """Logs that rolled, or whose `flush.messages` or `flush.ms` is reached."""
        return [log for directory in self.healthy for log in directory.due_for_flush()]

    def _failed(self, directory: LogDirectory) -> None:
        if self.on_failure is not None:
            self.on_failure(directory)


def _new_id() -> str:
    """A random id in Kafka's form."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _finish_interrupted(
    partition: TopicPartition, one: LogDirectory, other: LogDirectory
) -> LogDirectory:
    """A partition with two folders: the data folder that it was moved to, if that is why.

    SettingError if it is unknown which of them is up to date.
    """
    moved = [
        directory
        for directory in (one, other)
        if MOVED_FROM in directory.disk.list_folder(f"{directory.path}/{partition}")
    ]
    if len(moved) != 1:
        raise SettingError(
            f"log.dirs: {partition} has a folder in {one.path} and in {other.path}; "
            "move the one that is out of date elsewhere"
        )
    (target,) = moved
    source = other if target is one else one
    _logger.info("finishing the move of %s from %s to %s", partition, source.path, target.path)
    target.checkpoints.inherit(partition, source.checkpoints)
    source.forget(partition, f"it was moved to {target.path}")
    source.folder.remove_later(partition)
    return target
