"""The disk as an argument: the calls, and the real ones.

`memory.py` and `failpoints.py` have the disks of tests: one in memory, and faults on demand.
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
    copy_file,
    is_broken,
    read_file,
    replace_file,
    sync_file,
    write_file,
    write_fully,
)
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
    "OpenFiles",
    "RealDisk",
    "TimedDisk",
    "copy_file",
    "is_broken",
    "read_file",
    "replace_file",
    "sync_file",
    "write_file",
    "write_fully",
]
