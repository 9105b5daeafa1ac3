"""Which sessions of the processes of one machine live: each holds one byte of a file locked.

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
    """The file, and at most one byte of it held by whoever opened it."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def hold(self, number: int) -> None:
        """Show that session `number` lives, until `release`, `close` or the process's end."""
        self._lock(fcntl.F_OFD_SETLK, fcntl.F_WRLCK, number)

    def release(self, number: int) -> None:
        """Session `number` does not live."""
        self._lock(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, number)

    def lives(self, number: int) -> bool:
        """Whether somebody else holds session `number`."""
        return self._lock(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, number) != fcntl.F_UNLCK

    def close(self) -> None:
        """Let the session end."""
        os.close(self._fd)

    def _lock(self, command: int, kind: int, number: int) -> int:
        asked = _FLOCK.pack(kind, os.SEEK_SET, number, 1, 0)
        answered: int = _FLOCK.unpack(fcntl.fcntl(self._fd, command, asked))[0]
        return answered
