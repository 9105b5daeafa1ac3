import errno
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.disk import (
    CREATE,
    READ_WRITE,
    Disk,
    RealDisk,
    TimedDisk,
    read_file,
    replace_file,
    write_file,
    write_fully,
)
from headrace.disk.memory import MemoryDisk


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return RealDisk() if request.param == "real" else MemoryDisk()


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> str:
    path = str(tmp_path)
    disk.make_folders(path)
    return path


def test_both_disks_give_back_what_was_written(disk: Disk, folder: str) -> None:
    write_file(disk, f"{folder}/a", b"hello world", sync=True)
    fd = disk.open(f"{folder}/a", READ_WRITE)
    assert disk.pwrite(fd, memoryview(b"there"), 6) == 5
    disk.ftruncate(fd, 9)
    assert disk.pread(fd, 100, 0) == b"hello the"
    assert disk.size(fd) == disk.file_size(f"{folder}/a") == 9
    disk.close(fd)
    assert read_file(disk, f"{folder}/a") == bytes(disk.map_file(f"{folder}/a"))[:] == b"hello the"


def test_both_disks_send_a_range_of_a_file(disk: Disk, folder: str) -> None:
    write_file(disk, f"{folder}/a", b"hello world", sync=False)
    fd = disk.open(f"{folder}/a", READ_WRITE)
    sender, receiver = socket.socketpair()
    with sender, receiver:
        assert disk.sendfile(sender.fileno(), fd, 6, 3) == 3
        assert receiver.recv(100) == b"wor"
        assert disk.sendfile(sender.fileno(), fd, 11, 3) == 0, "the end of the file"
    disk.close(fd)


def test_both_disks_map_an_empty_file(disk: Disk, folder: str) -> None:
    write_file(disk, f"{folder}/a", b"", sync=False)
    assert len(disk.map_file(f"{folder}/a")) == 0


def test_both_disks_leave_a_hole_of_zeros(disk: Disk, folder: str) -> None:
    fd = disk.open(f"{folder}/a", READ_WRITE | CREATE)
    disk.pwrite(fd, b"x", 3)
    assert disk.pread(fd, 10, 0) == b"\0\0\0x"
    disk.close(fd)


def test_both_disks_know_folders(disk: Disk, folder: str) -> None:
    disk.make_folder(f"{folder}/sub")
    with pytest.raises(FileExistsError):
        disk.make_folder(f"{folder}/sub")
    write_file(disk, f"{folder}/sub/a", b"1", sync=False)
    with pytest.raises(OSError) as caught:
        disk.remove_folder(f"{folder}/sub")
    assert caught.value.errno == errno.ENOTEMPTY
    disk.rename(f"{folder}/sub", f"{folder}/other")
    assert not disk.is_folder(f"{folder}/sub")
    assert disk.list_folder(f"{folder}/other") == ["a"]
    disk.remove(f"{folder}/other/a")
    disk.remove_folder(f"{folder}/other")
    assert disk.list_folder(folder) == []


@pytest.mark.parametrize("call", ["open", "remove", "rename", "map_file", "file_size"])
def test_both_disks_miss_files_alike(disk: Disk, folder: str, call: str) -> None:
    arguments: dict[str, tuple[object, ...]] = {"open": (READ_WRITE,), "rename": (f"{folder}/b",)}
    with pytest.raises(FileNotFoundError):
        getattr(disk, call)(f"{folder}/a", *arguments.get(call, ()))


