"""Reading a segment in chunks of whole batches, and the records of many batches as columns."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headrace.disk import READ_ONLY, Disk
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.batch import CODEC_MASK, HEADER, HEADER_BYTES, MAGIC, OVERHEAD, Header
from headrace.wire.columns import Columns, Numbers, add_starts
from headrace.wire.compression import decompress

CHUNK_BYTES = 4 << 20
# What compressed batches may grow to before those that are there are worked on.
_UNPACKED_BYTES = 8 << 20

_unpack_header = HEADER.unpack_from


@dataclass(frozen=True, slots=True)
class Batch:
    """A whole batch in a chunk's buffer."""

    at: int
    end: int
    header: Header

    @property
    def last_offset(self) -> int:
        return self.header[0] + self.header[6]


def chunks(
    disk: Disk, path: str, size: int, position: int = 0
) -> Iterator[tuple[bytes, list[Batch]]]:
    """The batches of a segment file from one's position on; CORRUPT_MESSAGE if there is none."""
    fd = disk.open(path, READ_ONLY)
    try:
        wanted = CHUNK_BYTES
        while position < size:
            buffer = disk.pread(fd, min(wanted, size - position), position)
            batches, at = [], 0
            wanted = CHUNK_BYTES
            while len(buffer) - at >= HEADER_BYTES:
                header: Header = _unpack_header(buffer, at)
                end = at + OVERHEAD + header[1]
                if header[3] != MAGIC or header[1] < HEADER_BYTES - OVERHEAD:
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


class Records:
    """The records of some batches, none of them empty."""

    __slots__ = ("batches", "buffer", "columns", "firsts", "offsets", "which")

    def __init__(
        self, batches: list[Batch], buffer: bytes | bytearray, starts: "array[int]"
    ) -> None:
        self.batches = batches
        self.buffer = buffer
        self.columns = Columns(buffer, starts)
        counts = np.array([batch.header[12] for batch in batches], np.int64)
        self.which: Numbers = np.repeat(np.arange(len(batches)), counts)
        """The batch of each record."""
        self.firsts: Numbers = np.cumsum(counts) - counts
        """The first record of each batch."""
        offsets = np.array([batch.header[0] for batch in batches], np.int64)[self.which]
        offsets += self.columns.offset_deltas
        self.offsets: Numbers = offsets


def decoded(
    buffer: bytes, batches: Sequence[Batch], max_decompressed_bytes: int
) -> Iterator[Records]:
    """The records of these batches of one chunk, in several parts if they unpack to much."""
    if not any(batch.header[5] & CODEC_MASK for batch in batches):
        if batches:
            starts = array("q")
            for batch in batches:
                add_starts(starts, buffer, batch.at + HEADER_BYTES, batch.header[12], batch.end)
            yield Records([*batches], buffer, starts)
        return
    unpacked, starts, part = bytearray(), array("q"), list[Batch]()
    view = memoryview(buffer)
    for batch in batches:
        packed = view[batch.at + HEADER_BYTES : batch.end]
        codec, begin = batch.header[5] & CODEC_MASK, len(unpacked)
        unpacked += decompress(codec, packed, max_decompressed_bytes) if codec else packed
        add_starts(starts, unpacked, begin, batch.header[12], len(unpacked))
        part.append(batch)
        if len(unpacked) >= _UNPACKED_BYTES:
            yield Records(part, unpacked, starts)
            unpacked, starts, part = bytearray(), array("q"), []
    if part:
        yield Records(part, unpacked, starts)
