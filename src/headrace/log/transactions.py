"""The transactions of one partition that have ended: what `read_committed` consumers have to skip.

Which are open is in `producer_state.py`. A segment whose markers abort something has a `.txnindex`
file with an entry for each, big-endian:

    version int16 = 0 | producer id int64 | first offset int64 | last offset int64 (the marker's)
    | last stable offset int64: no transaction was open below it when this one ended

In memory are the entries of all segments, in the order of their markers. Files are written when a
segment is sealed and at a clean stop: what a crash loses, the scan that follows finds again.

Most segments have no such file, so a lost file would not be noticed. `transaction-index-checkpoint`
says which there must be: a line `base_offset crc` for each, with the CRC-32C of its bytes. A file
that does not match is rebuilt from the log. In a folder without a checkpoint, such as Apache
Kafka's, the index files are used without this check.
"""

import logging
import struct
import threading
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from headrace.disk import Disk, read_file, replace_file
from headrace.log.checkpoints import decode_lines, encode_lines
from headrace.log.producer_state import EndedTransaction
from headrace.log.segment import Segment
from headrace.log.segment_files import TRANSACTION_INDEX, remove_if_there
from headrace.log.snapshots import rebuild, replay
from headrace.wire.checksum import crc32c

CHECKSUMS = "transaction-index-checkpoint"

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_FIELDS = 4

_logger = logging.getLogger("headrace.log")
# A flush and a compaction may both want to write the checksums of one log.
_saving = threading.Lock()


class CorruptIndex(ValueError):
    """A transaction index that cannot be its segment's."""


class EndedTransactions:
    """The aborted transactions, and all whose markers may not be committed yet."""

    __slots__ = ("_checksums", "_numbers", "_unsaved", "unreplicated")

    def __init__(self) -> None:
        # Producer id, first offset, last offset, last stable offset, and so on.
        self._numbers = array("q")
        self.unreplicated: deque[tuple[int, int]] | None = None
        """(first offset, the marker's offset) in the order of the markers.

        None before the first marker: most logs have no transactions, and an empty deque takes 760
        bytes, a third of an open log.
        """
        # Of the index file of each segment that has one, by its base offset.
        self._checksums: dict[int, int] = {}
        self._unsaved = False

    def __len__(self) -> int:
        return len(self._numbers) // _FIELDS

    def add(self, ended: EndedTransaction) -> None:
        """Add a transaction whose marker was just appended."""
        if self.unreplicated is None:
            self.unreplicated = deque()
        self.unreplicated.append((ended.first_offset, ended.last_offset))
        if ended.aborted:
            self._numbers.extend(ended[:_FIELDS])

    def stable_below(self, high_watermark: int) -> int:
        """The offset below which no transaction has its marker at or above the high watermark.

        Such a marker is not committed yet: it could still be lost.
        """
        unreplicated = self.unreplicated
        while unreplicated and unreplicated[0][1] < high_watermark:
            unreplicated.popleft()
        return min(high_watermark, min(unreplicated)[0]) if unreplicated else high_watermark

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """The aborted transactions in the offsets from `start` to before `end`.

        (producer id, first offset) of each.
        """
        numbers = self._numbers
        found = []
        for at in range(self._slot(start) * _FIELDS, len(numbers), _FIELDS):
            if numbers[at + 1] < end:
                found.append((numbers[at], numbers[at + 1]))
            if numbers[at + 3] >= end:
                break  # later entries began at `end` or after it
        return found

    def truncate(self, end_offset: int) -> None:
        """The log was truncated: remove markers at and after its end."""
        del self._numbers[self._slot(end_offset) * _FIELDS :]
        unreplicated = self.unreplicated
        while unreplicated and unreplicated[-1][1] >= end_offset:
            unreplicated.pop()

    def drop_before(self, start: int) -> None:
        """Remove markers before the first segment."""
        del self._numbers[: self._slot(start) * _FIELDS]
        self._checksums = {base: crc for base, crc in self._checksums.items() if base >= start}

    def copy(self, end: int, bases: Iterable[int]) -> "EndedTransactions":
        """Those with markers before `end`, for a log that has the index files of these segments."""
        copied = EndedTransactions()
        copied._numbers = self._numbers[: self._slot(end) * _FIELDS]
        known = self._checksums
        copied._checksums = {base: known[base] for base in bases if base in known}
        copied._unsaved = True
        return copied

    def clear(self) -> None:
        """The log was emptied: remove everything."""
        del self._numbers[:]
        self.unreplicated = None
        self._checksums = {}

    def write(self, disk: Disk, segment: Segment, end: int) -> None:
        """Write the index file of a segment that ends before `end`; no file without entries.

        The old file is replaced atomically: its entries may be below the recovery point, so that
        recovery would not rebuild them from the log.
        """
        path = segment.files.path(TRANSACTION_INDEX)
        data = self._file_of(segment.base_offset, end)
        if data:
            replace_file(disk, path, data)
        else:
            remove_if_there(disk, path)

    def _file_of(self, base_offset: int, end: int) -> bytes:
        """The content of a segment's index file; its checksum is recorded."""
        first, last = self._slot(base_offset), self._slot(end)
        data = encode_aborted(self._rows(first, last))
        checksum = _checksum(data)
        if self._checksums.get(base_offset) != checksum:
            self._unsaved = True
            self._checksums.pop(base_offset, None)
            if checksum is not None:
                self._checksums[base_offset] = checksum
        return data

    def save_checksums(self, disk: Disk, folder: str) -> None:
        """Write which index files there are, if that has changed. Made for a worker."""
        with _saving:
            if not self._unsaved:
                return
            self._unsaved = False
            lines = [f"{base} {crc}" for base, crc in sorted(self._checksums.copy().items())]
            replace_file(disk, f"{folder}/{CHECKSUMS}", encode_lines(lines))

    def load(self, data: bytes, base_offset: int, end: int) -> None:
        """Add the entries of the file of one segment, all or none; CorruptIndex if it is bad."""
        if len(data) % _ENTRY.size:
            raise CorruptIndex(f"its {len(data)} bytes are no whole entries")
        numbers = array("q")
        lowest = base_offset
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
            if version != _VERSION:
                raise CorruptIndex(f"it has an entry of version {version}")
            if not (lowest <= last < end and 0 <= first < last and 0 <= stable <= last + 1):
                raise CorruptIndex(f"it has an entry from {first} to {last}")
            lowest = last + 1
            numbers.extend((producer_id, first, last, stable))
        self._numbers += numbers
        if numbers:
            self._checksums[base_offset] = crc32c(data)

    def aborted_before(self, end: int) -> Iterator[Sequence[int]]:
        """All that the index files of segments before `end` hold."""
        return self._rows(0, self._slot(end))

    def keep_only(self, start: int, end: int, markers: Iterable[int]) -> None:
        """Of the aborted transactions with markers in between, keep those with these markers."""
        kept = set(markers)
        first, last = self._slot(start), self._slot(end)
        rows = [row for row in self._rows(first, last) if row[2] in kept]
        self._numbers[first * _FIELDS : last * _FIELDS] = array("q", chain.from_iterable(rows))
        for base in [base for base in self._checksums if start < base < end]:
            del self._checksums[base]
        self._file_of(start, end)

    def _rows(self, first: int, last: int) -> Iterator[Sequence[int]]:
        numbers = self._numbers
        for at in range(first * _FIELDS, last * _FIELDS, _FIELDS):
            yield numbers[at : at + _FIELDS]

    def _slot(self, offset: int) -> int:
        """How many entries have their markers before `offset`."""
        numbers = self._numbers
        if not numbers:
            return 0
        return bisect_left(range(len(self)), offset, key=lambda at: numbers[at * _FIELDS + 2])


