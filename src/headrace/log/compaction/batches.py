"""Reading a segment in chunks of whole batches, and the records of many batches as columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.disk import READ_ONLY, Disk
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.batch import CODEC_MASK, HEADER_BYTES, MAGIC, OVERHEAD, Header, read_header
from headrace.wire.batch_columns import check_chain, record_starts
from headrace.wire.columns import Columns, Numbers
from headrace.wire.compression import decompress
from headrace.wire.records import MIN_RECORD_BYTES

CHUNK_BYTES = 8 << 20
# The decompressed size of batches that are processed together.
_UNPACKED_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """A whole batch in a chunk's buffer."""

    at: int
    end: int
    header: Header

    @property
    def last_offset(self) -> int:
        return self.header.last_offset


def chunks(
    disk: Disk, path: str, size: int, position: int = 0
) -> Iterator[tuple[bytes, list[Batch]]]:
    """The batches of a segment file from `position` on; CORRUPT_MESSAGE if one is malformed."""
    fd = disk.open(path, READ_ONLY)
    try:
        wanted = CHUNK_BYTES
        while position < size:
            buffer = disk.pread(fd, min(wanted, size - position), position)
            batches, at = [], 0
            wanted = CHUNK_BYTES
            while len(buffer) - at >= HEADER_BYTES:
                header = read_header(buffer, at)
                end = at + header.size_bytes
                if header.magic != MAGIC or header.batch_length < HEADER_BYTES - OVERHEAD:
                    raise _corrupt(path, position + at)
                if end > len(buffer):
                    wanted = max(wanted, end - at)
                    break
                batches.append(Batch(at, end, header))
                at = end
            if not batches and (wanted <= len(buffer) or position + wanted > size):
                raise _corrupt(path, position)
            if batches:
                yield buffer, batches
            position += at
    finally:
        disk.close(fd)


def _corrupt(path: str, position: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{path} holds no whole record batch at position {position}"
    )


def _too_many() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, "a batch has more records than bytes")


class BatchRecords:
    """The records of some batches, none of them empty."""

    __slots__ = ("batches", "buffer", "columns", "firsts", "offsets", "which")

    def __init__(
        self,
        batches: list[Batch],
        buffer: bytes | bytearray,
        begins: Sequence[int],
        ends: Sequence[int],
    ) -> None:
        """`begins` and `ends` are the positions of the records of each batch; INVALID_RECORD."""
        self.batches = batches
        self.buffer = buffer
        counts = np.array([batch.header.record_count for batch in batches], np.int64)
        begin_at, end_at = np.array(begins, np.int64), np.array(ends, np.int64)
        octets = np.frombuffer(buffer, np.uint8)
        if (counts * MIN_RECORD_BYTES > end_at - begin_at).any():
            raise _too_many()
        try:
            starts = record_starts(buffer, octets, begin_at, end_at, counts)
        except IndexError:
            raise _too_many() from None
        self.columns = Columns(buffer, starts)
        check_chain(starts, self.columns.ends, counts, end_at)
        self.which: Numbers = np.repeat(np.arange(len(batches)), counts)
        """The batch of each record."""
        self.firsts: Numbers = np.cumsum(counts) - counts
        """The first record of each batch."""
        offsets = np.array([batch.header.base_offset for batch in batches], np.int64)[self.which]
        offsets += self.columns.offset_deltas
        self.offsets: Numbers = offsets


def decoded(
    buffer: bytes, batches: Sequence[Batch], max_decompressed_bytes: int
) -> Iterator[BatchRecords]:
    """The records of these batches of one chunk, in several parts if they are large."""
    if not any(batch.header.attributes & CODEC_MASK for batch in batches):
        if batches:
            begins = [batch.at + HEADER_BYTES for batch in batches]
            yield BatchRecords([*batches], buffer, begins, [batch.end for batch in batches])
        return
    unpacked, begins, ends, part = bytearray(), list[int](), list[int](), list[Batch]()
    view = memoryview(buffer)
    for batch in batches:
        packed = view[batch.at + HEADER_BYTES : batch.end]
        codec = batch.header.attributes & CODEC_MASK
        begins.append(len(unpacked))
        unpacked += decompress(codec, packed, max_decompressed_bytes) if codec else packed
        ends.append(len(unpacked))
        part.append(batch)
        if len(unpacked) >= _UNPACKED_BYTES:
            yield BatchRecords(part, unpacked, begins, ends)
            unpacked, begins, ends, part = bytearray(), [], [], []
    if part:
        yield BatchRecords(part, unpacked, begins, ends)
