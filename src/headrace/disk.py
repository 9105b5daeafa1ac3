"""The disk as an argument: the few calls that the log makes, the real ones and a simulated disk.

`RealDisk` binds the hot calls straight to `os`, so that going through it costs nothing.
`MemoryDisk` knows which bytes were synced: its `crash()` forgets the others, and its failpoints
make a named call fail or write short. What the bytes mean is the business of `log/`.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from random import Random

Buffer: TypeAlias = bytes | bytearray | memoryview
Mapped: TypeAlias = bytes | mmap.mmap

READ_WRITE = os.O_RDWR | os.O_CLOEXEC
READ_ONLY = os.O_RDONLY | os.O_CLOEXEC
CREATE = os.O_CREAT
TRUNCATE = os.O_TRUNC


class Disk(Protocol):
    """What the log asks of a file system. Every call raises OSError as `os` does."""

    def open(self, path: str, flags: int) -> int: ...

    def close(self, fd: int) -> None: ...

    def pread(self, fd: int, length: int, position: int, /) -> bytes: ...

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int: ...

    def fdatasync(self, fd: int, /) -> None: ...

    def ftruncate(self, fd: int, length: int, /) -> None: ...

    def size(self, fd: int) -> int: ...

    def file_size(self, path: str) -> int: ...

    def map_file(self, path: str) -> Mapped: ...

    def rename(self, source: str, target: str) -> None: ...

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


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Make `path` hold `data` for good: after a crash it has the old content or the new."""
    temporary = path + ".tmp"
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


class RealDisk:
    """The machine's file system."""

    __slots__ = ()

    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    fdatasync = staticmethod(os.fdatasync)
    ftruncate = staticmethod(os.ftruncate)

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o644)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

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


# One change to a file's bytes that a crash may forget: a write, or (data None) a new length.
_Change: TypeAlias = tuple[int, bytes | None]


def _apply(content: bytearray, change: _Change) -> None:
    position, data = change
    if data is None:
        if position < len(content):
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


class _File:
    __slots__ = ("content", "durable", "pending")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.pending: list[_Change] = []

    def change(self, change: _Change) -> None:
        _apply(self.content, change)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()

    def crash(self, random: "Random") -> None:
        kept = random.randint(0, len(self.pending))
        for change in self.pending[:kept]:
            _apply(self.durable, change)
        if kept < len(self.pending):
            position, data = self.pending[kept]
            if data is not None:
                _apply(self.durable, (position, data[: random.randint(0, len(data))]))
        self.pending.clear()
        self.content = bytearray(self.durable)


# One change of a folder's names, all or nothing: a rename removes one and sets another.
_Names: TypeAlias = "Sequence[tuple[str, _File | _Folder | None]]"


class _Folder:
    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, _File | _Folder] = {}
        self.durable: dict[str, _File | _Folder] = {}
        self.pending: list[_Names] = []

    def change(self, *names: "tuple[str, _File | _Folder | None]") -> None:
        self._set(self.names, names)
        self.pending.append(names)

    def sync(self) -> None:
        for names in self.pending:
            self._set(self.durable, names)
        self.pending.clear()

    def crash(self, random: "Random") -> None:
        for names in self.pending[: random.randint(0, len(self.pending))]:
            self._set(self.durable, names)
        self.pending.clear()
        self.names = dict(self.durable)
        for node in self.names.values():
            node.crash(random)

    @staticmethod
    def _set(target: "dict[str, _File | _Folder]", names: _Names) -> None:
        for name, node in names:
            if node is None:
                target.pop(name, None)
            else:
                target[name] = node


