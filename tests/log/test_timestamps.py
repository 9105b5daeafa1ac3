from headrace.log.timestamps import TimestampOffset
from headrace.wire.batch import read_header, stamp_append_time
from headrace.wire.records import Record, encode_batch
from tests.log.samples import NOW, append, batch, new_log


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
