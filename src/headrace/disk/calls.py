"""The few calls that the log makes to a file system, the real ones, and what is built on them.

`RealDisk` binds the hot calls straight to `os`, so that going through it costs nothing.
"""

import errno
import fcntl
import mmap
import os
import threading
from typing import Protocol, TypeAlias

from headrace.disk.open_files import OpenFiles
from headrace.portable import LINUX

Buffer: TypeAlias = bytes | bytearray | memoryview
Mapped: TypeAlias = bytes | mmap.mmap

READ_WRITE = os.O_RDWR | os.O_CLOEXEC
READ_ONLY = os.O_RDONLY | os.O_CLOEXEC
CREATE = os.O_CREAT
TRUNCATE = os.O_TRUNC
_COPY_BYTES = 1 << 20
_SENT_BYTES = 1 << 18


# Errors that say that the disk below is broken, and not merely full or short of descriptors.
_BROKEN = frozenset(
    (errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ESTALE,
     getattr(errno, "EUCLEAN", errno.EIO),
     errno.ENOTCONN, errno.ESHUTDOWN)
)  # fmt: skip


def is_broken(error: OSError) -> bool:
    """Whether the error means that nothing in this folder can be relied on any more."""
    return error.errno in _BROKEN


class Disk(Protocol):
    """What the log asks of a file system. Every call raises OSError as `os` does."""

    @property
    def open_files(self) -> OpenFiles:
        """Which files are kept open, and how many may be."""

    def open(self, path: str, flags: int) -> int: ...

    def close(self, fd: int) -> None: ...

    def pread(self, fd: int, length: int, position: int, /) -> bytes: ...

    def sendfile(self, socket: int, fd: int, position: int, length: int, /) -> int:
        """Send a range of a file to a socket; how many bytes the socket took."""

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int: ...

    def fdatasync(self, fd: int, /) -> None: ...

    def ftruncate(self, fd: int, length: int, /) -> None: ...

    def size(self, fd: int) -> int: ...

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """When the file was last written to, in milliseconds since 1970."""

    def map_file(self, path: str) -> Mapped: ...

    def rename(self, source: str, target: str) -> None: ...

    def link(self, source: str, target: str) -> None:
        """Give a file another name, in the same or in another folder."""

    def links(self, path: str) -> int:
        """How many names the file has."""

    def remove(self, path: str) -> None: ...

    def make_folder(self, path: str) -> None: ...

    def make_folders(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None: ...

    def list_folder(self, path: str) -> list[str]: ...

    def is_folder(self, path: str) -> bool: ...

    def sync_folder(self, path: str) -> None: ...

    def lock(self, path: str) -> int:
        """Take the lock file at `path`; BlockingIOError if another process holds it."""


def write_fully(disk: Disk, fd: int, data: Buffer, position: int) -> None:
    """Write all of `data`, however short the single writes are."""
    written = disk.pwrite(fd, data, position)
    if written == len(data):
        return
    view = memoryview(data)
    while written < len(view):
        more = disk.pwrite(fd, view[written:], position + written)
        if more == 0:
            raise OSError(errno.EIO, "the disk accepts no more bytes")
        written += more


def write_file(disk: Disk, path: str, data: Buffer, *, sync: bool) -> None:
    """Make `path` hold exactly `data`; a crash in between may leave any part of it."""
    fd = disk.open(path, READ_WRITE | CREATE | TRUNCATE)
    try:
        if len(data):
            write_fully(disk, fd, data, 0)
        if sync:
            disk.fdatasync(fd)
    finally:
        disk.close(fd)


def copy_file(disk: Disk, source: int, target: str, length: int) -> None:
    """Make `target` a copy of the first `length` bytes of an open file, durably."""
    fd = disk.open(target, READ_WRITE | CREATE | TRUNCATE)
    try:
        position = 0
        while position < length:
            piece = disk.pread(source, min(_COPY_BYTES, length - position), position)
            if not piece:
                raise OSError(errno.EIO, f"the source ends at {position}, not {length}", target)
            write_fully(disk, fd, piece, position)
            position += len(piece)
        disk.fdatasync(fd)
    finally:
        disk.close(fd)


# Two threads that replace one file take turns: both would write to the same temporary one.
_replacing = [threading.Lock() for _ in range(64)]


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Make `path` hold `data` for good: after a crash it has the old content or the new.

    The last of several threads wins; a caller whose data may be out of date by then needs a lock
    of its own around making and writing them.
    """
    temporary = path + ".tmp"
    with _replacing[hash(path) % len(_replacing)]:
        write_file(disk, temporary, data, sync=True)
        disk.rename(temporary, path)
        disk.sync_folder(os.path.dirname(path))


def sync_file(disk: Disk, path: str) -> None:
    """Bring a file's bytes to the disk; one that was removed meanwhile needs no sync."""
    try:
        fd = disk.open(path, READ_WRITE)
    except FileNotFoundError:
        return
    try:
        disk.fdatasync(fd)
    finally:
        disk.close(fd)


def read_file(disk: Disk, path: str) -> bytes:
    """The whole content of a small file."""
    fd = disk.open(path, READ_ONLY)
    try:
        size = disk.size(fd)
        parts = []
        position = 0
        while position < size and (part := disk.pread(fd, size - position, position)):
            parts.append(part)
            position += len(part)
        return b"".join(parts)
    finally:
        disk.close(fd)


def _send_by_copy(socket: int, fd: int, position: int, length: int, /) -> int:
    """Send a range of a file: sendfile of other systems differs from that of Linux."""
    piece = os.pread(fd, min(length, _SENT_BYTES), position)
    return os.write(socket, piece) if piece else 0


def _sync_all(fd: int, /) -> None:
    """Bring a file to the disk; macOS leaves it in the cache of the drive without F_FULLFSYNC."""
    if hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


sync_data = os.fdatasync if LINUX else _sync_all


class RealDisk:
    """The machine's file system."""

    __slots__ = ("open_files",)

    def __init__(self, open_files: OpenFiles | None = None) -> None:
        self.open_files = open_files or OpenFiles()

    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    sendfile = staticmethod(os.sendfile if LINUX else _send_by_copy)
    pwrite = staticmethod(os.pwrite)
    fdatasync = staticmethod(sync_data)
    ftruncate = staticmethod(os.ftruncate)

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o644)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def map_file(self, path: str) -> Mapped:
        fd = os.open(path, READ_ONLY)
        try:
            if os.fstat(fd).st_size == 0:  # mmap refuses an empty file
                return b""
            return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def links(self, path: str) -> int:
        return os.stat(path).st_nlink

    def remove(self, path: str) -> None:
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        os.mkdir(path)

    def make_folders(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def list_folder(self, path: str) -> list[str]:
        return os.listdir(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def sync_folder(self, path: str) -> None:
        fd = os.open(path, READ_ONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> int:
        fd = os.open(path, READ_WRITE | CREATE, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd
