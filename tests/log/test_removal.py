"""The removal of deleted segments from disk, with a fault or a kill at each step."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.disk import RealDisk
from headrace.disk.failpoints import ANY, Fault, Killed
from headrace.disk.memory import MemoryDisk
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.markers import encode_marker
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

DELAYED = replace(SMALL, file_delete_delay_ms=5000)
AT_ONCE = replace(SMALL, file_delete_delay_ms=0)


def written(
    disk: MemoryDisk, clock: ManualClock | None = None, settings: LogSettings = DELAYED
) -> tuple[LogDirectory, Log]:
    """A log of five segments, with idempotent producers and an aborted transaction in each."""
    directory = open_directory(disk, clock)
    log = directory.create(ORDERS, ORDERS_ID, replace(settings, segment_bytes=10_000))
    for number in range(5):
        append(log, batch(2, producer_id=1, epoch=0, sequence=number * 2), epoch=number)
        append(
            log,
            batch(1, producer_id=2, epoch=0, sequence=number, attributes=TRANSACTIONAL),
            epoch=number,
        )
        append(log, encode_marker(2, 0, False, 1, NOW), epoch=number)
        if number < 4:
            log.roll(NOW)
    log.flush()
    directory.checkpoint()
    return directory, log


def names(disk: MemoryDisk, *, deleted: bool = False) -> list[str]:
    found = [name for name in disk.list_folder(f"{ROOT}/{ORDERS}") if name[:20].isdecimal()]
    return sorted(name for name in found if name.endswith(".deleted") is deleted)


def offsets(found: list[str]) -> set[int]:
    return {int(name[:20]) for name in found}


def test_files_are_renamed_at_once_and_removed_after_the_delay() -> None:
    disk, clock = MemoryDisk(), ManualClock(NOW)
    directory, log = written(disk, clock)
    log.delete_segments(2, NOW)
    assert log.start_offset == 8
    assert offsets(names(disk)) == {0, 4, 8, 12, 16}
    directory.remove_dropped()
    assert offsets(names(disk)) == {8, 12, 16}
    suffixes = {name[20:] for name in names(disk, deleted=True) if int(name[:20]) == 4}
    assert suffixes == {
        f"{kind}.deleted" for kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    }
    clock.advance(4999)
    directory.remove_dropped()
    assert offsets(names(disk, deleted=True)) == {0, 4}
    clock.advance(1)
    directory.remove_dropped()
    assert names(disk, deleted=True) == []
    assert not directory.removal.waiting


def test_a_short_delay_does_not_wait_behind_a_long_one() -> None:
    disk, clock = MemoryDisk(), ManualClock(NOW)
    directory, log = written(disk, clock)
    log.delete_segments(1, NOW)
    directory.remove_dropped()
    log.use_settings(AT_ONCE)
    log.delete_segments(1, NOW)
    directory.remove_dropped()
    assert offsets(names(disk, deleted=True)) == {0}


def test_the_new_start_is_on_the_disk_before_the_first_file_goes() -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    disk.failpoints.trace = []
    log.delete_segments(3, NOW)
    assert disk.failpoints.trace == [], "nothing to wait for in the event loop"
    directory.remove_dropped()
    trace = disk.failpoints.trace
    saved = trace.index("rename log-start-offset-checkpoint")
    assert "sync_folder root" in trace[saved : trace.index("rename .log.deleted")]
    assert trace.index("remove .log.deleted") > trace.index("rename .snapshot.deleted")


def test_deleting_all_segments_begins_a_new_one_first() -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    log.delete_segments(5, NOW)
    directory.remove_dropped()
    assert (log.start_offset, log.end_offset) == (20, 20)
    assert offsets(names(disk)) == {20}
    assert append(log, batch(1, producer_id=1, epoch=0, sequence=10)) == 20


def test_what_was_read_before_the_deletion_can_still_be_sent() -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    piece = log.read(0, 1 << 20, log.end_offset, True)
    assert piece is not None
    before = piece.read()
    log.delete_segments(5, NOW)
    directory.remove_dropped()
    assert piece.read() == before


def test_epochs_transactions_and_snapshots_of_deleted_segments_are_forgotten() -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    log.delete_segments(3, NOW)
    directory.remove_dropped()
    assert log.epochs.entries[0] == (3, 12)
    assert log.transactions.between(0, 20) == [(2, 14), (2, 18)]
    disk.kill()
    log = open_directory(disk).get(ORDERS, AT_ONCE)
    assert log.epochs.entries[0] == (3, 12)
    assert log.transactions.between(0, 20) == [(2, 14), (2, 18)]


def test_a_snapshot_that_a_clean_stop_left_amid_a_deleted_segment_goes_too() -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    directory.close()
    directory = open_directory(disk)
    log = directory.get(ORDERS, AT_ONCE)
    append(log, batch())
    log.delete_segments(5, NOW)
    directory.close()
    open_directory(disk).get(ORDERS, AT_ONCE)
    assert [int(name[:20]) for name in names(disk) if name.endswith(".snapshot")] == [21]


def test_a_new_topic_of_the_same_name_does_not_lose_its_files() -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    log.delete_segments(3, NOW)
    directory.delete(ORDERS)()
    log = directory.create(ORDERS, ORDERS_ID, AT_ONCE)
    append(log, batch())
    directory.remove_dropped()
    assert contents(log) != []
    assert offsets(names(disk)) == {0}


def test_a_new_log_ignores_dropped_segments() -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    log.delete_segments(3, NOW)
    log.restart_at(4)
    append(log, batch())
    directory.remove_dropped()
    assert (log.start_offset, log.end_offset) == (4, 5)
    assert offsets(names(disk)) == {4}


def test_a_full_disk_is_no_reason_not_to_remove_anything() -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    log.delete_segments(3, NOW)
    disk.fail_next("open recovery-point-offset-checkpoint.tmp", errno.ENOSPC)
    directory.remove_dropped()
    assert directory.offline is None
    assert offsets(names(disk)) == {12, 16}
    disk.kill()
    assert open_directory(disk).get(ORDERS, AT_ONCE).start_offset == 12


def test_a_disk_that_has_no_room_for_a_name_is_asked_again() -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    log.delete_segments(3, NOW)
    disk.fail_next("rename .index.deleted", errno.ENOSPC)
    directory.remove_dropped()
    assert directory.offline is None
    directory.remove_dropped()
    assert offsets(names(disk)) == {12, 16}


@pytest.mark.parametrize("point", ["rename .log.deleted", "remove .log.deleted"])
def test_a_broken_disk_is_taken_offline(point: str) -> None:
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    log.delete_segments(3, NOW)
    disk.fail_next(point, errno.EIO)
    directory.remove_dropped()
    assert directory.offline is not None
    assert "removing old segments failed" in directory.offline


def test_segments_without_times_are_as_old_as_their_files(tmp_path: Path) -> None:
    directory = LogDirectory(str(tmp_path), RealDisk(), ManualClock(NOW))
    directory.open()
    log = directory.create(TopicPartition("t", 0), ORDERS_ID, SMALL)
    append(log, batch(1, timestamp=-1))
    log.roll(NOW)
    os.utime(log.segments[0].files.path(".log"), (1_600_000_000, 1_600_000_000.5))
    assert log.segments[0].newest_ms() == 1_600_000_000_500
    append(log, batch(1, timestamp=NOW))
    assert log.segments[1].newest_ms() == NOW
    directory.close()


# -- kills -------------------------------------------------------------------------------------


def step_count(count: int) -> int:
    """How many disk calls it takes to delete so many segments."""
    disk = MemoryDisk()
    directory, log = written(disk, settings=AT_ONCE)
    disk.failpoints.trace = []
    log.delete_segments(count, NOW)
    directory.remove_dropped()
    return len(disk.failpoints.trace)


@pytest.mark.parametrize("end", [MemoryDisk.kill, MemoryDisk.crash], ids=["kill", "power cut"])
@pytest.mark.parametrize("count", [3, 5])
def test_wherever_a_deletion_ends_the_log_is_whole_behind_it(
    count: int, end: Callable[[MemoryDisk], None]
) -> None:
    for step in range(step_count(count)):
        for after in (False, True):
            disk = MemoryDisk(seed=step)
            directory, log = written(disk, settings=AT_ONCE)
            expected = contents(log)
            disk.failpoints.arm(ANY, Fault(kill=True, after=after), skip=step)
            # Behind a call that fails by itself, as renaming what is not there, there is no kill.
            assert is_killed(directory, log, count) or after
            end(disk)
            check_restarted(disk, expected, count * 4, f"step {step}, after={after}")


def is_killed(directory: LogDirectory, log: Log, count: int) -> bool:
    try:
        log.delete_segments(count, NOW)
        directory.remove_dropped()
    except Killed:
        return True
    return False


def check_restarted(
    disk: MemoryDisk, expected: list[tuple[int, bytes]], start: int, where: str
) -> None:
    directory = open_directory(disk)
    directory.recover(lambda _: AT_ONCE)
    log = directory.get(ORDERS, AT_ONCE)
    assert log.start_offset in range(0, start + 1, 4), where
    assert log.end_offset == 20, where
    found = contents(log)
    assert found == [each for each in expected if each[0] >= log.start_offset], where
    assert append(log, batch()) == 20, where
    count = sum(segment.base_offset < start for segment in log.segments)
    if count and log.segments[-1].base_offset >= start:
        log.delete_segments(count, NOW)
        directory.remove_dropped()
        assert log.start_offset == start, where
        assert min(offsets(names(disk))) == start, where
    directory.close()
    log = open_directory(disk).get(ORDERS, AT_ONCE)
    assert log.end_offset == 21, where
    assert names(disk, deleted=True) == [], where
