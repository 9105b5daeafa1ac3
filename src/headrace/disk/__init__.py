"""The disk as an argument: the calls, the real ones, one in memory, and faults on demand.

`log/` defines what the bytes mean.
"""

from headrace.disk.calls import (
    CREATE,
    READ_ONLY,
    READ_WRITE,
    TRUNCATE,
    Buffer,
    Disk,
    Mapped,
    RealDisk,
    is_broken,
    read_file,
    replace_file,
    sync_file,
    write_file,
    write_fully,
)
from headrace.disk.memory import MemoryDisk
from headrace.disk.open_files import OpenFiles
from headrace.disk.timed import TimedDisk

__all__ = [
    "CREATE",
    "READ_ONLY",
    "READ_WRITE",
    "TRUNCATE",
    "Buffer",
    "Disk",
    "Mapped",
    "MemoryDisk",
    "OpenFiles",
    "RealDisk",
    "TimedDisk",
    "is_broken",
    "read_file",
    "replace_file",
    "sync_file",
    "write_file",
    "write_fully",
]
