"""What of one log is on the disk: its recovery point, sealed segments and new file names.

The owner of the log records what changes; a worker that flushes writes it to disk.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.disk import Disk, sync_file
from headrace.log.checkpoints import PARTITION_METADATA, write_epochs
from headrace.log.epochs import FILE_NAME as EPOCHS_FILE
from headrace.log.epochs import EpochCache
from headrace.log.segment import Segment
from headrace.log.segment_files import segment_path
from headrace.log.snapshots import SNAPSHOT
from headrace.log.transactions import EndedTransactions

_MANY = 32
_THREADS = 8
"""Parallel syncs share the file system's commits: thousands take seconds, not half a minute."""

Sealed = list[tuple[Segment, int]]
"""Sealed segments, each with the offset of the snapshot that was taken at its end."""


class Durability:
    """The recovery point, and the sealed segments and file names that no flush has seen."""

    __slots__ = (
        "_disk", "_epochs", "_folder", "_new", "_saving", "_taken", "_transactions", "names",
        "recovery_point", "saved_recovery_point", "sealed",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        folder: str,
        epochs: EpochCache,
        transactions: EndedTransactions,
        recovery_point: int,
        *,
        new: bool,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._epochs = epochs
        self._transactions = transactions
        self._new = new
        self.recovery_point = recovery_point
        """Everything below this offset is on the disk."""
        self.saved_recovery_point = recovery_point
        """The recovery point in the checkpoint file, as far as it is known."""
        # A worker that flushes and the owner that truncates the log may both write the epochs.
        self._saving = threading.Lock()
        self.sealed: Sealed = []
        self._taken: list[Sealed] = []
        self.names = new
        """Whether the folder has files whose names are not on the disk."""

    def folder_renamed(self, folder: str, segments: Sequence[Segment]) -> None:
        """The log's folder has another name, which is not on the disk yet."""
        for segment in segments:
            segment.files.folder = folder
        self._folder = folder
        self.names = True

    def take(self) -> Sealed:
        """The sealed segments that a flush is about to sync."""
        sealed = self.sealed
        self._taken.append(sealed)
        self.sealed = []
        return sealed

    @property
    def safe_point(self) -> int:
        """The offset at which the next start may begin to scan.

        All records below the recovery point are on the disk. Yet a crash may take the transaction
        index of a sealed segment that was not synced, and only a scan of the whole segment brings
        it back.
        """
        waiting = [*self.sealed, *(item for sealed in [*self._taken] for item in sealed)]
        lowest = (segment.base_offset for segment, _ in waiting)
        return min([self.recovery_point, *lowest])

    def lower(self, end: int) -> bool:
        """The log is truncated to `end`; whether the checkpoint file has a higher offset."""
        self.recovery_point = min(self.recovery_point, end)
        return self.saved_recovery_point > self.recovery_point

    def keep(self, segments: Sequence[Segment], taken: Sealed | None = None) -> None:
        """Keep only segments of the log; `taken` are added again, because they were not synced."""
        kept = {id(segment) for segment in segments}
        self.sealed = [item for item in [*(taken or ()), *self.sealed] if id(item[0]) in kept]

    def drop_below(self, offset: int) -> None:
        """The log start moved: remove what was before it."""
        self.sealed = [item for item in self.sealed if item[0].base_offset >= offset]

    def sync(self, sealed: Sealed, active: Segment | None, segments: Sequence[Segment]) -> None:
        """Bring segments to the disk, their snapshots, the epochs and all names."""

        def sync_one(item: tuple[Segment, int]) -> None:
            segment, following = item
            _sync_segment(segment, segments)
            sync_file(self._disk, segment_path(self._folder, following, SNAPSHOT))

        if len(sealed) < _MANY:
            for item in sealed:
                sync_one(item)
        else:
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="sync") as pool:
                for _ in pool.map(sync_one, sealed):
                    pass
        if active is not None:
            _sync_segment(active, segments)
        self._transactions.save_checksums(self._disk, self._folder)
        if self._epochs.dirty:
            self.save_epochs()
        if self.names:
            self.names = False
            if self._new:
                sync_file(self._disk, f"{self._folder}/{PARTITION_METADATA}")
                self._new = False
            self._disk.sync_folder(self._folder)
            self._disk.sync_folder(self._folder.rpartition("/")[0])
        self._taken.remove(sealed)

    def save_epochs(self) -> None:
        """Write the leader epochs to disk."""
        with self._saving:
            self._epochs.dirty = False
            write_epochs(self._disk, f"{self._folder}/{EPOCHS_FILE}", self._epochs.entries)


def _sync_segment(segment: Segment, segments: Sequence[Segment]) -> None:
    try:
        segment.sync()
    except OSError:
        # A segment that has left the log need not be synced.
        if segment in segments:
            raise
