import errno
import gc
import threading
import tracemalloc
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.disk import RealDisk, write_file
from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.log.data_folder import FolderInUse
from headrace.log.directory import LogDirectory
from headrace.log.folder_names import deleted_folder_name, parse_folder_name
from headrace.types import TopicPartition
from tests.log.samples import (
    NOW,
    ORDERS,
    ORDERS_ID,
    ROOT,
    SMALL,
    append,
    batch,
    contents,
    open_directory,
)

MARKER = ".kafka_cleanshutdown"


def test_a_second_broker_cannot_use_the_folder() -> None:
    disk = MemoryDisk()
    open_directory(disk)
    with pytest.raises(FolderInUse, match="/data is in use by another broker"):
        open_directory(disk)


def test_an_open_log_without_records_takes_less_than_2200_bytes(tmp_path: Path) -> None:
    directory = LogDirectory(str(tmp_path), RealDisk(), ManualClock(NOW))
    directory.open()

    def create(first: int) -> None:
        for number in range(first, first + 100):
            directory.create(TopicPartition("t", number), uuid.UUID(int=number + 1), SMALL)

    create(0)
    gc.collect()
    tracemalloc.start()
    try:
        create(100)
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    directory.close()
    assert used / 100 < 2200


def test_a_closed_folder_can_be_opened_again() -> None:
    disk = MemoryDisk()
    open_directory(disk).close()
    assert open_directory(disk).folder.stopped_cleanly


def test_the_clean_marker_goes_as_soon_as_the_folder_is_opened() -> None:
    disk = MemoryDisk()
    open_directory(disk).close()
    assert disk.content(f"{ROOT}/{MARKER}") == b'{"version":0,"brokerEpoch":-1}'
    open_directory(disk)
    assert MARKER not in disk.list_folder(ROOT)
    disk.crash()
    assert not open_directory(disk).folder.stopped_cleanly


def test_created_logs_are_found_again_with_their_topic_ids() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    names = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b.c-d_e", 17)]
    ids = {tp: uuid.uuid4() for tp in names}
    for tp in names:
        append(directory.create(tp, ids[tp], SMALL), batch())
    directory.close()
    directory = open_directory(disk)
    assert directory.partitions() == sorted(names)
    assert {tp: directory.folder.topic_id(tp) for tp in names} == ids
    assert all(directory.get(tp, SMALL).end_offset == 1 for tp in names)


def test_creating_a_log_syncs_nothing() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    disk.calls.clear()
    directory.create(ORDERS, ORDERS_ID, SMALL)
    assert "fdatasync" not in disk.calls
    assert "sync_folder" not in disk.calls


def test_a_flushed_log_survives_a_crash_with_its_topic_id() -> None:
    for seed in range(20):
        disk = MemoryDisk(seed)
        directory = open_directory(disk)
        log = directory.create(ORDERS, ORDERS_ID, SMALL)
        append(log, batch())
        log.flush()
        expected = contents(log)
        disk.crash()
        directory = open_directory(disk)
        assert directory.folder.topic_id(ORDERS) == ORDERS_ID
        assert contents(directory.get(ORDERS, SMALL)) == expected


def test_a_log_that_was_not_opened_keeps_its_checkpoint() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    for _ in range(30):
        append(log, batch())
    log.delete_records_before(3)
    directory.close()
    for _ in range(2):
        directory = open_directory(disk)
        directory.checkpoint()
        directory.close()
    directory = open_directory(disk)
    assert directory.get(ORDERS, SMALL).start_offset == 3


def test_many_logs_are_recovered_and_closed_side_by_side(tmp_path: object) -> None:
    path = f"{tmp_path}/data"
    partitions = [TopicPartition("orders", index) for index in range(40)]
    done: list[int] = []
    for turn in range(3):
        directory = LogDirectory(path, RealDisk(), ManualClock(NOW))
        directory.open()
        done.clear()
        directory.recover(lambda _: SMALL, lambda _, count, total: done.append(count), 8)
        if turn:
            assert done == [*range(1, 41)]
        for index, partition in enumerate(partitions):
            if turn:
                log = directory.get(partition, SMALL)
            else:
                log = directory.create(partition, ORDERS_ID, SMALL)
            assert log.end_offset == turn * (index % 7 + 1)
            append(log, batch(index % 7 + 1))
        if turn == 0:
            directory.disk.close(directory.folder._lock)  # what a crash leaves
        else:
            directory.close(8)
            directory = LogDirectory(path, RealDisk(), ManualClock(NOW))
            directory.open()
            assert directory.folder.stopped_cleanly
            directory.close()


def test_logs_that_were_never_recovered_are_not_called_clean() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(directory.create(ORDERS, ORDERS_ID, SMALL), batch())
    disk.kill()
    directory = open_directory(disk)
    directory.close()
    assert MARKER not in disk.list_folder(ROOT)
    directory = open_directory(disk)
    steps = []
    directory.recover(lambda tp: SMALL, lambda tp, done, total: steps.append((tp, done, total)))
    assert steps == [(ORDERS, 1, 1)]
    directory.close()
    assert MARKER in disk.list_folder(ROOT)


