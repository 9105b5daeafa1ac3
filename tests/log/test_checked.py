"""Damaged bytes of a closed log are never returned, and the number of open files is bounded."""

import errno
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from headrace.log.ranges import Ranges
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import OVERHEAD, read_header
from tests.log.samples import (
    ORDERS,
    ORDERS_ID,
    SMALL,
    append,
    batch,
    new_log,
    open_directory,
    reopened,
)

LOG = "/data/orders-0/00000000000000000000.log"


def written(batches: int = 12) -> MemoryDisk:
    """A disk with a log that was closed cleanly; its first segments are sealed."""
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    for n in range(batches):
        append(log, batch(2, value=b"%03d" % n))
    directory.close()
    return disk


def served(log: Log, max_bytes: int = 300) -> dict[int, bytes]:
    """Every batch that a reader can get, who asks for every offset."""
    found: dict[int, bytes] = {}
    for offset in range(log.end_offset):
        try:
            piece = log.read(offset, max_bytes, log.end_offset, True)
        except KafkaError as error:
            if error.code != ErrorCode.CORRUPT_MESSAGE:
                raise
            continue
        if piece is None:
            continue
        data, at = piece.read(), 0
        while at < len(data):
            header = read_header(data, at)
            size = header.size_bytes
            found[header.base_offset] = data[at : at + size]
            at += size
    return found


def test_no_flipped_byte_of_an_old_batch_is_ever_served() -> None:
    disk = written()
    good = served(reopened(disk))
    assert len(good) == 12
    content = disk.content(LOG)
    sizes = [len(data) for _, data in sorted(good.items())]
    first, second = sizes[0], sizes[0] + sizes[1]
    for position in range(first, second):
        disk.kill()
        disk.corrupt(LOG, flipped(content, position))
        log = open_directory(disk).get(ORDERS, SMALL)
        in_epoch = first + 12 <= position < first + 16
        for offset, data in served(log).items():
            if in_epoch and offset == 2:
                continue  # the leader epoch is under no checksum, and no reader relies on it
            assert good[offset] == data, f"byte {position - first} of the batch"
        assert set(served(log)) >= {*range(8, 24, 2)}, "from the next index entry on all are served"
        assert 0 in served(log) or position < first + 8, "a wrong offset casts doubt on both"


def flipped(content: bytes, position: int) -> bytes:
    spoilt = bytearray(content)
    spoilt[position] ^= 1 << (position % 8)
    return bytes(spoilt)


def test_what_was_appended_since_the_start_is_not_read_again() -> None:
    disk = written()
    log = reopened(disk)
    assert log.read(log.end_offset, 1000, log.end_offset, True) is None
    append(log, batch(3))
    disk.calls.clear()
    assert log.read(log.end_offset - 3, 1000, log.end_offset, True) is not None
    assert disk.calls == {}


def test_old_bytes_are_checked_once_while_their_file_is_open() -> None:
    disk = written()
    log = reopened(disk)
    served(log)
    disk.calls.clear()
    for _ in range(3):
        assert log.read(0, 200, log.end_offset, True) is not None
    once = disk.calls.get("pread", 0)
    assert once <= 6, "finding the place, and no more"
    log.segments[0].release()
    disk.calls.clear()
    assert log.read(0, 200, log.end_offset, True) is not None
    assert disk.calls["pread"] > once / 3, "after its file was closed it is read again"


def test_damage_behind_the_first_batch_ends_the_slice_before_it() -> None:
    disk = written()
    content = disk.content(LOG)
    first = read_header(content, 0)[1] + OVERHEAD
    disk.corrupt(LOG, flipped(content, first + 70))
    piece = reopened(disk).read(0, 10_000, 24, True)
    assert piece is not None
    assert piece.length == first


def test_after_a_crash_what_was_scanned_needs_no_second_check() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, batch(2))
    disk.kill()
    directory = open_directory(disk)
    directory.recover(lambda _: SMALL)
    assert directory.get(ORDERS, SMALL).segments[0].unchecked == 0


def test_a_disk_that_cannot_be_read_goes_offline() -> None:
    disk = written()
    directory = open_directory(disk)
    log = directory.get(ORDERS, SMALL)
    disk.fail_next("pread .log", errno.EIO)
    with pytest.raises(KafkaError) as caught:
        log.read(0, 100, log.end_offset, True)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert directory.offline


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=20))
def test_ranges_know_what_was_added_and_nothing_else(added: list[tuple[int, int]]) -> None:
    ranges, covered = Ranges(), set[int]()
    for start, length in added:
        ranges.add(start, start + length)
        covered.update(range(start, start + length))
    for position in range(55):
        reach = ranges.reach(position)
        assert set(range(position, reach)) <= covered
        assert reach not in covered


def test_a_small_bound_of_open_files_changes_nothing_but_the_number_of_files() -> None:
    disk = MemoryDisk()
    disk.open_files.limit = 3
    log = new_log(disk)
    random = Random(7)
    for n in range(120):
        append(log, batch(2, value=b"%03d" % n))
        offset = random.randrange(log.end_offset)
        piece = log.read(offset, 400, log.end_offset, True)
        assert piece is not None
        header = read_header(piece.read(), 0)
        assert header.base_offset <= offset <= header.last_offset
        del piece
        log.find_timestamp(random.randrange(10**12))
        assert len(disk._memory.files) <= 3 + 1, "and the folder's lock"
    assert len(log.segments) > 10
    log.flush()
    assert len(served(log)) == 120


def test_a_slice_keeps_its_file_open_until_it_is_sent() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    for n in range(20):
        append(log, batch(2, value=b"%03d" % n))
    piece = log.read(0, 400, log.end_offset, True)
    assert piece is not None
    before = piece.read()
    log.segments[0].release()
    assert piece.read() == before


def test_a_descriptor_that_was_closed_for_others_is_never_written_to() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    disk.open_files.limit = 1
    logs = [
        directory.create(TopicPartition("orders", n), ORDERS_ID, LogSettings()) for n in range(4)
    ]
    for n in range(40):
        append(logs[n % 4], batch(1, value=b"%d" % (n % 4)))
    for n, log in enumerate(logs):
        values = [data[-2:-1] for data in served(log, 10_000).values()]
        assert values == [b"%d" % n] * 10
