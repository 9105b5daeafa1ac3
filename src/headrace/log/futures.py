"""Copies of partitions that come from another data folder and will replace the original.

`replication/moves.py` fills them. The folder of a copy is `<topic>-<partition>.<id>-future`.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.log.folder_names import future_folder_name
from headrace.log.log import Log
from headrace.log.recovery import Checkpoint, open_log
from headrace.settings import LogSettings
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.log.directory import LogDirectory


@dataclass(slots=True)
class FutureLog:
    """A copy of a partition in another data folder, which will replace it."""

    folder: str
    log: Log | None = None
    """None while a copy that an earlier run began has not been opened."""


class FutureLogs(dict[TopicPartition, FutureLog]):
    """The copies in one data folder, by partition."""

    def __init__(self, directory: "LogDirectory") -> None:
        super().__init__()
        self._directory = directory

    def create(self, partition: TopicPartition, topic_id: uuid.UUID, settings: LogSettings) -> Log:
        """A new empty copy, in the place of one of an earlier run."""
        folder = f"{self._directory.path}/{future_folder_name(partition)}"
        with self._directory.storage(f"create the copy in {folder}"):
            log = self._directory.create_in(folder, partition, topic_id, settings)
        self[partition] = FutureLog(folder, log)
        return log

    def open(self, partition: TopicPartition, settings: LogSettings) -> Log:
        """The copy that an earlier run began and closed cleanly. Runs in a worker thread."""
        directory, future = self._directory, self[partition]
        directory.check_online()
        with directory.storage(f"open the copy in {future.folder}"):
            future.log = open_log(
                partition, future.folder, settings, directory.disk, directory.clock.now_ms(),
                Checkpoint(None, 0, clean=True), directory,
            )  # fmt: skip
        return future.log

    def adopt(self, partition: TopicPartition, cleaned_to: int | None) -> Log:
        """Give the copy the partition's name; OSError if that fails, and nothing has changed."""
        future = self[partition]
        assert future.log is not None, "a copy that was never opened is not whole"
        self._directory.adopt(partition, future.folder, future.log)
        del self[partition]
        if cleaned_to is not None:
            self._directory.checkpoints.set_cleaned_to(partition, cleaned_to)
        return future.log

    def discard(self, partition: TopicPartition) -> Callable[[], None]:
        """Drop a copy; returns the work that removes its files, for a worker."""
        directory, future = self._directory, self.pop(partition)
        if future.log is not None:
            future.log.abandon("it is no longer wanted")
            directory.removal.forget(future.folder)
        if directory.offline is not None:
            return _nothing
        return directory.discard(partition, future.folder)


def _nothing() -> None:
    """No files to remove: the next start finds the folder."""
