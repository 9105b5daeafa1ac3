import errno
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from headrace.clock import ManualClock
from headrace.disk import RealDisk
from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.log.producer_state import MAX_SEQUENCE
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import HEADER_BYTES, read_header
from headrace.wire.markers import encode_marker
from tests.log.samples import (
    NOW,
    ORDERS,
    ORDERS_ID,
    SMALL,
    append,
    batch,
    contents,
    new_log,
    open_directory,
    remove_dropped,
)


def filled(count: int = 40, disk: MemoryDisk | None = None, settings: LogSettings = SMALL) -> Log:
    log = new_log(disk, settings)
    for n in range(count):
        append(log, batch(1 + n % 3, timestamp=NOW + n, value=b"%03d" % n))
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_offset_and_epoch_are_stamped_into_the_batch_and_nothing_else_changes() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, batch(3))
    data = batch(2, value=b"second")
    untouched = bytes(data[16:])
    assert append(log, data, epoch=7) == 3
    header = read_header(data, 0)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 7)
    assert bytes(data[16:]) == untouched
    assert disk.content("/data/orders-0/00000000000000000000.log").endswith(data)
    assert log.end_offset == 5


def test_a_batch_inside_a_larger_buffer_is_taken_from_its_place() -> None:
    log = new_log()
    data = batch(1)
    buffer = bytearray(b"before" + data + b"after")
    view = memoryview(buffer)
    log.append(buffer, view, 6, 6 + len(data), read_header(buffer, 6), 0, NOW)
    assert contents(log) == [(0, bytes(data[16:]))]


def test_an_append_makes_one_system_call() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, batch())
    disk.calls.clear()
    append(log, batch())
    assert disk.calls == {"pwrite": 1}


def test_everything_that_was_appended_can_be_read_from_every_offset() -> None:
    log = filled()
    assert len(bases(log)) > 1
    expected = contents(log)
    assert len(expected) == 40
    for start in range(log.end_offset):
        piece = log.read(start, 1, log.end_offset, True)
        assert piece is not None
        header = read_header(log.disk.pread(piece.file.fd, piece.length, piece.position), 0)
        assert header.base_offset <= start <= header.last_offset
        assert piece.length == header.size_bytes, "a first batch that is too large comes whole"
    for max_bytes in (150, 333, 1000, 5000):
        assert contents(log, max_bytes) == expected


def test_a_read_never_reaches_the_limit() -> None:
    log = filled()
    starts = [base for base, _ in contents(log)]
    for limit in starts[1:]:
        log.segments.positions.clear()
        piece = log.read(0, 1 << 20, limit, True)
        assert piece is not None
        data = log.disk.pread(piece.file.fd, piece.length, piece.position)
        at, last = 0, -1
        while at < len(data):
            header = read_header(data, at)
            last = header.last_offset
            at += header.size_bytes
        following = [base for base in bases(log)[1:] if base <= limit]
        assert last + 1 == min([limit, *following])
        assert log.read(limit, 1 << 20, limit, True) is None


def test_a_first_batch_that_is_too_large_is_left_out_unless_it_must_come() -> None:
    log = filled(3)
    assert log.read(0, 10, log.end_offset, False) is None
    piece = log.read(0, 10, log.end_offset, True)
    assert piece is not None
    assert piece.length > 10


def test_outside_of_the_log_is_out_of_range() -> None:
    log = filled()
    log.delete_records_before(5)
    assert log.read(log.end_offset, 100, log.end_offset, True) is None
    for offset in (4, log.end_offset + 1, -1):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, log.end_offset, True)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_at_the_end_needs_no_index() -> None:
    disk = MemoryDisk()
    log = filled(disk=disk)
    end = log.end_offset
    assert log.read(end, 1000, end, True) is None
    append(log, batch())
    append(log, batch())
    disk.calls.clear()
    piece = log.read(end, 1000, log.end_offset, True)
    assert piece is not None
    assert log.read(log.end_offset, 1000, log.end_offset, True) is None
    assert disk.calls == {}


