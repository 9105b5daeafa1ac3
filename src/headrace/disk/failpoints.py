"""Faults of a disk on demand, for tests: the call that fails, falls short or ends the process.

`FaultyDisk` stands before another disk and gives each call that changes or reads something a name,
its point: the call and the kind of file. Every step of every operation is one such call, so every
step has a name without a line in the code that takes it:

    append              pwrite .log
    fetch               sendfile .log; pread .log of up to 4 KB
    roll                open .log, then open and pwrite of .index .timeindex .txnindex .snapshot
    flush               fdatasync .log .index .timeindex .snapshot, sync_folder partition
    checkpoint          open, pwrite, fdatasync recovery-point-offset-checkpoint.tmp,
                        rename recovery-point-offset-checkpoint, sync_folder root; the same of
                        log-start-offset-checkpoint; .kafka_cleanshutdown at a clean stop
    deleting segments   rename .log.deleted (.index.deleted, ...), later remove .log.deleted
    compaction's swap   rename .log.swap, remove .log, rename .log: what its files are called
    deleting a topic    rename deleted, sync_folder root, remove .log, remove_folder deleted
    moving a replica    make_folder future, open and pwrite .log and so on, rename moved-from,
                        rename orders-0 (or whatever its name is), sync_folder root, checkpoint,
                        rename deleted, sync_folder root, remove moved-from, remove .log
    forking a partition make_folder fork, link .log .index .timeindex .txnindex, open, pwrite and
                        fdatasync of the last .log and its indexes, sync_folder fork, checkpoint,
                        rename orders.test-0 (or whatever its name is)

A rename has the name that its file gets. A bare call ("pwrite") stands for all kinds, ANY for
every call. A broker has such a disk only when a test asked for faults at its start.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from headrace.disk.calls import Buffer, Disk, Mapped

ANY = "*"
_OFFSET_DIGITS = 20
_FOLDER_CALLS = ("list_folder", "make_folder", "remove_folder", "sync_folder")


class Killed(BaseException):
    """Here the process would be dead; no `except Exception` may go on from it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at a point. Without anything else than `written`, only a short write."""

    code: int = 0
    """The errno that the call raises."""
    written: int | None = None
    """How many bytes a write brings to the file before it returns, fails or is the last."""
    kill: bool = False
    """End the process."""
    after: bool = False
    """End it, or raise, when the call has done its work."""


@dataclass(slots=True)
class _Armed:
    point: str
    fault: Fault
    skip: int
    count: int
    under: str


def kill_process() -> NoReturn:
    """End this process as kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)
    while True:  # until the signal has arrived
        time.sleep(1)


def point_name(call: str, path: str) -> str:
    """The name of a call on that file or folder."""
    name = os.path.basename(path)
    if name[:_OFFSET_DIGITS].isdecimal() and name[_OFFSET_DIGITS : _OFFSET_DIGITS + 1] == ".":
        return f"{call} {name[_OFFSET_DIGITS:]}"
    if name.endswith("-delete"):
        return f"{call} deleted"
    if name.endswith("-future"):
        return f"{call} future"
    if name.endswith("-fork"):
        return f"{call} fork"
    if call in _FOLDER_CALLS:
        partition = name.rpartition("-")[2].isdecimal()
        return f"{call} {'partition' if partition else 'root'}"
    return f"{call} {name}"


class Failpoints:
    """Which faults wait at which points, and which points were passed."""

    def __init__(self, kill: Callable[[], NoReturn] = kill_process) -> None:
        self.kill = kill
        self.trace: list[str] | None = None
        """The points that were passed, in order, while this is a list."""
        self._armed: list[_Armed] = []

    def arm(
        self, point: str, fault: Fault, *, skip: int = 0, count: int = 1, under: str = ""
    ) -> None:
        """Let the fault strike `count` times (-1: always) at that point, after `skip` passes.

        Only at files whose path begins with `under`.
        """
        self._armed.append(_Armed(point, fault, skip, count, under))

    def arm_command(self, command: Mapping[str, object]) -> None:
        """Arm what a test in another process asks for: the arguments of `arm` and of `Fault`."""
        written = command.get("written")
        fault = Fault(
            int(str(command.get("code", 0))),
            None if written is None else int(str(written)),
            bool(command.get("kill")),
            bool(command.get("after")),
        )
        self.arm(
            str(command["point"]),
            fault,
            skip=int(str(command.get("skip", 0))),
            count=int(str(command.get("count", 1))),
            under=str(command.get("under", "")),
        )

    def clear(self) -> None:
        """Forget the faults that wait."""
        self._armed.clear()

    def passed(self, call: str, path: str) -> Fault | None:
        """Record a call; returns the fault to inject, if any."""
        if self.trace is None and not self._armed:
            return None
        name = point_name(call, path)
        if self.trace is not None:
            self.trace.append(name)
        struck = None
        for armed in [*self._armed]:
            if armed.point not in (name, call, ANY) or not path.startswith(armed.under):
                continue
            if armed.skip > 0:
                armed.skip -= 1
            elif struck is None:
                struck = armed.fault
                armed.count -= 1
                if armed.count == 0:
                    self._armed.remove(armed)
        return struck


