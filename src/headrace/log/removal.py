"""Removes the files of deleted segments of one folder.

A segment leaves its log in memory immediately. A worker removes its files: when the log's new start
offset is on the disk, they are renamed to `*.deleted`, so that no restart finds them, and after
`file.delete.delay.ms` they are removed. Readers keep such a file open.
"""

import heapq
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from headrace.clock import Clock
from headrace.disk import Disk
from headrace.errors import KafkaError
from headrace.log.segment import Segment
from headrace.log.segment_files import DELETED, remove_if_there, segment_path
from headrace.log.snapshots import SNAPSHOT

_logger = logging.getLogger("headrace.log")


class Removal:
    """The files of dropped segments: `drop` and `forget` are for the owner, `run` for a worker."""

    def __init__(self, disk: Disk, clock: Clock, save_starts: Callable[[], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._save_starts = save_starts
        self._dropped: deque[tuple[Segment, int]] = deque()
        self._renamed: list[tuple[float, str]] = []
        # Only one run at a time.
        self._running = threading.Lock()
        # A folder is not dropped, and its name reused, during a rename.
        self._names = threading.Lock()

    @property
    def waiting(self) -> bool:
        """Whether there are files left to remove."""
        return bool(self._dropped or self._renamed)

    def drop(self, segments: Iterable[Segment], delay_ms: int) -> None:
        """Schedule the removal of these segments' files, oldest first."""
        self._dropped.extend((segment, delay_ms) for segment in segments)

    def remove_later(self, paths: Iterable[str], delay_ms: int) -> None:
        """Schedule the removal of files that are renamed already."""
        due_s = self._clock.monotonic() + delay_ms / 1000
        with self._names:
            for path in paths:
                heapq.heappush(self._renamed, (due_s, path))

    def forget(self, folder: str) -> None:
        """The whole folder is removed; its file names may be used again soon."""
        inside = folder + "/"
        with self._names:
            self._drop_no_more(folder)
            self._renamed = [
                (due_s, path) for due_s, path in self._renamed if not path.startswith(inside)
            ]
            heapq.heapify(self._renamed)

    def rename_now(self, folder: str) -> None:
        """Rename the waiting files of one folder now, because their names are needed."""
        with self._names:
            for segment, delay_ms in tuple(self._dropped):
                if segment.files.folder == folder:
                    self._rename(segment, delay_ms)
            self._drop_no_more(folder)

    def _drop_no_more(self, folder: str) -> None:
        self._dropped = deque(
            (segment, delay_ms)
            for segment, delay_ms in self._dropped
            if segment.files.folder != folder
        )

    def run(self) -> None:
        """Do the work that is due; OSError if the disk fails; the rest is done by the next run."""
        with self._running:
            count = len(self._dropped)
            if count:
                self._save()
            for _ in range(count):
                self._rename_next()
            self._remove_until(self._clock.monotonic())

    def finish(self) -> None:
        """Remove all files, due or not, because there are no readers."""
        self.run()
        self._remove_until(float("inf"))

    def _save(self) -> None:
        try:
            self._save_starts()
        except KafkaError as error:
            # A full disk needs space before anything can be written. Whole segments may be
            # removed, since a log starts at its first file.
            _logger.warning(
                "removing old segments before the start offsets are saved: %s", error.message
            )

    def _rename_next(self) -> None:
        with self._names:
            if not self._dropped:
                return  # `forget` removed it
            self._rename(*self._dropped[0])
            self._dropped.popleft()

    def _rename(self, segment: Segment, delay_ms: int) -> None:
        due_s = self._clock.monotonic() + delay_ms / 1000
        for path in segment.files.rename_deleted():
            heapq.heappush(self._renamed, (due_s, path))
        segment.release()
        snapshot = segment_path(segment.files.folder, segment.base_offset, SNAPSHOT)
        with suppress(FileNotFoundError):  # the first segment of a log has none
            self._disk.rename(snapshot, snapshot + DELETED)
            heapq.heappush(self._renamed, (due_s, snapshot + DELETED))

    def _remove_until(self, now_s: float) -> None:
        while True:
            with self._names:
                if not self._renamed or self._renamed[0][0] > now_s:
                    return
                _, path = heapq.heappop(self._renamed)
                remove_if_there(self._disk, path)