class MemoryDisk:
    """A disk in memory that forgets on `crash()` what was not synced, and fails when told to."""

    def __init__(self, seed: int = 0) -> None:
        from random import Random

        self.random = Random(seed)
        self.calls: dict[str, int] = {}
        self._root = _Folder()
        self._files: dict[int, _File] = {}
        self._next_fd = 1000
        self._locks: dict[int, str] = {}
        self._failures: dict[str, list[int]] = {}
        self._short: list[int] = []

    # -- faults ---------------------------------------------------------------------------------

    def fail_next(self, call: str, code: int, skip: int = 0) -> None:
        """Make the next call of that name raise OSError(code), after `skip` that work."""
        self._failures.setdefault(call, []).extend([0] * skip + [code])

    def write_short(self, *lengths: int) -> None:
        """Let each of the next writes accept only so many bytes."""
        self._short.extend(lengths)

    def crash(self) -> None:
        """Power off: names and bytes that were not synced are gone, but for a torn beginning."""
        self._files.clear()
        self._locks.clear()
        self._failures.clear()
        self._short.clear()
        self._root.crash(self.random)

    def corrupt(self, path: str, content: bytes) -> None:
        """Give a file other bytes behind everyone's back."""
        file = self._file(path)
        file.content[:] = content
        file.durable[:] = content
        file.pending.clear()

    def content(self, path: str) -> bytes:
        """The bytes of a file, as a reader sees them now."""
        return bytes(self._file(path).content)

    def _call(self, name: str) -> None:
        self.calls[name] = self.calls.get(name, 0) + 1
        codes = self._failures.get(name)
        if codes and (code := codes.pop(0)):
            raise OSError(code, os.strerror(code))

    # -- names ----------------------------------------------------------------------------------

    def _folder(self, path: str) -> _Folder:
        folder = self._root
        for name in path.split("/"):
            if name:
                node = folder.names.get(name)
                if not isinstance(node, _Folder):
                    code = errno.ENOENT if node is None else errno.ENOTDIR
                    raise OSError(code, os.strerror(code), path)
                folder = node
        return folder

    def _file(self, path: str) -> _File:
        folder, name = os.path.split(path)
        node = self._folder(folder).names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def open(self, path: str, flags: int) -> int:
        self._call("open")
        parent, name = os.path.split(path)
        folder = self._folder(parent)
        if name not in folder.names and flags & CREATE:
            folder.change((name, _File()))
        file = self._file(path)
        if flags & TRUNCATE:
            file.change((0, None))
        self._next_fd += 1
        self._files[self._next_fd] = file
        return self._next_fd

    def rename(self, source: str, target: str) -> None:
        self._call("rename")
        parent, name = os.path.split(source)
        folder = self._folder(parent)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if os.path.dirname(target) != parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)
        folder.change((name, None), (os.path.basename(target), folder.names[name]))

    def remove(self, path: str) -> None:
        self._call("remove")
        self._file(path)
        parent, name = os.path.split(path)
        self._folder(parent).change((name, None))

    def make_folder(self, path: str) -> None:
        self._call("make_folder")
        parent, name = os.path.split(path)
        folder = self._folder(parent)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        folder.change((name, _Folder()))

    def make_folders(self, path: str) -> None:
        parts = [name for name in path.split("/") if name]
        for depth in range(1, len(parts) + 1):
            if not self.is_folder("/" + "/".join(parts[:depth])):
                self.make_folder("/" + "/".join(parts[:depth]))

    def remove_folder(self, path: str) -> None:
        self._call("remove_folder")
        if self._folder(path).names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        parent, name = os.path.split(path)
        self._folder(parent).change((name, None))

    def list_folder(self, path: str) -> list[str]:
        return list(self._folder(path).names)

    def is_folder(self, path: str) -> bool:
        try:
            self._folder(path)
        except OSError:
            return False
        return True

    def sync_folder(self, path: str) -> None:
        self._call("sync_folder")
        self._folder(path).sync()

    def lock(self, path: str) -> int:
        if path in self._locks.values():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        fd = self.open(path, READ_WRITE | CREATE)
        self._locks[fd] = path
        return fd

    # -- bytes ----------------------------------------------------------------------------------

    def _open_file(self, fd: int) -> _File:
        file = self._files.get(fd)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return file

    def close(self, fd: int) -> None:
        # A descriptor from before a crash may still be closed by its late owner.
        self._files.pop(fd, None)
        self._locks.pop(fd, None)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        self._call("pread")
        return bytes(self._open_file(fd).content[position : position + length])

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        self._call("pwrite")
        copy = bytes(data)
        if self._short:
            copy = copy[: self._short.pop(0)]
        self._open_file(fd).change((position, copy))
        return len(copy)

    def fdatasync(self, fd: int, /) -> None:
        file = self._open_file(fd)
        try:
            self._call("fdatasync")
        except OSError:
            # As kernels do: the pages count as clean afterwards, and no later sync writes them.
            file.pending.clear()
            raise
        file.sync()

    def ftruncate(self, fd: int, length: int, /) -> None:
        self._call("ftruncate")
        self._open_file(fd).change((length, None))

    def size(self, fd: int) -> int:
        return len(self._open_file(fd).content)

    def file_size(self, path: str) -> int:
        return len(self._file(path).content)

    def map_file(self, path: str) -> Mapped:
        self._call("map_file")
        return self.content(path)
