"""One data folder of the broker without its logs: lock, identity, marker of a clean stop, folders.

.lock                             held while a broker uses the folder
meta.properties                   the broker and the cluster that the folder belongs to
.kafka_cleanshutdown              there only between a clean stop and the next start
"""

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial

from headrace.disk import Disk, replace_file
from headrace.log.checkpoints import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    PARTITION_METADATA,
    read_offsets,
    read_properties,
    read_topic_id,
    write_offsets,
    write_properties,
    write_topic_id,
)
from headrace.log.folder_names import deleted_folder_name
from headrace.log.log import Log
from headrace.log.segment_files import LOG, remove_if_there
from headrace.types import TopicPartition

SIZES = "clean-size-checkpoint"
_CLEAN_CONTENT = b'{"version":0,"brokerEpoch":-1}'

_logger = logging.getLogger("headrace.log")


class FolderInUse(RuntimeError):
    """Another broker holds the data folder's lock."""


class DataFolder:
    """A data folder that this broker has locked."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._lock = -1
        self.meta: dict[str, str] | None = None
        """The content of meta.properties, or None if there is no such file."""
        self.stopped_cleanly = False
        """Whether the last broker that used the folder stopped cleanly."""
        self.leftovers: list[str] = []
        """Folders of deleted partitions that are still to be removed."""

    # -- start and stop -------------------------------------------------------------------------

    def open(self) -> list[str]:
        """Take the lock; the names in the folder. FolderInUse if another broker has the lock."""
        disk = self._disk
        if not disk.is_folder(self.path):
            disk.make_folders(self.path)
            disk.sync_folder(self.path.rpartition("/")[0] or "/")
        try:
            self._lock = disk.lock(f"{self.path}/.lock")
        except BlockingIOError as error:
            raise FolderInUse(
                f"log.dirs: {self.path} is in use by another broker; "
                "stop that broker, or use another folder"
            ) from error
        self.meta = read_properties(disk, f"{self.path}/{META_PROPERTIES}")
        names = disk.list_folder(self.path)
        self.stopped_cleanly = CLEAN_SHUTDOWN in names
        return names

    def write_meta(self, properties: Mapping[str, str]) -> None:
        """Write meta.properties: the broker and the cluster that this folder belongs to."""
        write_properties(self._disk, f"{self.path}/{META_PROPERTIES}", properties)
        self.meta = dict(properties)

    def mark_clean(self) -> None:
        """Write the marker of a clean stop."""
        replace_file(self._disk, f"{self.path}/{CLEAN_SHUTDOWN}", _CLEAN_CONTENT)

    def write_sizes(self, logs: Iterable[Log], unopened: Collection[TopicPartition]) -> None:
        """Save the size of each log; for logs that were not opened, the last known size.

        A clean stop guarantees that everything was written. The sizes show whether files have
        shrunk while the broker was down.
        """
        path = f"{self.path}/{SIZES}"
        known = read_offsets(self._disk, path) or {}
        sizes = {partition: size for partition, size in known.items() if partition in unopened}
        sizes.update((log.partition, log.segments.size_bytes) for log in logs)
        write_offsets(self._disk, path, sizes)

    def remove_clean_mark(self) -> None:
        """Remove the marker: from now on, a stop without it counts as a crash."""
        if self.stopped_cleanly:
            self._disk.remove(f"{self.path}/{CLEAN_SHUTDOWN}")
            self._disk.sync_folder(self.path)

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            self._disk.close(self._lock)
            self._lock = -1

    def is_whole(self) -> bool:
        """Whether it was stopped cleanly and no log has lost anything since."""
        lost = list(self._shrunken_logs()) if self.stopped_cleanly else []
        for partition, size in lost:
            _logger.error("%s in %s has lost %d bytes since its stop", partition, self.path, size)
        return self.stopped_cleanly and not lost

    def _shrunken_logs(self) -> Iterator[tuple[TopicPartition, int]]:
        """The partitions whose files are smaller than at the stop, and by how many bytes."""
        disk = self._disk
        for partition, size in (read_offsets(disk, f"{self.path}/{SIZES}") or {}).items():
            place = f"{self.path}/{partition}"
            names = disk.list_folder(place) if disk.is_folder(place) else []
            found = sum(disk.file_size(f"{place}/{name}") for name in names if name.endswith(LOG))
            if found < size:
                yield partition, size - found

    # -- folders of partitions ------------------------------------------------------------------

    def topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        """The topic id in a partition's folder, or None if it has none."""
        return read_topic_id(self._disk, f"{self.path}/{partition}/{PARTITION_METADATA}")

    def write_topic_id(self, partition: TopicPartition, topic_id: uuid.UUID) -> None:
        """Put the topic id into a partition's folder again."""
        write_topic_id(self._disk, f"{self.path}/{partition}/{PARTITION_METADATA}", topic_id)

    def rename_deleted(self, partition: TopicPartition, folder: str) -> str:
        """Rename a folder so that no start takes it for the partition's; its new path."""
        target = f"{self.path}/{deleted_folder_name(partition)}"
        self._disk.rename(folder, target)
        return target

    def remove_later(self, partition: TopicPartition) -> None:
        """The partition was moved to another data folder: schedule the removal of its folder."""
        target = self.rename_deleted(partition, f"{self.path}/{partition}")
        self._disk.sync_folder(self.path)
        self.leftovers.append(target)

    def take_leftovers(self) -> list[Callable[[], None]]:
        """The work that removes folders of earlier deletions, for a worker thread."""
        paths, self.leftovers = self.leftovers, []
        return [partial(remove_tree, self._disk, path) for path in paths]

    def sync(self) -> None:
        """Bring the names of the folders to the disk. Runs in a worker thread."""
        self._disk.sync_folder(self.path)


def remove_tree(disk: Disk, folder: str) -> None:
    """Remove a folder of files; one that is gone already is fine."""
    try:
        names = disk.list_folder(folder)
    except FileNotFoundError:
        return
    for name in names:
        remove_if_there(disk, f"{folder}/{name}")
    disk.remove_folder(folder)
