"""The offset checkpoints of one data folder: recovery points, log start offsets, compaction.

They are written in a worker thread; what they say is used when a log is opened.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

from headrace.disk import Disk
from headrace.log.checkpoints import (
    CLEANED_TO,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    read_offsets,
    write_offsets,
)
from headrace.log.log import Log
from headrace.log.recovery import Checkpoint
from headrace.types import TopicPartition

_UNKNOWN_POINT = 2**63 - 1


class DirectoryCheckpoints:
    """The offsets by partition that the checkpoint files of one data folder hold."""

    def __init__(
        self, path: str, disk: Disk, storage: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        """`storage(what)` turns errors of the disk into KafkaErrors."""
        self._path = path
        self._disk = disk
        self._storage = storage
        self._recovery_points: dict[TopicPartition, int] = {}
        self._start_offsets: dict[TopicPartition, int] = {}
        self._starts_lost = False
        self._cleaned_to: dict[TopicPartition, int] = {}
        # Partitions that the files may still name.
        self._on_disk: set[TopicPartition] = set()
        self._writing = threading.Lock()

    def load(self) -> None:
        """Read the files, at the start."""
        self._recovery_points = self._read(RECOVERY_POINTS) or {}
        starts = self._read(START_OFFSETS)
        self._starts_lost = starts is None
        self._start_offsets = starts or {}
        self._cleaned_to = self._read(CLEANED_TO) or {}
        self._on_disk = {*self._recovery_points, *self._start_offsets, *self._cleaned_to}

    def of(self, partition: TopicPartition, *, clean: bool, replicated: bool) -> Checkpoint:
        """What is known of a log that is about to be opened."""
        return Checkpoint(
            None if self._starts_lost else self._start_offsets.get(partition, 0),
            self._recovery_points.get(partition),
            clean,
            self._cleaned_to.get(partition, 0),
            replicated,
        )

    def may_name(self, partition: TopicPartition) -> bool:
        """Whether the files may have offsets of this partition."""
        return partition in self._on_disk

    def forget(self, partition: TopicPartition) -> None:
        """The partition has left this folder; the next write removes its offsets."""
        for offsets in (self._recovery_points, self._start_offsets, self._cleaned_to):
            offsets.pop(partition, None)

    def announce(
        self, partition: TopicPartition, start: int, recovery_point: int, cleaned_to: int | None
    ) -> None:
        """Add the offsets of a log that is about to get its name; the next write saves them."""
        self._start_offsets[partition] = start
        self._recovery_points[partition] = recovery_point
        if cleaned_to is not None:
            self._cleaned_to[partition] = cleaned_to
            self.write_cleaned_to()

    def inherit(self, partition: TopicPartition, source: "DirectoryCheckpoints") -> None:
        """Take over the partition's offsets from the folder that it was moved from."""
        for mine, theirs in (
            (self._start_offsets, source._start_offsets), (self._cleaned_to, source._cleaned_to),
        ):  # fmt: skip
            if partition in theirs:
                mine[partition] = max(mine.get(partition, 0), theirs[partition])

    def write(self, logs: Iterable[Log]) -> None:
        """Write the recovery points and start offsets. Runs in a worker thread."""
        with self._writing:
            logs = [*logs]
            for log in logs:
                # From here on a log that is truncated waits for a checkpoint of its own, which
                # comes after this one: nothing is appended under a recovery point that is too high.
                log.durability.saved_recovery_point = _UNKNOWN_POINT
            points = {log.partition: log.durability.safe_point for log in logs}
            self._recovery_points.update(points)
            self._start_offsets.update((log.partition, log.start_offset) for log in logs)
            starts = [(tp, offset) for tp, offset in [*self._start_offsets.items()] if offset > 0]
            self._on_disk = set(self._recovery_points)
            with self._storage(f"write a checkpoint in {self._path}"):
                self._write(RECOVERY_POINTS, dict(self._recovery_points))
                self._write(START_OFFSETS, dict(starts))
            for log in logs:
                log.durability.saved_recovery_point = points[log.partition]

    # -- compaction -----------------------------------------------------------------------------

    def cleaned_to(self, partition: TopicPartition) -> int | None:
        """The offset below which the log went through compaction, or None if it never did."""
        return self._cleaned_to.get(partition)

    def set_cleaned_to(self, partition: TopicPartition, offset: int) -> None:
        """The log is compacted up to there; `write_cleaned_to` makes it durable."""
        self._cleaned_to[partition] = offset

    def write_cleaned_to(self) -> None:
        """Write how far each log is compacted. Runs in a worker thread."""
        with self._writing:
            self._write(CLEANED_TO, dict(self._cleaned_to))

    # -- high watermarks ------------------------------------------------------------------------

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks that were last written."""
        return self._read(HIGH_WATERMARKS) or {}

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of all partitions here; KafkaError if that fails."""
        with self._storage(f"write the high watermarks in {self._path}"):
            self._write(HIGH_WATERMARKS, offsets)

    def _read(self, name: str) -> dict[TopicPartition, int] | None:
        return read_offsets(self._disk, f"{self._path}/{name}")

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        write_offsets(self._disk, f"{self._path}/{name}", offsets)
