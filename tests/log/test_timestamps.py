import logging

import pytest

from headrace.disk.memory import MemoryDisk
from headrace.log.compaction.plan import plan
from headrace.log.log import Log
from headrace.log.timestamps import TimestampOffset
from headrace.settings import LogSettings
from headrace.wire.batch import read_header, stamp_append_time
from headrace.wire.records import Record, encode_batch
from tests.log.samples import NOW, ORDERS, ORDERS_ID, SMALL, append, batch, new_log, open_directory


def test_the_first_record_at_or_after_a_time_is_found_in_every_segment() -> None:
    log = new_log()
    for n in range(30):
        append(log, batch(3, timestamp=NOW + 100 * n), epoch=n // 10)
    assert len(log.segments) > 2
    for n in range(30):
        for i in range(3):
            found = log.find_timestamp(NOW + 100 * n + i)
            assert found == TimestampOffset(NOW + 100 * n + i, 3 * n + i, n // 10)
        following = log.find_timestamp(NOW + 100 * n + 3)
        assert following == (
            TimestampOffset(NOW + 100 * n + 100, 3 * n + 3, (n + 1) // 10) if n < 29 else None
        )


def test_times_out_of_order_do_not_hide_a_record() -> None:
    log = new_log()
    times = [50, 10, 70, 20, 90, 60, 30, 80, 5, 100, 40] * 5
    for t in times:
        append(log, batch(timestamp=NOW + t))
    for t in range(0, 110, 5):
        first = next((i for i, x in enumerate(times) if x >= t), None)
        found = log.find_timestamp(NOW + t)
        assert (found.offset if found else None) == first


def test_records_before_the_log_start_are_not_found() -> None:
    log = new_log()
    append(log, batch(5, timestamp=NOW))
    log.delete_records_before(2)
    assert log.find_timestamp(NOW) == TimestampOffset(NOW + 2, 2, 0)


def test_the_record_with_the_largest_time_is_found() -> None:
    log = new_log()
    assert log.max_timestamp() is None
    for n in range(30):
        append(log, batch(2, timestamp=NOW + (1000 if n == 7 else n)))
    assert log.max_timestamp() == TimestampOffset(NOW + 1001, 15, 0)


def test_a_batch_with_append_time_has_one_time_for_all_records() -> None:
    log = new_log()
    data = batch(3, timestamp=5)
    stamp_append_time(data, memoryview(data), 0, len(data), NOW)
    assert read_header(data, 0)[8] == NOW
    append(log, data)
    assert log.find_timestamp(NOW - 1) == TimestampOffset(NOW, 0, 0)
    assert log.max_timestamp() == TimestampOffset(NOW, 0, 0)


def test_compressed_batches_are_looked_into() -> None:
    log = new_log()
    records = [Record(0, NOW + i, None, b"x" * 50) for i in range(10)]
    append(log, encode_batch(records, codec=1))
    assert log.find_timestamp(NOW + 7) == TimestampOffset(NOW + 7, 7, 0)


def test_an_undecodable_batch_is_answered_by_its_beginning() -> None:
    log = new_log()
    append(log, batch(timestamp=NOW))
    data = batch(4, timestamp=NOW + 10, attributes=1)
    data[22] |= 1  # says gzip, is not
    append(log, data)
    assert log.find_timestamp(NOW + 12) == TimestampOffset(NOW + 13, 1, 0)


def without_timestamps(disk: MemoryDisk, settings: LogSettings = SMALL) -> Log:
    log = new_log(disk, settings)
    for _ in range(30):
        append(log, encode_batch([Record(0, -1, b"k", b"x" * 50)]))
    return log


def test_the_first_record_has_the_largest_timestamp_if_none_has_one() -> None:
    log = without_timestamps(MemoryDisk())
    assert len(log.segments) > 2
    assert log.max_timestamp() == TimestampOffset(-1, 0, 0)
    assert log.find_timestamp(0) is None


def test_segments_without_timestamps_are_as_old_as_their_files(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    log = without_timestamps(disk)
    with caplog.at_level(logging.WARNING):
        for segment in log.segments:
            segment.release()
            assert segment.newest_ms() >= NOW
    assert not caplog.records, "an empty time index is right and is not rebuilt"


def test_segments_without_timestamps_are_too_young_to_be_compacted() -> None:
    log = without_timestamps(MemoryDisk())
    now_ms = log.segments[0].newest_ms()
    settings = LogSettings(min_compaction_lag_ms=60_000)
    assert plan(log.segments, 0, log.end_offset, settings, now_ms).end == 0
    later = plan(log.segments, 0, log.end_offset, settings, now_ms + 3_600_000)
    assert later.end == log.segments[-1].base_offset


def test_a_log_without_timestamps_is_opened_without_a_scan_after_a_clean_stop() -> None:
    disk = MemoryDisk()
    settings = LogSettings(segment_bytes=1 << 20, index_interval_bytes=150)
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, settings)
    for _ in range(2000):
        append(log, encode_batch([Record(0, -1, b"k", b"x" * 500)]))
    directory.close()
    directory = open_directory(disk)
    disk.calls.clear()
    assert directory.get(ORDERS, settings).end_offset == 2000
    assert disk.calls["pread"] <= 6
