"""A disk in memory that knows which bytes were synced, for tests.

Its `crash()` forgets the others as a power cut does, its `kill()` only who had what open.
"""

import errno
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from headrace.disk.calls import CREATE, READ_WRITE, TRUNCATE, Buffer, Mapped
from headrace.disk.failpoints import Failpoints, Fault, FaultyDisk, Killed
from headrace.disk.open_files import OpenFiles

if TYPE_CHECKING:
    from random import Random

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


def _count(folder: _Folder, file: _File) -> int:
    """How many names a file has in a folder and below it."""
    return sum(
        _count(node, file) if isinstance(node, _Folder) else node is file
        for node in folder.names.values()
    )


class _Files:
    """Files and folders in memory, and who has them open."""

    def __init__(self) -> None:
        self.open_files = OpenFiles()
        self.root = _Folder()
        self.files: dict[int, _File] = {}
        self.locks: dict[int, str] = {}
        self._next_fd = 1000
        self.any_linked = False
        self.links = partial(_links, self)

    # -- names ----------------------------------------------------------------------------------

    def folder(self, path: str) -> _Folder:
        folder = self.root
        for name in path.split("/"):
            if name:
                node = folder.names.get(name)
                if not isinstance(node, _Folder):
                    code = errno.ENOENT if node is None else errno.ENOTDIR
                    raise OSError(code, os.strerror(code), path)
                folder = node
        return folder

    def file(self, path: str) -> _File:
        folder, name = os.path.split(path)
        node = self.folder(folder).names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def open(self, path: str, flags: int) -> int:
        parent, name = os.path.split(path)
        folder = self.folder(parent)
        if name not in folder.names and flags & CREATE:
            folder.change((name, _File()))
        file = self.file(path)
        if flags & TRUNCATE:
            file.change((0, None))
        self._next_fd += 1
        self.files[self._next_fd] = file
        return self._next_fd

    def rename(self, source: str, target: str) -> None:
        parent, name = os.path.split(source)
        folder = self.folder(parent)
        if name not in folder.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if os.path.dirname(target) != parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)
        folder.change((name, None), (os.path.basename(target), folder.names[name]))

    def link(self, source: str, target: str) -> None:
        file = self.file(source)
        parent, name = os.path.split(target)
        folder = self.folder(parent)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        folder.change((name, file))
        self.any_linked = True

    def remove(self, path: str) -> None:
        self.file(path)
        parent, name = os.path.split(path)
        self.folder(parent).change((name, None))

    def make_folder(self, path: str) -> None:
        parent, name = os.path.split(path)
        folder = self.folder(parent)
        if name in folder.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        folder.change((name, _Folder()))

    def make_folders(self, path: str) -> None:
        parts = [name for name in path.split("/") if name]
        for depth in range(1, len(parts) + 1):
            if not self.is_folder("/" + "/".join(parts[:depth])):
                self.make_folder("/" + "/".join(parts[:depth]))

    def remove_folder(self, path: str) -> None:
        if self.folder(path).names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        parent, name = os.path.split(path)
        self.folder(parent).change((name, None))

    def list_folder(self, path: str) -> list[str]:
        return list(self.folder(path).names)

    def is_folder(self, path: str) -> bool:
        try:
            self.folder(path)
        except OSError:
            return False
        return True

    def sync_folder(self, path: str) -> None:
        self.folder(path).sync()

    def lock(self, path: str) -> int:
        if path in self.locks.values():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        fd = self.open(path, READ_WRITE | CREATE)
        self.locks[fd] = path
        return fd

    # -- bytes ----------------------------------------------------------------------------------

    def opened(self, fd: int) -> _File:
        file = self.files.get(fd)
        if file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return file

    def close(self, fd: int) -> None:
        # A descriptor from before a crash may still be closed by its late owner.
        self.files.pop(fd, None)
        self.locks.pop(fd, None)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        return bytes(self.opened(fd).content[position : position + length])

    def sendfile(self, socket: int, fd: int, position: int, length: int, /) -> int:
        return os.write(socket, self.pread(fd, length, position))

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        self.opened(fd).change((position, bytes(data)))
        return len(data)

    def fdatasync(self, fd: int, /) -> None:
        self.opened(fd).sync()

    def ftruncate(self, fd: int, length: int, /) -> None:
        self.opened(fd).change((length, None))

    def size(self, fd: int) -> int:
        return len(self.opened(fd).content)

    def file_size(self, path: str) -> int:
        return len(self.file(path).content)

    def modified_ms(self, path: str) -> int:
        self.file(path)
        return time.time_ns() // 1_000_000  # files in memory keep no times: all are new

    def map_file(self, path: str) -> Mapped:
        return bytes(self.file(path).content)


def _links(files: _Files, path: str) -> int:
    """How many names the file has."""
    file = files.file(path)
    return _count(files.root, file) if files.any_linked else 1


class MemoryDisk(FaultyDisk):
    """A disk in memory that forgets on `crash()` what was not synced, and fails when told to."""

    def __init__(self, seed: int = 0) -> None:
        from random import Random

        self._memory = _Files()
        super().__init__(self._memory, Failpoints(self._die))
        self.random = Random(seed)
        self._locks = self._memory.locks
        self._dead = False

    # -- faults ---------------------------------------------------------------------------------

    def fail_next(self, point: str, code: int, skip: int = 0) -> None:
        """Make the next call at that point raise OSError(code), after `skip` that work."""
        self.failpoints.arm(point, Fault(code), skip=skip)

    def write_short(self, *lengths: int) -> None:
        """Let each of the next writes accept only so many bytes."""
        for skip, length in enumerate(lengths):
            self.failpoints.arm("pwrite", Fault(written=length), skip=skip)

    def kill(self) -> None:
        """Simulate kill -9 of the disk's user: all that was written stays."""
        self._memory.files.clear()
        self._memory.locks.clear()
        self.failpoints.clear()
        self._dead = False

    def crash(self) -> None:
        """Power off: names and bytes that were not synced are gone, but for a torn beginning."""
        self.kill()
        self._memory.root.crash(self.random)

    def corrupt(self, path: str, content: bytes) -> None:
        """Give a file other bytes behind everyone's back."""
        file = self._memory.file(path)
        file.content[:] = content
        file.durable[:] = content
        file.pending.clear()

    def content(self, path: str) -> bytes:
        """The bytes of a file, as a reader sees them now."""
        return bytes(self._memory.file(path).content)

    def fdatasync(self, fd: int, /) -> None:
        try:
            super().fdatasync(fd)
        except OSError:
            # As kernels do: the pages count as clean afterwards, and no later sync writes them.
            self._memory.opened(fd).pending.clear()
            raise

    def _before(self, call: str, path: str) -> Fault | None:
        if self._dead:
            raise Killed(f"{call} {path}")
        return super()._before(call, path)

    def _die(self) -> NoReturn:
        self._dead = True
        raise Killed
