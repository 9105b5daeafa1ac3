"""The transactions of one partition that have ended: what `read_committed` consumers have to skip.

Which are open is in `producer_state.py`. A segment whose markers abort something has a `.txnindex`
file with an entry for each, big-endian:

    version int16 = 0 | producer id int64 | first offset int64 | last offset int64 (the marker's)
    | last stable offset int64: no transaction was open below it when this one ended

In memory are the entries of all segments, in the order of their markers. Files are written when a
segment is sealed and at a clean stop: what a crash loses, the scan that follows finds again.
"""

import logging
import struct
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from headrace.disk import Disk, read_file, replace_file
from headrace.log.producer_state import EndedTransaction
from headrace.log.segment import TRANSACTION_INDEX, Segment, remove_if_there
from headrace.log.snapshots import rebuild, replay

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0
_FIELDS = 4

_logger = logging.getLogger("headrace.log")


class CorruptIndex(ValueError):
    """A transaction index that cannot be its segment's."""


class EndedTransactions:
    """The aborted transactions, and all whose markers may not be committed yet."""

    __slots__ = ("_numbers", "unsettled")

    def __init__(self) -> None:
        # Producer id, first offset, last offset, last stable offset, and so on.
        self._numbers = array("q")
        # (first offset, the marker's offset), in the order of the markers.
        self.unsettled: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._numbers) // _FIELDS

    def add(self, ended: EndedTransaction) -> None:
        """Take note of a transaction whose marker has just been appended."""
        self.unsettled.append((ended.first_offset, ended.last_offset))
        if ended.aborted:
            self._numbers.extend(ended[:_FIELDS])

    def settled_below(self, high_watermark: int) -> int:
        """The offset below which no transaction has its marker at or above the high watermark.

        Nobody may rely on such a marker yet: the disk could still lose it.
        """
        unsettled = self.unsettled
        while unsettled and unsettled[0][1] < high_watermark:
            unsettled.popleft()
        return min(high_watermark, min(unsettled)[0]) if unsettled else high_watermark

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Who reads the offsets from `start` to before `end` must skip these.

        (producer id, first offset) of each.
        """
        numbers = self._numbers
        found = []
        for at in range(self._slot(start) * _FIELDS, len(numbers), _FIELDS):
            if numbers[at + 1] < end:
                found.append((numbers[at], numbers[at + 1]))
            if numbers[at + 3] >= end:
                break  # whatever ended later began at `end` or behind it
        return found

    def cut(self, end_offset: int) -> None:
        """The log ends there now: forget markers at and after it."""
        del self._numbers[self._slot(end_offset) * _FIELDS :]
        while self.unsettled and self.unsettled[-1][1] >= end_offset:
            self.unsettled.pop()

    def drop_before(self, start: int) -> None:
        """Forget markers before the first segment's beginning."""
        del self._numbers[: self._slot(start) * _FIELDS]

    def write(self, disk: Disk, segment: Segment, end: int) -> None:
        """Write the index file of a segment that ends before `end`; no file without entries.

        An older one stays whole until the new one is: what it tells may lie below the recovery
        point, and nobody would look for it in the log again.
        """
        first, last = self._slot(segment.base_offset), self._slot(end)
        path = segment.path(TRANSACTION_INDEX)
        if first == last:
            remove_if_there(disk, path)
            return
        replace_file(disk, path, encode_aborted(self._rows(first, last)))

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

    def aborted_before(self, end: int) -> Iterator[Sequence[int]]:
        """All that the index files of segments before `end` hold."""
        return self._rows(0, self._slot(end))

    def keep_only(self, start: int, end: int, markers: Iterable[int]) -> None:
        """Of the aborted transactions with markers in between, keep those with these markers."""
        kept = set(markers)
        first, last = self._slot(start), self._slot(end)
        rows = [row for row in self._rows(first, last) if row[2] in kept]
        self._numbers[first * _FIELDS : last * _FIELDS] = array("q", chain.from_iterable(rows))

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

    One that is damaged is made anew from the log.
    """
    transactions = EndedTransactions()
    names = set(names)
    for at, segment in enumerate(segments):
        path = segment.path(TRANSACTION_INDEX)
        if path.rpartition("/")[2] not in names:
            continue
        following = segments[at + 1].base_offset if at + 1 < len(segments) else end
        try:
            transactions.load(read_file(disk, path), segment.base_offset, following)
        except CorruptIndex as error:
            _logger.warning("%s is rebuilt from the log because %s", path, error)
            state = rebuild(disk, folder, names, segments[: at + 1], segment.base_offset)
            for ended in replay(state, [segment], segment.base_offset, following):
                transactions.add(ended)
            transactions.write(disk, segment, following)
    transactions.settled_below(end)
    return transactions
