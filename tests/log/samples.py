"""Batches and logs to test with."""

import uuid

from headrace.clock import ManualClock
from headrace.disk import Disk
from headrace.disk.memory import MemoryDisk
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import HEADER_BYTES, read_header
from headrace.wire.records import Record, encode_batch

ORDERS = TopicPartition("orders", 0)
ORDERS_ID = uuid.UUID("0b5cf7ab-7c0b-4e47-9f5f-2f4b8c1d6e3a")
NOW = 1_700_000_000_000
ROOT = "/data"
# Small enough that a handful of batches needs index entries.
SMALL = LogSettings(segment_bytes=512, index_interval_bytes=150)


def batch(
    count: int = 1,
    *,
    timestamp: int = NOW,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    value: bytes = b"value",
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    records = [Record(i, timestamp + i, b"key", value) for i in range(count)]
    return encode_batch(
        records,
        base_offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
        epoch=leader_epoch,
    )


def append(log: Log, data: bytearray, epoch: int = 0, now_ms: int = NOW) -> int:
    """Append one batch as Produce does."""
    return log.append(data, memoryview(data), 0, len(data), read_header(data, 0), epoch, now_ms)


def open_directory(disk: Disk, clock: ManualClock | None = None) -> LogDirectory:
    directory = LogDirectory(ROOT, disk, clock or ManualClock(NOW))
    directory.open()
    return directory


def new_log(disk: Disk | None = None, settings: LogSettings = SMALL) -> Log:
    return open_directory(disk or MemoryDisk()).create(ORDERS, ORDERS_ID, settings)


def reopened(disk: Disk, settings: LogSettings = SMALL, *, replicated: bool = False) -> Log:
    """The log as the next broker finds it."""
    return open_directory(disk).get(ORDERS, settings, replicated)


def remove_dropped(log: Log) -> None:
    """Remove the files of what was deleted, as a worker does some time later."""
    assert isinstance(log.owner, LogDirectory)
    log.owner.remove_dropped(finish=True)


def contents(log: Log, max_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    """(base offset, bytes behind offset and epoch) of every batch that a consumer can read."""
    found = []
    offset = log.start_offset
    while (piece := log.read(offset, max_bytes, log.end_offset, True)) is not None:
        data = log.disk.pread(piece.file.fd, piece.length, piece.position)
        assert len(data) == piece.length
        at = 0
        while at < len(data):
            assert at + HEADER_BYTES <= len(data), "a slice ends on a batch boundary"
            header = read_header(data, at)
            size = header.size_bytes
            assert at + size <= len(data), "a slice ends on a batch boundary"
            found.append((header.base_offset, data[at + 16 : at + size]))
            offset = header.next_offset
            at += size
    return found
