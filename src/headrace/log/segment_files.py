"""The names of a segment's files, and what is done with all of them together.

    00000000000000001234.log         batches as they came over the wire, one after the other
    00000000000000001234.index       offset -> position      (indexes.py)
    00000000000000001234.timeindex   timestamp -> offset     (indexes.py)
    00000000000000001234.txnindex    aborted transactions    (transactions.py); often there is none

The name is the offset of the first record. A fork has hard links to files of its parent
(`forks/`). Such a file is never changed in place: `remove_shared` or `own_file` come first.
"""

import threading
from contextlib import suppress

from headrace.disk import Disk, sync_file

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
TRANSACTION_INDEX = ".txnindex"
DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"

ALL_SUFFIXES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)

linking = threading.Lock()
"""Held while a fork takes a file of its parent, and while the parent's log replaces files."""


def segment_path(folder: str, base_offset: int, suffix: str) -> str:
    """The path of one of a segment's files."""
    return f"{folder}/{base_offset:020d}{suffix}"


def remove_if_there(disk: Disk, path: str) -> None:
    """Remove a file; one that is already gone is fine."""
    try:
        disk.remove(path)
    except FileNotFoundError:
        return


def remove_shared(disk: Disk, path: str) -> None:
    """Remove a file that another log shares; that log keeps it."""
    with suppress(FileNotFoundError):
        if disk.links(path) > 1:
            disk.remove(path)


class SegmentFiles:
    """The files of one segment."""

    __slots__ = ("base_offset", "disk", "folder")

    def __init__(self, disk: Disk, folder: str, base_offset: int) -> None:
        self.disk = disk
        self.folder = folder
        self.base_offset = base_offset

    def path(self, suffix: str) -> str:
        """The path of the file with that suffix."""
        return segment_path(self.folder, self.base_offset, suffix)

    def sync_indexes(self) -> None:
        """Bring the index files to the disk."""
        for suffix in (INDEX, TIME_INDEX):
            sync_file(self.disk, self.path(suffix))
        with suppress(FileNotFoundError):  # only those with aborted transactions have one
            sync_file(self.disk, self.path(TRANSACTION_INDEX))

    def remove(self) -> None:
        """Remove all files now; readers that have the log file open are not affected."""
        for suffix in ALL_SUFFIXES:
            remove_if_there(self.disk, self.path(suffix))

    def rename_deleted(self) -> list[str]:
        """Rename all files so that no restart finds them; the paths that are left to remove."""
        paths = []
        for suffix in ALL_SUFFIXES:
            path = self.path(suffix)
            try:
                self.disk.rename(path, path + DELETED)
                paths.append(path + DELETED)
            except FileNotFoundError:
                continue
        return paths
