"""The two sparse indexes of a segment: from offsets to positions, and from times to offsets.

Offset index, 8 bytes an entry: relative offset of a batch's last record (int32), the position
of that batch in the file (int32). One entry at most every `index.interval.bytes`.

Time index, 12 bytes an entry: the largest timestamp so far (int64), relative offset of the last
record of the batch that holds it (int32). Both strictly increase.

In memory an offset entry is one integer, `relative << 32 | position`: the same as its eight
bytes on disk. This module packs and searches entries; which batches get one
is decided in `segment_indexes.py`. Apache Kafka preallocates index files, so zeros may follow the
entries.
"""

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import TypeAlias

from headrace.disk import READ_ONLY, Disk, Mapped

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
POSITION_MASK = 0xFFFFFFFF

_OFFSET_ENTRY = struct.Struct(">q")
TIME_ENTRY = struct.Struct(">qi")


def pack_entry(relative: int, position: int) -> int:
    """One offset entry as an integer that sorts by offset."""
    return relative << 32 | position


def _filled(length: int, entries: "OffsetEntries | TimeEntries") -> int:
    """How many of `length` entries come before the zeros at the end."""
    low, high = 0, length
    while low < high:
        middle = (low + high) // 2
        if entries[middle] in (0, (0, 0)):
            high = middle
        else:
            low = middle + 1
    return low


class OffsetEntries:
    """A sealed segment's offset index, searched in the mapped file."""

    __slots__ = ("_data", "_length", "torn")

    def __init__(self, data: Mapped) -> None:
        self._data = data
        self._length, rest = divmod(len(data), OFFSET_ENTRY_BYTES)
        self.torn = rest != 0
        if self._length and self[self._length - 1] == 0:
            self._length = _filled(self._length, self)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return map(self.__getitem__, range(self._length))

    def __getitem__(self, index: int) -> int:
        return int(_OFFSET_ENTRY.unpack_from(self._data, index * OFFSET_ENTRY_BYTES)[0])

    def to_array(self) -> "array[int]":
        """A copy of the entries, without the zeros that may follow them."""
        entries = array("q", self._data[: self._length * OFFSET_ENTRY_BYTES])
        if sys.byteorder == "little":
            entries.byteswap()
        return entries


class TimeEntries:
    """A time index as (timestamp, relative offset) pairs over its bytes."""

    __slots__ = ("_data", "_length", "torn")

    def __init__(self, data: Mapped | bytearray) -> None:
        self._data = data
        self._length, rest = divmod(len(data), TIME_ENTRY_BYTES)
        self.torn = rest != 0
        if self._length and self[self._length - 1] == (0, 0):
            self._length = _filled(self._length, self)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return map(self.__getitem__, range(self._length))

    def __getitem__(self, index: int) -> tuple[int, int]:
        timestamp, relative = TIME_ENTRY.unpack_from(self._data, index * TIME_ENTRY_BYTES)
        return timestamp, relative

    def to_bytes(self) -> bytearray:
        """A copy of the entries, without the zeros that may follow them."""
        return bytearray(self._data[: self._length * TIME_ENTRY_BYTES])


OffsetIndex: TypeAlias = "array[int] | OffsetEntries"


def floor_by_offset(entries: OffsetIndex, relative: int) -> int | None:
    """The last entry whose offset is not above `relative`, packed; None before the first."""
    at = bisect_right(entries, relative << 32 | POSITION_MASK)
    return entries[at - 1] if at else None


def floor_by_position(entries: OffsetIndex, position: int, low: int, high: int) -> int:
    """Which is the last entry in [low, high) whose batch begins not after `position`.

    low - 1 if there is none; -1 means the beginning of the segment.
    """
    return bisect_right(entries, position, low, min(high, len(entries)), key=_position) - 1


def slot_by_offset(entries: OffsetIndex, relative: int) -> int:
    """How many entries have offsets below `relative`."""
    return bisect_right(entries, relative << 32)


def floor_by_time(entries: TimeEntries, timestamp: int) -> tuple[int, int] | None:
    """The last entry whose timestamp is not above `timestamp`; None before the first."""
    at = bisect_right(entries, timestamp, key=_timestamp)
    return entries[at - 1] if at else None


def last_time(disk: Disk, path: str) -> int:
    """The last and largest timestamp of a time index; -1 if it is unknown."""
    try:
        fd = disk.open(path, READ_ONLY)
    except FileNotFoundError:
        return -1
    try:
        size = disk.size(fd)
        if size < TIME_ENTRY_BYTES or size % TIME_ENTRY_BYTES:
            return -1
        entry = disk.pread(fd, TIME_ENTRY_BYTES, size - TIME_ENTRY_BYTES)
    finally:
        disk.close(fd)
    timestamp, relative = TIME_ENTRY.unpack(entry)
    # Apache Kafka preallocates the index of the active segment: zeros are not an entry.
    return -1 if (timestamp, relative) == (0, 0) else int(timestamp)


def _position(entry: int) -> int:
    return entry & POSITION_MASK


def _timestamp(entry: tuple[int, int]) -> int:
    timestamp, _ = entry
    return timestamp


def offsets_to_bytes(entries: "array[int]") -> bytes:
    """The offset index as its file holds it."""
    if sys.byteorder == "little":
        entries = entries[:]
        entries.byteswap()
    return entries.tobytes()


def plausible_offsets(entries: OffsetIndex, log_bytes: int) -> bool:
    """Whether an offset index can belong to a log file of that size, by its ends."""
    if not entries:
        return True
    first, last = entries[0], entries[len(entries) - 1]
    return 0 < first <= last and (last & POSITION_MASK) < log_bytes
