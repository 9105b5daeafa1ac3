"""Several data folders, one of which may fail while the others go on."""

import errno

import pytest

from headrace.clock import ManualClock
from headrace.disk import read_file
from headrace.disk.failpoints import ANY, Fault
from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.log.directories import LogDirectories
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.types import TopicPartition
from tests.log.samples import NOW, ORDERS, ORDERS_ID, SMALL, append, batch, contents

FIRST, SECOND = "/one", "/two"
META = {"version": "1", "node.id": "1", "cluster.id": "abc"}


def opened(disk: MemoryDisk, paths: tuple[str, ...] = (FIRST, SECOND)) -> LogDirectories:
    directories = LogDirectories(paths, disk, ManualClock(NOW))
    directories.open()
    directories.write_meta(META)
    return directories


def partition(index: int) -> TopicPartition:
    return TopicPartition("orders", index)


def break_folder(disk: MemoryDisk, path: str, code: int = errno.EIO) -> None:
    disk.failpoints.arm(ANY, Fault(code), count=-1, under=path)


def fill(log: Log) -> None:
    for _ in range(20):
        append(log, batch(value=b"x" * 100))


def home(directories: LogDirectories, index: int) -> str:
    found = directories.home_of(partition(index))
    assert found is not None
    return found.path


def test_new_partitions_go_to_the_folder_with_the_fewest() -> None:
    disk = MemoryDisk()
    alone = opened(disk, (FIRST,))
    for index in range(2):
        alone.create(partition(index), ORDERS_ID, SMALL)
    alone.close()
    directories = opened(disk)
    for index in range(2, 6):
        directories.create(partition(index), ORDERS_ID, SMALL)
    assert [directory.count() for directory in directories.all] == [3, 3]
    assert [home(directories, index) for index in (0, 1, 2, 3)] == [FIRST, FIRST, SECOND, SECOND]


def test_partitions_are_found_again_where_they_were() -> None:
    disk = MemoryDisk()
    directories = opened(disk)
    for index in range(4):
        append(directories.create(partition(index), ORDERS_ID, SMALL), batch(index + 1))
    homes = [home(directories, index) for index in range(4)]
    directories.close()
    directories = opened(disk)
    assert [home(directories, index) for index in range(4)] == homes
    assert [directories.get(partition(i), SMALL).end_offset for i in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_broken_folder_takes_its_partitions_offline_and_no_others(code: int) -> None:
    disk = MemoryDisk()
    directories = opened(disk)
    failed: list[LogDirectory] = []
    directories.on_failure = failed.append
    logs = [directories.create(partition(index), ORDERS_ID, SMALL) for index in range(4)]
    for log in logs:
        append(log, batch(1, value=b"kept"))
    break_folder(disk, SECOND, code)
    for index, log in enumerate(logs):
        if home(directories, index) == FIRST:
            assert append(log, batch()) == 1
            continue
        for call in (lambda log=log: append(log, batch()), lambda log=log: contents(log)):
            with pytest.raises(KafkaError) as caught:
                call()
            assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [directory.path for directory in failed] == [SECOND]
    assert [directory.path for directory in directories.healthy] == [FIRST]
    for index in (4, 5):
        directories.create(partition(index), ORDERS_ID, SMALL)
        assert home(directories, index) == FIRST
    directories.checkpoint()
    directories.close()


def test_a_full_disk_is_no_broken_one() -> None:
    disk = MemoryDisk()
    directories = opened(disk)
    log = directories.create(ORDERS, ORDERS_ID, SMALL)
    for point in ("pwrite .log", "open .index", "pwrite .snapshot"):
        disk.failpoints.arm(point, Fault(errno.ENOSPC))
        with pytest.raises(KafkaError) as caught:
            fill(log)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert directories.first.offline is None
        end = log.end_offset
        assert append(log, batch()) == end, "there is room again"


def test_a_partition_that_was_deleted_while_its_folder_was_offline_is_forgotten() -> None:
    disk = MemoryDisk()
    directories = opened(disk)
    directories.create(ORDERS, ORDERS_ID, SMALL)
    directories.first.fail("a test says so")
    directories.delete(ORDERS)()
    assert not directories.has(ORDERS)
    directories.create(ORDERS, ORDERS_ID, SMALL)
    assert directories.home_of(ORDERS) is directories.all[1]


def test_a_second_folder_that_cannot_be_opened_is_offline_from_the_start() -> None:
    disk = MemoryDisk()
    directories = opened(disk)
    for index in range(2):
        append(directories.create(partition(index), ORDERS_ID, SMALL), batch())
    directories.close()
    break_folder(disk, SECOND)
    directories = opened(disk)
    assert [directory.path for directory in directories.healthy] == [FIRST]
    assert directories.has(partition(0))
    assert not directories.has(partition(1))
    disk.kill()
    directories = opened(disk)
    directories.recover(lambda _: SMALL)
    assert directories.get(partition(1), SMALL).end_offset == 1


def test_a_folder_that_breaks_during_recovery_leaves_the_others_whole() -> None:
    disk = MemoryDisk()
    directories = opened(disk)
    for index in range(4):
        append(directories.create(partition(index), ORDERS_ID, SMALL), batch())
    disk.kill()
    directories = opened(disk)
    disk.failpoints.arm("fdatasync .log", Fault(errno.EIO), under=SECOND)
    directories.recover(lambda _: SMALL)
    assert [directory.path for directory in directories.healthy] == [FIRST]
    for index in range(4):
        if home(directories, index) == FIRST:
            assert directories.get(partition(index), SMALL).end_offset == 1
        else:
            with pytest.raises(KafkaError):
                directories.get(partition(index), SMALL)


def test_the_first_folder_must_be_usable() -> None:
    disk = MemoryDisk()
    break_folder(disk, FIRST)
    with pytest.raises(SettingError, match=r"log\.dirs: /one"):
        opened(disk)


def test_a_partition_in_two_folders_is_refused_with_both_names() -> None:
    disk = MemoryDisk()
    for path in (FIRST, SECOND):
        alone = opened(disk, (path,))
        alone.create(ORDERS, ORDERS_ID, SMALL)
        alone.close()
    with pytest.raises(SettingError, match="orders-0 has a folder in /one and in /two"):
        opened(disk)


def test_a_folder_of_another_broker_is_refused() -> None:
    disk = MemoryDisk()
    other = LogDirectories((SECOND,), disk, ManualClock(NOW))
    other.open()
    other.write_meta({**META, "node.id": "2"})
    other.close()
    with pytest.raises(SettingError, match=r"/two belongs to node\.id=2, not to 1"):
        opened(disk)
    disk.kill()
    assert b"node.id=2" in read_file(disk, f"{SECOND}/meta.properties")