def test_a_consumer_at_the_end_follows_the_log_over_a_roll() -> None:
    log = filled()
    end = log.end_offset
    assert log.read(end, 1000, end, True) is None
    log.roll()
    append(log, batch(value=b"next"))
    assert log.read(end, 1000, log.end_offset, True) is not None


def test_remembered_positions_are_bounded() -> None:
    log = filled(100)
    for offset in range(log.end_offset):
        log.read(offset, 100, log.end_offset, True)
    assert len(log.segments.positions) <= 32


def test_a_deleted_segment_can_still_be_sent() -> None:
    disk = MemoryDisk()
    log = filled(disk=disk)
    piece = log.read(0, 100, log.end_offset, True)
    assert piece is not None
    log.delete_records_before(log.end_offset)
    remove_dropped(log)
    assert disk.pread(piece.file.fd, 8, piece.position) == bytes(8)
    fd = piece.file.fd
    del piece
    with pytest.raises(OSError):
        disk.pread(fd, 8, 0)


# -- rolling -----------------------------------------------------------------------------------


def test_a_full_segment_is_rolled_before_the_batch_that_does_not_fit() -> None:
    size = len(batch())
    log = new_log(settings=replace(SMALL, segment_bytes=3 * size))
    for _ in range(7):
        append(log, batch())
    assert bases(log) == [0, 3, 6]


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = new_log(settings=replace(SMALL, segment_bytes=100))
    with pytest.raises(KafkaError) as caught:
        append(log, batch(value=b"x" * 100))
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.end_offset == 0


def test_a_segment_is_rolled_by_the_time_in_its_batches() -> None:
    log = new_log(settings=replace(SMALL, segment_ms=1000))
    append(log, batch(timestamp=NOW))
    append(log, batch(timestamp=NOW + 1000), now_ms=NOW + 10**9)
    assert bases(log) == [0]
    append(log, batch(timestamp=NOW + 1001))
    assert bases(log) == [0, 2]


def test_a_segment_without_times_is_rolled_by_its_age() -> None:
    log = new_log(settings=replace(SMALL, segment_ms=1000))
    append(log, batch(timestamp=-1))
    append(log, batch(timestamp=-1), now_ms=NOW + 1000)
    assert bases(log) == [0]
    append(log, batch(timestamp=-1), now_ms=NOW + 1001)
    assert bases(log) == [0, 2]


def test_a_segment_is_rolled_when_its_index_is_full() -> None:
    log = new_log(settings=replace(SMALL, segment_index_bytes=36, index_interval_bytes=1))
    for n in range(8):
        append(log, batch(timestamp=NOW + n))
    # Three slots in the time index, of which sealing needs one.
    assert bases(log) == [0, 3, 6]


def test_a_segment_is_rolled_before_relative_offsets_overflow() -> None:
    log = new_log()
    append(log, batch(base_offset=0))
    far = batch(base_offset=2**31)
    log.append_replica(memoryview(far), 0, len(far), NOW)
    assert bases(log) == [0, 2**31]
    assert log.end_offset == 2**31 + 1
    assert [base for base, _ in contents(log)] == [0, 2**31]


def test_settings_take_effect_at_the_next_append() -> None:
    log = filled(3)
    log.use_settings(replace(SMALL, segment_bytes=2 * len(batch())))
    append(log, batch())
    assert len(bases(log)) == 2


def test_rolling_an_empty_segment_does_nothing() -> None:
    log = filled(3)
    log.roll()
    log.roll()
    assert bases(log) == [0, 6]


# -- idempotent producers ----------------------------------------------------------------------


def idempotent(sequence: int, count: int = 1, epoch: int = 0) -> bytearray:
    return batch(count, producer_id=5, epoch=epoch, sequence=sequence)


