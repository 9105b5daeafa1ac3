import gc

import pytest

from headrace.disk import write_file
from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.log.indexes import OffsetEntries, TimeEntries
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.log.segments import LogSegments
from tests.log.samples import NOW, append, batch, new_log


def sealed() -> tuple[MemoryDisk, Log, Segment]:
    """A log whose first segment is sealed, with batches of 1, 2, 3, 1, … records."""
    disk = MemoryDisk()
    log = new_log(disk)
    for n in range(20):
        append(log, batch(1 + n % 3, timestamp=NOW + 10 * n))
    assert len(log.segments) > 2
    return disk, log, log.segments[0]


def answers(segment: Segment, end: int) -> list[object]:
    return [
        [segment.locate(offset)[0] for offset in range(end + 2)],
        [segment.locate_time(NOW + t) for t in range(-5, 250, 5)],
        segment.latest_time(),
    ]


def check_boundaries(segment: Segment) -> None:
    """Every boundary is one, with its offset, and lies within an index interval of the limit."""
    starts = {position: header.base_offset for position, header in segment.walk(0)}
    starts[segment.size] = -1
    largest = max(header.size_bytes for _, header in segment.walk(0))
    for limit in range(0, segment.size + 10, 7):
        position, offset = segment.boundary(0, segment.base_offset, limit)
        assert starts[position] == offset
        assert position <= limit
        assert position >= min(limit, segment.size) - segment.indexes.interval - largest


def test_a_read_ends_where_a_batch_does_in_both_kinds_of_segment() -> None:
    _, log, segment = sealed()
    check_boundaries(segment)
    check_boundaries(log.segments[-1])


def test_the_files_hold_what_kafka_expects() -> None:
    disk, _, segment = sealed()
    offsets = OffsetEntries(disk.content(segment.files.path(".index")))
    times = TimeEntries(disk.content(segment.files.path(".timeindex")))
    batches = dict(segment.walk(0))
    previous = 0
    expected = []
    for position, header in batches.items():
        if position - previous > 150:
            expected.append((header.last_offset - segment.base_offset) << 32 | position)
            previous = position
    assert list(offsets) == expected
    assert len(expected) >= 2
    assert [t for t, _ in times] == sorted({t for t, _ in times})
    last = list(batches.values())[-1]
    assert list(times)[-1] == (last[8], last[0] + last[6] - segment.base_offset)


def test_the_active_segment_answers_like_the_sealed_one() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    while len(log.segments) == 1:
        before = log.segments[0]
        end = log.end_offset
        results = answers(before, end)
        append(log, batch(2, timestamp=NOW + 10 * end))
    assert before.sealed
    assert answers(before, end) == results


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_rebuilt(suffix: str) -> None:
    disk, log, segment = sealed()
    expected = answers(sealed()[2], log.end_offset)
    content = disk.content(segment.files.path(suffix))
    disk.remove(segment.files.path(suffix))
    assert answers(segment, log.end_offset) == expected
    assert disk.content(segment.files.path(suffix)) == content


def test_every_flipped_byte_of_the_offset_index_changes_no_answer() -> None:
    disk, log, segment = sealed()
    expected = answers(segment, log.end_offset)
    content = disk.content(segment.files.path(".index"))
    for at in range(len(content)):
        for bit in (0x01, 0x80):
            damaged = content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
            disk.corrupt(segment.files.path(".index"), damaged)
            segment.seal()
            assert answers(segment, log.end_offset) == expected, (at, bit)


def test_a_time_index_entry_that_lies_is_noticed() -> None:
    disk, _, segment = sealed()
    content = disk.content(segment.files.path(".timeindex"))
    expected = [segment.locate_time(NOW + t) for t in range(0, 100, 5)]
    # The second entry claims to be as old as the first.
    damaged = content[:12] + content[:8] + content[20:]
    disk.corrupt(segment.files.path(".timeindex"), damaged)
    segment.indexes.reset()
    for t, position in zip(range(0, 100, 5), expected, strict=True):
        assert segment.locate_time(NOW + t) <= position


def test_bytes_that_are_no_batch_are_never_handed_out() -> None:
    disk, _, segment = sealed()
    path = segment.files.path(".log")
    content = bytearray(disk.content(path))
    content[16] = 9  # the first batch's magic
    disk.corrupt(path, bytes(content))
    with pytest.raises(KafkaError) as caught:
        LogSegments([segment]).locate(0)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert "offsets 0 to 0" in caught.value.message


def test_an_open_file_closes_with_its_last_reference() -> None:
    disk, _, segment = sealed()
    fd = segment.opened().fd
    holder = segment.opened()
    segment.remove_files()
    assert len(disk.pread(fd, 8, 0)) == 8
    del holder
    gc.collect()
    with pytest.raises(OSError):
        disk.pread(fd, 8, 0)


def test_preallocated_index_files_of_the_active_segment_are_understood() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    for n in range(5):
        append(log, batch(1, timestamp=NOW + n))
    segment = log.segments[-1]
    segment.indexes.write(sync=False)
    for suffix in (".index", ".timeindex"):
        content = disk.content(segment.files.path(suffix))
        write_file(disk, segment.files.path(suffix), content + bytes(2400), sync=False)
    again = Segment(disk, segment.files.folder, 0, segment.size, 150)
    again.indexes.load(again.size)
    assert again.indexes.offsets == segment.indexes.offsets
    assert again.latest_time() == segment.latest_time()
    assert answers(again, 5) == answers(segment, 5)