def encode_aborted(rows: Iterable[Sequence[int]]) -> bytes:
    """An index file of these: producer id, first offset, last offset, last stable offset."""
    return b"".join(_ENTRY.pack(_VERSION, *row) for row in rows)


def load_transactions(
    disk: Disk, folder: str, names: Iterable[str], segments: Sequence[Segment], end: int
) -> EndedTransactions:
    """The ended transactions of segments that end at `end`, from their index files.

    A missing or damaged file is rebuilt from the log.
    """
    transactions = EndedTransactions()
    names = set(names)
    certified = CHECKSUMS in names
    recorded = _read_checksums(disk, folder) if certified else None
    for at, segment in enumerate(segments):
        path = segment.files.path(TRANSACTION_INDEX)
        there = path.rpartition("/")[2] in names
        if not there and not certified:
            continue
        data = read_file(disk, path) if there else b""
        following = segments[at + 1].base_offset if at + 1 < len(segments) else end
        try:
            if certified and (
                recorded is None or recorded.get(segment.base_offset) != _checksum(data)
            ):
                raise CorruptIndex(f"its checksum differs from that in {CHECKSUMS}")
            transactions.load(data, segment.base_offset, following)
        except CorruptIndex as error:
            _logger.warning("%s is rebuilt from the log because %s", path, error)
            state = rebuild(disk, folder, names, segments[: at + 1], segment.base_offset)
            for ended in replay(state, [segment], segment.base_offset, following):
                transactions.add(ended)
            transactions.write(disk, segment, following)
    transactions.save_checksums(disk, folder)
    transactions.stable_below(end)
    return transactions


def _checksum(data: bytes) -> int | None:
    return crc32c(data) if data else None


def _read_checksums(disk: Disk, folder: str) -> dict[int, int] | None:
    """By base offset; None if the file is damaged."""
    path = f"{folder}/{CHECKSUMS}"
    try:
        return {int(base): int(crc) for base, crc in decode_lines(read_file(disk, path), 2)}
    except ValueError as error:
        _logger.warning("%s is rebuilt from the log because %s", path, error)
        return None