def test_an_unknown_partition_is_an_error() -> None:
    with pytest.raises(KafkaError) as caught:
        open_directory(MemoryDisk()).get(ORDERS, SMALL)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_log_is_gone_at_once_and_its_files_later() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    append(log, batch())
    remove = directory.delete(ORDERS)
    assert directory.partitions() == []
    with pytest.raises(KafkaError):
        append(log, batch())
    (left,) = [name for name in disk.list_folder(ROOT) if name.endswith("-delete")]
    assert left.startswith("orders-0.")
    directory.create(ORDERS, ORDERS_ID, SMALL)
    remove()
    assert not [name for name in disk.list_folder(ROOT) if name.endswith("-delete")]
    assert disk.is_folder(f"{ROOT}/{ORDERS}")


def test_what_an_interrupted_deletion_left_is_removed_after_the_next_start() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(directory.create(ORDERS, ORDERS_ID, SMALL), batch())
    directory.delete(ORDERS)
    directory.close()
    directory = open_directory(disk)
    assert directory.partitions() == []
    for work in directory.folder.take_leftovers():
        work()
    assert not [name for name in disk.list_folder(ROOT) if name.endswith("-delete")]


def test_a_deleted_log_does_not_come_back_after_a_crash() -> None:
    for seed in range(10):
        disk = MemoryDisk(seed)
        directory = open_directory(disk)
        log = directory.create(ORDERS, ORDERS_ID, SMALL)
        append(log, batch())
        log.flush()
        directory.delete(ORDERS)
        directory.folder.sync()
        disk.crash()
        assert open_directory(disk).partitions() == []


def test_a_new_log_does_not_inherit_the_offsets_of_a_deleted_one() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    for _ in range(20):
        append(log, batch())
    log.flush()
    log.delete_records_before(10)
    directory.checkpoint()
    directory.delete(ORDERS)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    append(log, batch())
    disk.kill()
    log = open_directory(disk).get(ORDERS, SMALL)
    assert (log.start_offset, log.end_offset) == (0, 1)


class MeddlingDisk(MemoryDisk):
    """Lets the owner of a log act while a worker is about to write a checkpoint."""

    meddle: Callable[[], None] | None = None

    def open(self, path: str, flags: int) -> int:
        if self.meddle is not None and path.endswith("checkpoint.tmp"):
            meddle, self.meddle = self.meddle, None
            meddle()
        return super().open(path, flags)


def test_a_cut_during_a_checkpoint_waits_and_has_the_last_word() -> None:
    disk = MeddlingDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    for _ in range(20):
        append(log, batch())
    log.flush()
    cut = threading.Thread(target=log.truncate_to, args=(5,))
    disk.meddle = cut.start
    directory.checkpoint()
    cut.join(60)
    content = disk.content(f"{ROOT}/recovery-point-offset-checkpoint")
    assert content == b"0\n1\norders 0 5\n"
    assert log.durability.saved_recovery_point == log.durability.recovery_point == 5


def test_the_longest_topic_name_can_be_deleted() -> None:
    partition = TopicPartition("x" * 249, 12345)
    name = deleted_folder_name(partition)
    assert len(name) == 255
    assert name.endswith("-delete")
    assert parse_folder_name(name) is None


@pytest.mark.parametrize("name", ["", "orders", "-1", "orders-", "orders-x", "a-0.abc-delete",
                                  "a-01", "a-²"])  # fmt: skip
def test_other_names_are_no_partitions(name: str) -> None:
    assert parse_folder_name(name) is None


def test_a_dash_belongs_to_the_topic() -> None:
    assert parse_folder_name("a-b-3") == TopicPartition("a-b", 3)


def test_a_failed_sync_takes_the_whole_folder_offline() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    other = directory.create(TopicPartition("other", 0), ORDERS_ID, SMALL)
    append(log, batch())
    disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(KafkaError):
        log.flush()
    assert directory.offline
    for call in (lambda: append(other, batch()), directory.checkpoint):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    directory.close()
    assert MARKER not in disk.list_folder(ROOT)


def test_a_full_disk_in_a_checkpoint_leaves_the_old_one() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    append(log, batch())
    log.flush()
    directory.checkpoint()
    before = disk.content(f"{ROOT}/recovery-point-offset-checkpoint")
    append(log, batch())
    disk.fail_next("pwrite", errno.ENOSPC)
    with pytest.raises(KafkaError) as caught:
        directory.checkpoint()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.content(f"{ROOT}/recovery-point-offset-checkpoint") == before
    assert append(log, batch()) == 2


@pytest.mark.parametrize("point", ["make_folder", "pwrite partition.metadata", "open .log"])
def test_a_log_that_did_not_fit_on_the_disk_can_be_created_later(point: str) -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    disk.fail_next(point, errno.ENOSPC)
    with pytest.raises(KafkaError) as caught:
        directory.create(ORDERS, ORDERS_ID, SMALL)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not directory.has(ORDERS)
    assert append(directory.create(ORDERS, ORDERS_ID, SMALL), batch()) == 0