def test_a_duplicate_is_answered_with_its_offset_and_not_written() -> None:
    log = new_log()
    offsets = [append(log, idempotent(n * 2, 2)) for n in range(6)]
    size = log.segments.size_bytes
    assert [append(log, idempotent(n * 2, 2)) for n in range(1, 6)] == offsets[1:]
    assert (log.segments.size_bytes, log.end_offset) == (size, 12)
    with pytest.raises(KafkaError) as caught:
        append(log, idempotent(0, 2))
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_quick_way_judges_like_the_slow_one() -> None:
    log = new_log()
    append(log, idempotent(MAX_SEQUENCE))
    append(log, idempotent(0))
    for sequence, epoch, code in ((5, 0, 45), (1, -1, 47), (1, 1, 45)):
        with pytest.raises(KafkaError) as caught:
            append(log, idempotent(sequence, epoch=epoch))
        assert caught.value.code == code
    assert append(log, idempotent(1)) == 2
    assert append(log, idempotent(0, epoch=1)) == 3


def test_a_failed_write_does_not_use_up_a_sequence() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, idempotent(0))
    disk.fail_next("pwrite", errno.ENOSPC)
    with pytest.raises(KafkaError):
        append(log, idempotent(1))
    assert append(log, idempotent(1)) == 1


def test_a_marker_is_appended_without_a_sequence() -> None:
    log = new_log()
    append(log, idempotent(0))
    append(log, encode_marker(5, 0, True, 12, NOW))
    assert log.producers.producers[5].coordinator_epoch == 12
    assert append(log, idempotent(1)) == 2


# -- followers ---------------------------------------------------------------------------------


def test_a_follower_keeps_offsets_epochs_and_gaps() -> None:
    log = new_log()
    batches = [
        batch(2, base_offset=4, leader_epoch=1),
        batch(1, base_offset=9, leader_epoch=3, producer_id=5, epoch=0, sequence=7),
    ]
    data = b"".join(batches)
    log.append_replica(memoryview(data), 0, len(data), NOW)
    assert [base for base, _ in contents(log)] == [4, 9]
    assert log.end_offset == 10
    assert log.epochs.entries == ((1, 4), (3, 9))
    assert log.producers.producers[5].expected == 8
    with pytest.raises(ValueError, match="cannot follow 10"):
        log.append_replica(memoryview(data), 0, len(data), NOW)


def test_an_empty_follower_takes_the_batch_in_which_its_leaders_log_starts() -> None:
    """The leader's start offset may lie inside a batch; batches are only copied as a whole."""
    log = new_log()
    log.restart_at(7)
    data = bytes(batch(5, base_offset=4, leader_epoch=1)) + bytes(batch(1, base_offset=9))
    log.append_replica(memoryview(data), 0, len(data), NOW)
    log.delete_records_before(7)
    assert [base for base, _ in contents(log)] == [4, 9]
    assert (log.start_offset, log.end_offset) == (7, 10)
    older = bytes(batch(3, base_offset=8))
    with pytest.raises(ValueError, match="cannot follow 10"):
        log.append_replica(memoryview(older), 0, len(older), NOW)
    log.restart_at(20)
    with pytest.raises(ValueError, match="cannot follow 20"):
        log.append_replica(memoryview(older), 0, len(older), NOW)


# -- cutting -----------------------------------------------------------------------------------


def test_truncation_cuts_at_every_offset_and_the_log_goes_on() -> None:
    whole = contents(filled())
    for offset in range(60):
        log = filled()
        log.truncate_to(offset)
        kept = [item for item in whole if item[0] + record_count(item[1]) <= offset]
        assert contents(log) == kept
        assert log.end_offset <= offset
        end = log.end_offset
        assert append(log, batch(value=b"new")) == end
        assert len(contents(log)) == len(kept) + 1


def record_count(tail: bytes) -> int:
    return int(read_header(bytes(16) + tail[: HEADER_BYTES - 16], 0)[12])


def test_truncation_below_the_first_segment_begins_a_new_log_there() -> None:
    log = new_log()
    data = batch(base_offset=100)
    log.restart_at(100)
    log.append_replica(memoryview(data), 0, len(data), NOW)
    log.truncate_to(50)
    assert (log.start_offset, log.end_offset) == (50, 50)
    assert append(log, batch()) == 50


def test_truncation_forgets_what_producers_did_since() -> None:
    log = new_log()
    for n in range(60):
        append(log, idempotent(n))
    log.truncate_to(30)
    assert append(log, idempotent(29)) == 29
    assert append(log, idempotent(30)) == 30