def test_both_disks_let_one_owner_have_the_lock(disk: Disk, folder: str) -> None:
    fd = disk.lock(f"{folder}/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock(f"{folder}/.lock")
    disk.close(fd)
    disk.close(disk.lock(f"{folder}/.lock"))


def test_a_replaced_file_leaves_no_temporary_one(disk: Disk, folder: str) -> None:
    replace_file(disk, f"{folder}/a", b"old")
    replace_file(disk, f"{folder}/a", b"new")
    assert disk.list_folder(folder) == ["a"]
    assert read_file(disk, f"{folder}/a") == b"new"


def test_a_crash_keeps_what_was_synced_and_a_beginning_of_the_rest() -> None:
    seen = set()
    for seed in range(60):
        disk = MemoryDisk(seed)
        disk.make_folders("/d")
        disk.sync_folder("/")
        fd = disk.open("/d/a", READ_WRITE | CREATE)
        disk.sync_folder("/d")
        disk.pwrite(fd, b"safe", 0)
        disk.fdatasync(fd)
        disk.pwrite(fd, b"maybe", 4)
        disk.crash()
        content = read_file(disk, "/d/a")
        assert b"safemaybe".startswith(content)
        assert len(content) >= 4
        seen.add(content)
    assert len(seen) == 6, "every torn length comes up"


def test_a_crash_forgets_names_whose_folder_was_not_synced() -> None:
    survived = set()
    for seed in range(20):
        disk = MemoryDisk(seed)
        disk.make_folders("/d")
        disk.sync_folder("/")
        write_file(disk, "/d/a", b"1", sync=True)
        disk.crash()
        survived.add(tuple(disk.list_folder("/d")))
    assert survived == {(), ("a",)}


def test_a_replaced_file_is_old_or_new_after_a_crash() -> None:
    for seed in range(30):
        disk = MemoryDisk(seed)
        disk.make_folders("/d")
        disk.sync_folder("/")
        replace_file(disk, "/d/a", b"old content")
        disk.fail_next("sync_folder", errno.EIO)
        with pytest.raises(OSError):
            replace_file(disk, "/d/a", b"new content")
        disk.crash()
        assert read_file(disk, "/d/a") in (b"old content", b"new content")


def test_what_a_failed_sync_lost_no_later_sync_brings_back() -> None:
    disk = MemoryDisk()
    fd = disk.open("/a", READ_WRITE | CREATE)
    disk.sync_folder("/")
    disk.pwrite(fd, b"lost", 0)
    disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(OSError):
        disk.fdatasync(fd)
    disk.fdatasync(fd)
    disk.crash()
    assert read_file(disk, "/a") == b""


def test_a_failpoint_hits_the_call_it_names_once() -> None:
    disk = MemoryDisk()
    fd = disk.open("/a", READ_WRITE | CREATE)
    disk.fail_next("pwrite", errno.ENOSPC, skip=1)
    disk.pwrite(fd, b"1", 0)
    with pytest.raises(OSError) as caught:
        disk.pwrite(fd, b"2", 1)
    assert caught.value.errno == errno.ENOSPC
    disk.pwrite(fd, b"3", 1)
    assert disk.content("/a") == b"13"


def test_short_writes_are_continued() -> None:
    disk = MemoryDisk()
    fd = disk.open("/a", READ_WRITE | CREATE)
    disk.write_short(3, 1)
    write_fully(disk, fd, b"0123456789", 0)
    assert disk.content("/a") == b"0123456789"


def test_a_disk_that_takes_nothing_is_an_error_and_no_endless_loop() -> None:
    disk = MemoryDisk()
    fd = disk.open("/a", READ_WRITE | CREATE)
    disk.write_short(3, 0)
    with pytest.raises(OSError):
        write_fully(disk, fd, b"0123456789", 0)


def test_writers_that_replace_one_file_at_once_leave_the_whole_content_of_one(
    tmp_path: Path,
) -> None:
    disk, path = RealDisk(), f"{tmp_path}/checkpoint"
    contents = [bytes([number]) * 5000 for number in range(8)]

    def replace(number: int) -> None:
        for _ in range(20):
            replace_file(disk, path, contents[number])

    with ThreadPoolExecutor(len(contents)) as pool:
        for outcome in [pool.submit(replace, number) for number in range(len(contents))]:
            outcome.result()
    assert read_file(disk, path) in contents
    assert disk.list_folder(str(tmp_path)) == ["checkpoint"]


def test_every_sync_is_timed_also_one_that_fails(tmp_path: Path) -> None:
    disk = TimedDisk()
    write_file(disk, f"{tmp_path}/a", b"x", sync=True)
    assert disk.sync_seconds.count == 1
    disk.sync_folder(str(tmp_path))
    assert disk.sync_seconds.count == 2
    with pytest.raises(OSError, match="Bad file descriptor"):
        disk.fdatasync(999_999)
    assert disk.sync_seconds.count == 3