def test_what_a_failed_creation_left_is_not_in_the_way_of_the_next_one() -> None:
    """Without descriptors not even clearing up is possible."""
    disk = MemoryDisk()
    directory = open_directory(disk)
    disk.fail_next("open .log", errno.EMFILE)
    disk.fail_next("list_folder", errno.EMFILE)
    with pytest.raises(KafkaError):
        directory.create(ORDERS, ORDERS_ID, SMALL)
    assert disk.is_folder(f"{ROOT}/{ORDERS}")
    assert append(directory.create(ORDERS, ORDERS_ID, SMALL), batch()) == 0


def test_a_folder_with_records_that_appeared_meanwhile_is_not_overwritten() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    append(directory.create(ORDERS, ORDERS_ID, SMALL), batch())
    directory.forget(ORDERS, "somebody copied it here")
    with pytest.raises(KafkaError):
        directory.create(ORDERS, ORDERS_ID, SMALL)


def test_a_topic_created_again_on_a_full_disk_can_be_created_later() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    append(log, batch())
    log.flush()
    directory.checkpoint()
    directory.delete(ORDERS)()
    disk.fail_next("pwrite recovery-point-offset-checkpoint.tmp", errno.ENOSPC)
    with pytest.raises(KafkaError):
        directory.create(ORDERS, uuid.uuid4(), SMALL)
    assert append(directory.create(ORDERS, uuid.uuid4(), SMALL), batch()) == 0


def test_logs_are_due_for_a_flush_by_roll_count_and_time() -> None:
    clock = ManualClock(NOW)
    directory = open_directory(MemoryDisk(), clock)
    rolled = directory.create(TopicPartition("rolled", 0), ORDERS_ID, SMALL)
    counted = directory.create(
        TopicPartition("counted", 0), ORDERS_ID, replace(SMALL, flush_messages=3)
    )
    timed = directory.create(TopicPartition("timed", 0), ORDERS_ID, replace(SMALL, flush_ms=1000))
    for log in (rolled, counted, timed):
        append(log, batch(2))
    assert directory.due_for_flush() == []
    append(counted, batch(1))
    rolled.roll()
    clock.advance(999)
    assert directory.due_for_flush() == [rolled, counted]
    clock.advance(1)
    assert directory.due_for_flush() == [rolled, counted, timed]
    for log in (rolled, counted, timed):
        log.flush()
    assert directory.due_for_flush() == []
    append(timed, batch())
    assert directory.due_for_flush() == []
    clock.advance(1000)
    assert directory.due_for_flush() == [timed]


def test_meta_and_high_watermarks_are_kept() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    assert directory.folder.meta is None
    directory.folder.write_meta({"version": "1", "cluster.id": "abc", "node.id": "4"})
    directory.checkpoints.write_high_watermarks({ORDERS: 12})
    directory.close()
    directory = open_directory(disk)
    assert directory.folder.meta == {"version": "1", "cluster.id": "abc", "node.id": "4"}
    assert directory.checkpoints.read_high_watermarks() == {ORDERS: 12}


def test_on_a_real_disk_everything_works_alike(tmp_path: object) -> None:
    path = f"{tmp_path}/data"
    for n in range(3):
        directory = LogDirectory(path, RealDisk(), ManualClock(NOW))
        directory.open()
        if n == 0:
            log = directory.create(ORDERS, ORDERS_ID, SMALL)
        else:
            log = directory.get(ORDERS, SMALL)
        assert log.end_offset == 40 * n
        for _ in range(20):
            append(log, batch(2))
        assert len(contents(log)) == 20 * (n + 1)
        assert log.find_timestamp(NOW) is not None
        log.truncate_to(40 * n + 20)
        for _ in range(10):
            append(log, batch(2))
        if n == 1:
            directory.close()
        else:
            directory.disk.close(directory.folder._lock)


def test_what_a_crash_left_of_a_checkpoint_is_removed_at_the_next_start() -> None:
    disk = MemoryDisk()
    open_directory(disk).close()
    names = ["replication-offset-checkpoint.tmp", "recovery-point-offset-checkpoint.tmp"]
    for name in [*names, "mine.tmp"]:
        write_file(disk, f"{ROOT}/{name}", b"0\n", sync=True)
    open_directory(disk)
    assert {*disk.list_folder(ROOT)} & {*names, "mine.tmp"} == {"mine.tmp"}


def test_high_watermarks_that_a_full_disk_refuses_are_an_error_and_not_the_end() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    disk.fail_next("open", errno.ENOSPC)
    with pytest.raises(KafkaError, match="cannot write the high watermarks") as caught:
        directory.checkpoints.write_high_watermarks({ORDERS: 5})
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert directory.offline is None
    directory.checkpoints.write_high_watermarks({ORDERS: 5})
    assert directory.checkpoints.read_high_watermarks() == {ORDERS: 5}