def test_truncation_forgets_epochs_and_lowers_the_recovery_point() -> None:
    log = filled()
    append(log, batch(), epoch=4)
    log.flush()
    assert log.durability.recovery_point == log.end_offset
    log.truncate_to(10)
    assert log.durability.recovery_point == log.end_offset
    assert log.epochs.entries == ((0, 0),)


def test_truncation_survives_a_crash() -> None:
    for seed in range(10):
        disk = MemoryDisk(seed)
        directory = open_directory(disk)
        log = directory.create(*identity())
        for n in range(40):
            append(log, batch(value=b"%03d" % n))
        log.flush()
        directory.checkpoint()
        log.truncate_to(10)
        kept = contents(log)
        disk.crash()
        after = open_directory(disk).get(log.partition, SMALL)
        assert contents(after) == kept


def test_cutting_the_first_kept_batch_moves_the_start_before_it_is_saved() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(*identity())
    append(log, batch(4))
    log.flush()
    directory.checkpoint()
    log.delete_records_before(2)
    log.truncate_to(2)
    assert (log.start_offset, log.end_offset) == (0, 0)
    disk.crash()
    after = open_directory(disk).get(log.partition, SMALL)
    assert (after.start_offset, after.end_offset) == (0, 0)


def identity() -> tuple[TopicPartition, UUID, LogSettings]:
    return ORDERS, ORDERS_ID, SMALL


def test_a_start_that_was_cut_away_does_not_come_back_after_a_power_cut() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    append(log, batch(4, value=b"x" * 55))
    append(log, batch(4))
    log.delete_records_before(5)
    directory.checkpoint()
    log.truncate_to(7)
    assert (log.start_offset, log.end_offset) == (4, 4), "the batch went as a whole"
    disk.crash()
    directory = open_directory(disk)
    directory.recover(lambda _: SMALL)
    log = directory.get(ORDERS, SMALL)
    assert (log.start_offset, log.end_offset) == (4, 4)


def test_deleting_records_drops_whole_segments_and_moves_the_start() -> None:
    disk = MemoryDisk()
    log = filled(disk=disk)
    second = bases(log)[1]
    assert log.delete_records_before(second - 1) == second - 1
    assert bases(log)[0] == 0
    assert log.delete_records_before(second) == second
    assert bases(log)[0] == second
    assert log.delete_records_before(3) == second
    remove_dropped(log)
    names = disk.list_folder(log.folder)
    assert not [name for name in names if name.startswith(f"{0:020d}")]
    assert contents(log)[0][0] == second
    with pytest.raises(KafkaError) as caught:
        log.delete_records_before(log.end_offset + 1)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_all_records_may_be_deleted() -> None:
    log = filled()
    end = log.end_offset
    assert log.delete_records_before(end) == end
    assert contents(log) == []
    assert append(log, batch()) == end


# -- faults ------------------------------------------------------------------------------------


def test_short_writes_leave_no_torn_batch() -> None:
    disk = MemoryDisk()
    log = filled(3, disk)
    data = batch(value=b"short")
    disk.write_short(1, 20, 3)
    append(log, data)
    assert contents(log)[-1][1] == bytes(data[16:])


@pytest.mark.parametrize("written", [0, 1, 50])
def test_a_full_disk_leaves_the_log_as_it_was(written: int) -> None:
    disk = MemoryDisk()
    log = filled(3, disk)
    before, size, end = contents(log), log.segments.size_bytes, log.end_offset
    if written:
        disk.write_short(written)
    disk.fail_next("pwrite", errno.ENOSPC, skip=1 if written else 0)
    with pytest.raises(KafkaError) as caught:
        append(log, batch())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.segments.size_bytes, log.end_offset) == (size, end)
    assert len(disk.content(f"{log.folder}/{0:020d}.log")) == size
    assert contents(log) == before
    assert append(log, batch()) == end


