"""The machine's disk, with the durations of its syncs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from headrace.disk.calls import RealDisk, sync_data
from headrace.disk.open_files import OpenFiles
from headrace.prometheus import Histogram


class TimedDisk(RealDisk):
    """Counts how long each sync takes. All other calls are those of `RealDisk`."""

    __slots__ = ("_lock", "sync_seconds")

    def __init__(self, open_files: OpenFiles | None = None) -> None:
        super().__init__(open_files)
        self.sync_seconds = Histogram()
        self._lock = threading.Lock()

    def fdatasync(self, fd: int, /) -> None:
        with self._timed():
            sync_data(fd)

    def sync_folder(self, path: str) -> None:
        with self._timed():
            super().sync_folder(path)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = perf_counter()
        try:
            yield
        finally:
            seconds = perf_counter() - began
            with self._lock:  # syncs run in worker threads
                self.sync_seconds.observe(seconds)
