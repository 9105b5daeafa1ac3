"""Where the tests have their temporary files: in memory, if there is enough of it.

A broker syncs files and folders, and thousands of tests create and remove them. On a disk the tests
wait for that, and a quarter of their CPU time is spent on it. Tests that need a disk make one
(`tests/support/mounts.py`). Set TMPDIR to choose another folder.
"""

import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 8 << 30
"""The tests use less than a gigabyte at a time; the rest is for the programs that they start."""


def use_memory(environment: MutableMapping[str, str]) -> None:
    """Choose the folder for this process and for all that it starts."""
    if "TMPDIR" not in environment and _has_room():
        environment["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # chosen again when it is asked for


def _has_room() -> bool:
    try:
        found = os.statvfs(MEMORY)
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return False
    available = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), "0")
    # Some tests start programs that they have written.
    executable = not found.f_flag & os.ST_NOEXEC
    return (
        executable and min(found.f_bavail * found.f_frsize, int(available) * 1024) >= NEEDED_BYTES
    )
