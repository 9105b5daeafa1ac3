"""Locks data folders, so that no broker changes them while they are read."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.cli.failures import Failure

_LOCK = ".lock"


@contextmanager
def hold(folders: Sequence[Path]) -> Iterator[None]:
    """Lock these folders; the lock of a partition's folder is in its parent."""
    held = []
    try:
        for folder in folders:
            path = folder / _LOCK if (folder / _LOCK).exists() else folder.parent / _LOCK
            if not path.exists():
                continue  # a copy that no broker has opened
            held.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            try:
                fcntl.flock(held[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Failure(
                    f"a broker is using {path.parent}; unfinished writes would look like damage",
                    code="IN_USE",
                    hint="Stop that broker, or verify a copy of the folder.",
                ) from None
        yield
    finally:
        for fd in held:
            os.close(fd)