def armed_failpoints(commands: str) -> Failpoints:
    """Failpoints with the faults of a JSON array, for those that strike while a broker starts."""
    failpoints = Failpoints()
    for command in json.loads(commands):
        failpoints.arm_command(command)
    return failpoints


class FaultyDisk:
    """Another disk, with failpoints before and behind its calls."""

    def __init__(self, disk: Disk, failpoints: Failpoints | None = None) -> None:
        self.failpoints = failpoints or Failpoints()
        self.calls: dict[str, int] = {}
        self.open_files = disk.open_files
        self.links = disk.links
        self._disk = disk
        self._paths: dict[int, str] = {}

    def _before(self, call: str, path: str) -> Fault | None:
        """What is left to happen behind the call."""
        self.calls[call] = self.calls.get(call, 0) + 1
        fault = self.failpoints.passed(call, path)
        if fault is None or fault.after or fault.written is not None:
            return fault
        self._strike(fault, path)
        return None

    def _strike(self, fault: Fault, path: str) -> None:
        if fault.kill:
            self.failpoints.kill()
        if fault.code:
            raise OSError(fault.code, os.strerror(fault.code), path)

    # -- names ----------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        fault = self._before("open", path)
        fd = self._disk.open(path, flags)
        self._paths[fd] = path
        if fault is not None:
            self._strike(fault, path)
        return fd

    def lock(self, path: str) -> int:
        fault = self._before("lock", path)
        fd = self._disk.lock(path)
        self._paths[fd] = path
        if fault is not None:
            self._strike(fault, path)
        return fd

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        self._disk.close(fd)

    def rename(self, source: str, target: str) -> None:
        fault = self._before("rename", target)
        self._disk.rename(source, target)
        if fault is not None:
            self._strike(fault, target)

    def link(self, source: str, target: str) -> None:
        fault = self._before("link", target)
        self._disk.link(source, target)
        if fault is not None:
            self._strike(fault, target)

    def _named(self, call: str, work: Callable[[str], None], path: str) -> None:
        fault = self._before(call, path)
        work(path)
        if fault is not None:
            self._strike(fault, path)

    def remove(self, path: str) -> None:
        self._named("remove", self._disk.remove, path)

    def make_folder(self, path: str) -> None:
        self._named("make_folder", self._disk.make_folder, path)

    def make_folders(self, path: str) -> None:
        self._named("make_folder", self._disk.make_folders, path)

    def remove_folder(self, path: str) -> None:
        self._named("remove_folder", self._disk.remove_folder, path)

    def sync_folder(self, path: str) -> None:
        self._named("sync_folder", self._disk.sync_folder, path)

    def list_folder(self, path: str) -> list[str]:
        fault = self._before("list_folder", path)
        names = self._disk.list_folder(path)
        if fault is not None:
            self._strike(fault, path)
        return names

    def is_folder(self, path: str) -> bool:
        return self._disk.is_folder(path)

    def file_size(self, path: str) -> int:
        return self._disk.file_size(path)

    def modified_ms(self, path: str) -> int:
        return self._disk.modified_ms(path)

    # -- bytes ----------------------------------------------------------------------------------

    def size(self, fd: int) -> int:
        return self._disk.size(fd)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        path = self._paths.get(fd, "")
        fault = self._before("pread", path)
        data = self._disk.pread(fd, length, position)
        if fault is not None:
            self._strike(fault, path)
        return data

    def sendfile(self, socket: int, fd: int, position: int, length: int, /) -> int:
        path = self._paths.get(fd, "")
        fault = self._before("sendfile", path)
        sent = self._disk.sendfile(socket, fd, position, length)
        if fault is not None:
            self._strike(fault, path)
        return sent

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        path = self._paths.get(fd, "")
        fault = self._before("pwrite", path)
        if fault is None:
            return self._disk.pwrite(fd, data, position)
        if fault.written is not None:
            data = memoryview(data)[: fault.written]
        written = self._disk.pwrite(fd, data, position) if len(data) else 0
        self._strike(fault, path)
        return written

    def fdatasync(self, fd: int, /) -> None:
        path = self._paths.get(fd, "")
        fault = self._before("fdatasync", path)
        self._disk.fdatasync(fd)
        if fault is not None:
            self._strike(fault, path)

    def ftruncate(self, fd: int, length: int, /) -> None:
        path = self._paths.get(fd, "")
        fault = self._before("ftruncate", path)
        self._disk.ftruncate(fd, length)
        if fault is not None:
            self._strike(fault, path)

    def map_file(self, path: str) -> Mapped:
        fault = self._before("map_file", path)
        data = self._disk.map_file(path)
        if fault is not None:
            self._strike(fault, path)
        return data
