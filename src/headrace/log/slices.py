"""An open `.log` file, and the whole batches in it that a Fetch sends."""

from collections.abc import Callable
from typing import NamedTuple

from headrace.disk import READ_WRITE, Disk


class SegmentFile:
    """An open `.log` file; its descriptor closes when the last reference goes.

    A slice of a segment that has been deleted can still be sent.
    """

    __slots__ = ("_close", "fd", "pread", "sendfile")

    def __init__(self, disk: Disk, path: str, flags: int = READ_WRITE) -> None:
        self.fd = -1
        self._close: Callable[[int], None] = disk.close
        self.pread: Callable[[int, int, int], bytes] = disk.pread
        self.sendfile: Callable[[int, int, int, int], int] = disk.sendfile
        self.fd = disk.open(path, flags)

    def __del__(self) -> None:
        if self.fd >= 0:
            self._close(self.fd)


class Slice(NamedTuple):
    """Whole batches in one file, ready for sendfile."""

    file: SegmentFile
    position: int
    length: int
    following: int = -1
    """The offset after the last batch; -1 if it is unknown."""

    def read(self) -> bytes:
        """The bytes, for small slices, which are faster to copy than to send from the file."""
        file = self.file
        return file.pread(file.fd, self.length, self.position)
