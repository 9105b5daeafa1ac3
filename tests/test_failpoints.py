"""Faults of a disk at named points, in memory and on the machine's own."""

import errno
import os
import signal
from pathlib import Path

import pytest

from headrace.disk import (
    CREATE,
    READ_WRITE,
    Disk,
    RealDisk,
    read_file,
    replace_file,
    write_file,
    write_fully,
)
from headrace.disk.failpoints import ANY, Failpoints, Fault, FaultyDisk, Killed, point_name
from headrace.disk.memory import MemoryDisk

LOG = "/d/orders-0/00000000000000000000.log"


@pytest.mark.parametrize(
    ("call", "path", "name"),
    [
        ("pwrite", LOG, "pwrite .log"),
        ("rename", LOG + ".deleted", "rename .log.deleted"),
        ("remove", "/d/a-0/00000000000000000012.snapshot", "remove .snapshot"),
        ("rename", "/d/log-start-offset-checkpoint", "rename log-start-offset-checkpoint"),
        ("open", "/d/a.b-7/partition.metadata", "open partition.metadata"),
        ("sync_folder", "/d/orders-0", "sync_folder partition"),
        ("sync_folder", "/d", "sync_folder root"),
        ("rename", "/d/a-0.0123456789abcdef0123456789abcdef-delete", "rename deleted"),
    ],
)
def test_a_point_is_a_call_and_a_kind_of_file(call: str, path: str, name: str) -> None:
    assert point_name(call, path) == name


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest) -> FaultyDisk:
    return FaultyDisk(RealDisk()) if request.param == "real" else MemoryDisk()


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> str:
    path = f"{tmp_path}/orders-0"
    disk.make_folders(path)
    return path


def test_a_fault_affects_only_its_kind_of_file(disk: FaultyDisk, folder: str) -> None:
    disk.failpoints.arm("pwrite .index", Fault(errno.ENOSPC))
    write_file(disk, f"{folder}/00000000000000000000.log", b"1", sync=False)
    with pytest.raises(OSError) as caught:
        write_file(disk, f"{folder}/00000000000000000000.index", b"1", sync=False)
    assert caught.value.errno == errno.ENOSPC
    write_file(disk, f"{folder}/00000000000000000000.index", b"1", sync=False)


def test_a_fault_can_be_kept_to_one_folder_and_last(disk: FaultyDisk, folder: str) -> None:
    disk.make_folder(f"{folder}/healthy")
    disk.make_folder(f"{folder}/ill")
    disk.failpoints.arm(ANY, Fault(errno.EIO), count=-1, under=f"{folder}/ill")
    for _ in range(3):
        write_file(disk, f"{folder}/healthy/a", b"1", sync=True)
        with pytest.raises(OSError):
            write_file(disk, f"{folder}/ill/a", b"1", sync=True)
    disk.failpoints.clear()
    write_file(disk, f"{folder}/ill/a", b"1", sync=True)


def test_a_write_can_fall_short_and_then_fail(disk: FaultyDisk, folder: str) -> None:
    fd = disk.open(f"{folder}/a", READ_WRITE | CREATE)
    disk.failpoints.arm("pwrite", Fault(written=3))
    write_fully(disk, fd, b"0123456789", 0)
    disk.failpoints.arm("pwrite", Fault(errno.ENOSPC, written=4))
    with pytest.raises(OSError):
        write_fully(disk, fd, b"abcdefghij", 10)
    assert disk.pread(fd, 100, 0) == b"0123456789abcd"
    disk.close(fd)


def test_a_fault_behind_the_call_leaves_its_work_done(disk: FaultyDisk, folder: str) -> None:
    disk.failpoints.arm("rename a", Fault(errno.EIO, after=True))
    with pytest.raises(OSError):
        replace_file(disk, f"{folder}/a", b"new")
    assert read_file(disk, f"{folder}/a") == b"new"


def test_the_trace_names_every_step(disk: FaultyDisk, folder: str) -> None:
    disk.failpoints.trace = []
    replace_file(disk, f"{folder}/a", b"1")
    steps = ["open a.tmp", "pwrite a.tmp", "fdatasync a.tmp", "rename a", "sync_folder partition"]
    assert disk.failpoints.trace == steps


def test_after_a_kill_nothing_more_reaches_the_disk() -> None:
    disk = MemoryDisk()
    disk.make_folders("/d")
    disk.failpoints.arm("rename", Fault(kill=True))
    with pytest.raises(Killed):
        replace_file(disk, "/d/a", b"1")
    with pytest.raises(Killed):
        disk.rename("/d/a.tmp", "/d/a")
    disk.kill()
    assert disk.list_folder("/d") == ["a.tmp"]


@pytest.mark.parametrize("after", [False, True])
def test_a_process_is_killed_at_the_point(tmp_path: Path, after: bool) -> None:
    child = os.fork()
    if child == 0:
        failpoints = Failpoints()
        failpoints.arm("rename a", Fault(kill=True, after=after))
        replace_file(FaultyDisk(RealDisk(), failpoints), f"{tmp_path}/a", b"1")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert sorted(os.listdir(tmp_path)) == (["a"] if after else ["a.tmp"])