@pytest.mark.parametrize(("call", "skip"), [("open", 0), ("open", 1), ("pwrite", 0), ("pwrite", 1)])
def test_a_full_disk_in_a_roll_leaves_the_log_as_it_was(call: str, skip: int) -> None:
    disk = MemoryDisk()
    log = filled(10, disk)
    before = contents(log)
    disk.fail_next(call, errno.ENOSPC, skip=skip)
    with pytest.raises(KafkaError) as caught:
        log.roll()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert contents(log) == before
    end = log.end_offset
    assert append(log, batch()) == end
    log.roll()
    assert append(log, batch()) == end + 1
    assert len(contents(log)) == 12


def test_a_log_that_cannot_be_cut_back_goes_offline() -> None:
    disk = MemoryDisk()
    log = filled(3, disk)
    disk.write_short(10)
    disk.fail_next("pwrite", errno.EIO, skip=1)
    disk.fail_next("ftruncate", errno.EIO)
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            append(log, batch())
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failed_sync_takes_the_log_offline_for_good() -> None:
    disk = MemoryDisk()
    log = filled(3, disk)
    disk.fail_next("fdatasync", errno.EIO)
    calls = [
        log.flush,
        log.flush,
        lambda: append(log, batch()),
        lambda: log.read(0, 100, log.end_offset, True),
        log.roll,
        lambda: log.truncate_to(1),
    ]
    for call in calls:
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.durability.recovery_point == 0
    assert log.availability.offline


def test_flush_returns_the_synced_offset() -> None:
    disk = MemoryDisk(3)
    log = filled(disk=disk)
    assert log.durability.recovery_point == 0
    assert log.flush() == log.end_offset == log.durability.recovery_point
    disk.calls.clear()
    append(log, batch())
    assert log.flush() == log.end_offset
    assert disk.calls == {"pwrite": 1, "fdatasync": 1}, "a group commit syncs one file"
    disk.calls.clear()
    log.flush()
    assert disk.calls == {}


class MeddlingDisk(MemoryDisk):
    """Lets the owner of the log do something in the midst of a worker's sync."""

    meddle: Callable[[], object] | None = None

    def fdatasync(self, fd: int, /) -> None:
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            meddle()
        super().fdatasync(fd)


def test_a_cut_during_a_flush_is_not_mistaken_for_synced_records() -> None:
    disk = MeddlingDisk()
    log = filled(disk=disk)

    def cut_and_go_on() -> None:
        log.truncate_to(10)
        for n in range(30):
            append(log, batch(value=b"new %d" % n))

    disk.meddle = cut_and_go_on
    assert log.flush() <= 10
    assert log.availability.offline is None
    assert log.flush() == log.end_offset
    expected = contents(log)
    disk.crash()
    assert contents(open_directory(disk).get(log.partition, SMALL)) == expected


def test_segments_deleted_during_a_flush_are_not_missed() -> None:
    disk = MeddlingDisk()
    log = filled(disk=disk)

    def delete() -> None:
        log.delete_records_before(log.end_offset)
        remove_dropped(log)

    disk.meddle = delete
    assert log.flush() == log.end_offset
    assert log.availability.offline is None


def test_a_log_deleted_during_a_flush_takes_nothing_offline() -> None:
    disk = MeddlingDisk()
    directory = open_directory(disk)
    log = directory.create(*identity())
    append(log, batch())
    disk.meddle = lambda: directory.delete(log.partition)()
    with pytest.raises(KafkaError):
        log.flush()
    assert directory.offline is None


def test_flushing_in_a_worker_beside_appends_and_rolls_loses_nothing(tmp_path: Path) -> None:
    directory = LogDirectory(str(tmp_path), RealDisk(), ManualClock(NOW))
    directory.open()
    log = directory.create(*identity())
    with ThreadPoolExecutor(1) as worker:
        pending = worker.submit(log.flush)
        for n in range(400):
            append(log, batch(value=b"%d" % n))
            if pending.done():
                assert pending.result() <= log.end_offset
                pending = worker.submit(log.flush)
        pending.result()
    assert log.flush() == log.end_offset == 400
    assert len(contents(log)) == 400


def test_a_closed_log_serves_no_more() -> None:
    log = filled()
    log.close()
    with pytest.raises(KafkaError) as caught:
        append(log, batch())
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
