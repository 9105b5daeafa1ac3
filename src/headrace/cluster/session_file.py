"""Tracks live sessions of processes on one machine: each session locks one byte of a file.

The kernel frees the lock when its holder ends, however that happens. The locks are those of the
open file (OFD), not of the process: two stores in one process do not lose each other's.
"""

import fcntl
import os
import struct
from typing import Final

# struct flock: type, whence, start, length, pid; with the alignment that C gives it.
_FLOCK: Final = struct.Struct("@hhqqi4x")


class SessionFile:
    """The file, with at most one byte locked by this object."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def hold(self, number: int) -> None:
        """Lock the byte of session `number`, until `release`, `close` or the end of the process."""
        self._lock(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, number)

    def release(self, number: int) -> None:
        """Unlock the byte of session `number`."""
        self._lock(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, number)

    def lives(self, number: int) -> bool:
        """Whether another holder has session `number` locked."""
        return self._lock(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, number) != fcntl.F_UNLCK

    def close(self) -> None:
        """Let the session end."""
        os.close(self._fd)

    def _lock(self, command: int, kind: int, number: int) -> int:
        asked = _FLOCK.pack(kind, os.SEEK_SET, number, 1, 0)
        answered: int = _FLOCK.unpack(fcntl.fcntl(self._fd, command, asked))[0]
        return answered
