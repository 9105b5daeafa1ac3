"""A flipped bit in any file that a log opens: an error code for a client at most, never a crash.

Every bit of batch headers and every byte of the files beside the batches is damaged in turn, after
a clean stop and after a kill. What can still be read is what was written, at its own offset.
"""

import struct
from collections.abc import Iterator

import pytest

from headrace.disk import write_file
from headrace.disk.memory import MemoryDisk
from headrace.errors import KafkaError
from headrace.log.log import Log
from headrace.settings import LogSettings
from headrace.wire.batch import HEADER_BYTES, OVERHEAD, TRANSACTIONAL, read_header
from headrace.wire.markers import encode_marker
from tests.log.samples import (
    NOW,
    ORDERS,
    ORDERS_ID,
    ROOT,
    SMALL,
    append,
    batch,
    open_directory,
)

FOLDER = f"{ROOT}/{ORDERS}"
SETTINGS = {
    "delete": SMALL,
    "compact": LogSettings(
        segment_bytes=512, index_interval_bytes=150, cleanup_policy=frozenset({"compact"})
    ),
}
# Position, format and extreme values of each field of a batch header.
FIELDS = [
    (0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (17, ">i"), (21, ">h"), (23, ">i"), (27, ">q"),
    (35, ">q"), (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i"),
]  # fmt: skip

Written = dict[int, bytes]


def written(settings: LogSettings, *, stop: bool) -> tuple[MemoryDisk, Written]:
    """A log of several segments with producers and transactions; its batches by base offset."""
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, settings)
    for n in range(14):
        data = batch(1 + n % 2, timestamp=NOW + n, producer_id=9, epoch=0, sequence=n + n // 2)
        append(log, data, epoch=n // 6)
        if n % 4 == 0:
            values = batch(
                timestamp=NOW + n, producer_id=4, epoch=0, sequence=n // 4,
                attributes=TRANSACTIONAL,
            )  # fmt: skip
            append(log, values, epoch=n // 6)
            append(log, encode_marker(4, 0, n % 8 == 0, 1, NOW + n), epoch=n // 6)
        if n == 7:
            log.flush()
            directory.checkpoint()
            directory.checkpoints.write_high_watermarks({ORDERS: log.end_offset})
    found = dict(batches(log))
    if stop:
        directory.close()
    disk.kill()
    return disk, found


def batches(log: Log) -> Iterator[tuple[int, bytes]]:
    """What a consumer reads that goes on behind every offset that is refused."""
    offset = log.start_offset
    assert log.end_offset < 100, f"the log ends at {log.end_offset}"
    while offset < log.end_offset:
        try:
            piece = log.read(offset, 1 << 20, log.end_offset, True)
        except KafkaError:
            offset += 1
            continue
        if piece is None:
            return
        data, at = piece.read(), 0
        while at < len(data):
            header = read_header(data, at)
            size = header.size_bytes
            yield header.base_offset, data[at + 16 : at + size]
            offset = max(offset, header.next_offset)
            at += size


def use(log: Log) -> None:
    """All that clients and the broker ask of a log; a KafkaError is an answer too."""
    for work in (
        lambda: log.find_timestamp(NOW + 5),
        log.max_timestamp,
        lambda: log.transactions.between(0, log.end_offset),
        lambda: log.last_stable_offset(log.end_offset),
        lambda: [segment.newest_ms() for segment in log.segments],
        lambda: log.epochs.end_offset(1, log.end_offset),
    ):
        try:
            work()
        except KafkaError:
            continue


def check(disk: MemoryDisk, settings: LogSettings, expected: Written, damaged: int) -> None:
    """The next broker opens the log, serves all that is whole and nothing else, and goes on.

    `damaged` is the base offset of the batch that is not.
    """
    directory = open_directory(disk)
    log = directory.get(ORDERS, settings)
    found = dict(batches(log))
    for offset, data in found.items():
        assert expected.get(offset) == data, f"offset {offset} was never written so"
    assert {*expected} - {*found} <= {damaged}, "whole batches are lost with the damaged one"
    use(log)
    end = log.end_offset
    assert append(log, batch(2, timestamp=NOW + 99)) == end
    assert dict(batches(log))[end] == bytes(batch(2, timestamp=NOW + 99))[16:]
    directory.close()
    assert open_directory(disk).get(ORDERS, settings).end_offset == end + 2


def positions(content: bytes) -> list[int]:
    """Where each batch of a log file begins."""
    found, at = [], 0
    while at < len(content):
        found.append(at)
        at += read_header(content, at)[1] + OVERHEAD
    return found


def chosen_batches(disk: MemoryDisk) -> Iterator[tuple[str, int, int]]:
    """File, position and base offset of some batches: old ones, and the active segment's."""
    logs = sorted(name for name in disk.list_folder(FOLDER) if name.endswith(".log"))
    assert len(logs) > 3
    for name, number in ((logs[0], 0), (logs[1], 1), (logs[-1], 0), (logs[-1], -1)):
        path = f"{FOLDER}/{name}"
        content = disk.content(path)
        position = positions(content)[number]
        yield path, position, read_header(content, position)[0]


def restored(disk: MemoryDisk) -> dict[str, bytes]:
    """All files, to begin again from."""
    return {
        f"{folder}/{name}": disk.content(f"{folder}/{name}")
        for folder in (ROOT, FOLDER)
        for name in disk.list_folder(folder)
        if not disk.is_folder(f"{folder}/{name}")
    }


def fresh(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_folders(FOLDER)
    for path, content in files.items():
        write_file(disk, path, content, sync=True)
    return disk


def unprovable(policy: str, stop: bool, path: str, position: int, files: dict[str, bytes]) -> bool:
    """Whether nothing tells the true offset of a batch: nothing follows it, and gaps are usual."""
    newest = path == max(name for name in files if name.endswith(".log"))
    return policy == "compact" and not stop and newest and position == positions(files[path])[-1]


@pytest.mark.slow
@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "killed"])
def test_a_flipped_bit_in_a_batch_header_never_keeps_a_log_from_opening(stop: bool) -> None:
    disk, expected = written(SMALL, stop=stop)
    files = restored(disk)
    for path, position, base in chosen_batches(disk):
        for bit in range(HEADER_BYTES * 8):
            content = bytearray(files[path])
            content[position + bit // 8] ^= 1 << bit % 8
            told = f"bit {bit % 8} of byte {bit // 8} of the batch at {position} of {path}"
            spoiled(files | {path: bytes(content)}, SMALL, expected, base, told)


@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("policy", SETTINGS)
def test_an_extreme_value_in_a_batch_header_never_keeps_a_log_from_opening(
    policy: str, stop: bool
) -> None:
    disk, expected = written(SETTINGS[policy], stop=stop)
    files = restored(disk)
    for path, position, base in chosen_batches(disk):
        for at, kind in FIELDS:
            largest = (1 << struct.calcsize(kind) * 8 - 1) - 1
            if at == 0 and unprovable(policy, stop, path, position, files):
                continue
            for value in (0, 1, -1, largest, -largest - 1, largest // 2):
                content = bytearray(files[path])
                struct.pack_into(kind, content, position + at, value)
                told = f"{value} at byte {at} of the batch at {position} of {path}"
                spoiled(files | {path: bytes(content)}, SETTINGS[policy], expected, base, told)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "killed"])
def test_a_damaged_byte_beside_the_batches_never_keeps_a_log_from_opening(stop: bool) -> None:
    disk, expected = written(SMALL, stop=stop)
    files = restored(disk)
    beside = [path for path in files if not path.endswith((".log", ".lock"))]
    assert len(beside) > 10
    for path in beside:
        for at in range(len(files[path])):
            for mask in (0x01, 0xFF):
                content = bytearray(files[path])
                content[at] ^= mask
                told = f"byte {at} of {path} with {mask:#x}"
                spoiled(files | {path: bytes(content)}, SMALL, expected, -1, told)


def spoiled(
    files: dict[str, bytes], settings: LogSettings, expected: Written, damaged: int, told: str
) -> None:
    try:
        check(fresh(files), settings, expected, damaged)
    except Exception as error:
        raise AssertionError(f"{told}: {error!r}") from error
