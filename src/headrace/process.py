"""Figures of this process. Other systems than Linux do not tell its memory without a library."""

import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from headrace.portable import LINUX

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STRIDE = 256
_IMPORTED_AT = round(time.time(), 2)


class Memory(NamedTuple):
    """Memory of a process in bytes."""

    virtual: int
    resident: int


def memory() -> Memory | None:
    """What the process uses now; None if the system does not tell it."""
    if not LINUX:
        return None
    with open("/proc/self/statm", "rb") as file:
        virtual, resident, *_ = file.read().split()
    return Memory(int(virtual) * _PAGE_BYTES, int(resident) * _PAGE_BYTES)


def started_at() -> float:
    """When the process started, in seconds since 1970; without Linux, when this was imported."""
    if not LINUX:
        return _IMPORTED_AT
    with open("/proc/self/stat", "rb") as file:
        # The name of the program may contain anything, but no field behind it has a parenthesis.
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return round(time.time() - age_s, 2)


def open_files() -> Iterator[int]:
    """How many descriptors are open: the last number. Others are yielded while it counts."""
    # From Linux 6.2 on this is the number; before, it is 0.
    count = os.stat("/proc/self/fd").st_size if LINUX else 0
    if not count:
        with os.scandir("/dev/fd") as names:
            for count, _ in enumerate(names):  # one less than there are, as the folder is open
                if not count % _STRIDE:
                    yield count
    yield count
