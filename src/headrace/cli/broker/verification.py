"""Checks the data folder of a stopped broker, without changes.

It checks the structure and the checksum of every batch, and the order of offsets within and across
segments; every index against its batches, every transaction index against the markers; and every
snapshot and checkpoint. Each segment is read once from beginning to end, with constant memory. A
finding has the file and the byte position.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headrace.disk import Disk, Mapped, read_file
from headrace.log.checkpoints import (
    HIGH_WATERMARKS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    START_OFFSETS,
    decode_lines,
    read_topic_id,
)
from headrace.log.damage import FILE_NAME as DAMAGE_FILE
from headrace.log.damage import find_batch, read_holes
from headrace.log.epochs import FILE_NAME as EPOCHS_FILE
from headrace.log.folder_names import parse_folder_name
from headrace.log.indexes import (
    OFFSET_ENTRY_BYTES,
    POSITION_MASK,
    TIME_ENTRY_BYTES,
    OffsetEntries,
    TimeEntries,
)
from headrace.log.producer_state import CorruptSnapshot, ProducerState
from headrace.log.segment import MAX_RELATIVE
from headrace.log.segment_files import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX
from headrace.log.snapshots import SNAPSHOT
from headrace.log.transactions import CHECKSUMS
from headrace.wire.batch import (
    CHECKSUMMED_FROM,
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL,
    Header,
    read_header,
)
from headrace.wire.checksum import crc32c
from headrace.wire.markers import decode_marker

_ABORTED = struct.Struct(">hqqqq")
_DIGITS = 20
_REPORTED_BYTES = 4 << 20


class Finding(NamedTuple):
    """A problem in a file."""

    file: str
    position: int
    problem: str


@dataclass(slots=True)
class Counts:
    """The numbers of checked partitions, segments, batches and bytes."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0


class Verification:
    """One check of folders; `progress` gets the number of bytes read since its last call."""

    def __init__(self, disk: Disk, progress: Callable[[int], None] | None = None) -> None:
        self.findings: list[Finding] = []
        self.counts = Counts()
        self.disk = disk
        self.progress = progress or (lambda _: None)

    def folder(self, path: str) -> None:
        """Check a data folder with all its partitions, or the folder of one partition."""
        names = self.disk.list_folder(path)
        if segment_bases(names):
            self.partition(path)
            return
        for name in sorted(names):
            if name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS):
                self._checkpoint(f"{path}/{name}", 3)
            elif parse_folder_name(name) is not None and self.disk.is_folder(f"{path}/{name}"):
                self.partition(f"{path}/{name}")

    def partition(self, folder: str) -> None:
        """Check all files of one partition."""
        names = {*self.disk.list_folder(folder)}
        self.counts.partitions += 1
        bases = segment_bases(names)
        transactions = _Transactions()
        end = 0
        for at, base in enumerate(bases):
            self.counts.segments += 1
            stem = f"{folder}/{base:0{_DIGITS}d}"
            if base < end:
                self.found(stem + LOG, 0, f"begins at offset {base}, before {end}")
            check = _SegmentCheck(self, stem, base, sealed=at + 1 < len(bases), names=names)
            end = max(end, base, check.run(transactions))
        self._side_files(folder, names, bases)

    def _side_files(self, folder: str, names: set[str], bases: list[int]) -> None:
        stems = {f"{base:0{_DIGITS}d}" for base in bases}
        for name in sorted(names):
            path = f"{folder}/{name}"
            stem, _, suffix = name.rpartition(".")
            if name.endswith(SNAPSHOT):
                try:
                    ProducerState.decode(read_file(self.disk, path))
                except CorruptSnapshot as error:
                    self.found(path, 0, str(error))
            elif f".{suffix}" in (INDEX, TIME_INDEX, TRANSACTION_INDEX) and stem not in stems:
                self.found(path, 0, "has no segment")
            elif name in (EPOCHS_FILE, CHECKSUMS):
                self._checkpoint(path, 2)
            elif name == DAMAGE_FILE:
                for first, following in read_holes(self.disk, folder, names):
                    lost = f"the offsets {first} to {following - 1} cannot be read"
                    self.found(path, 0, lost)
            elif name == PARTITION_METADATA and read_topic_id(self.disk, path) is None:
                self.found(path, 0, "contains no topic id")

    def _checkpoint(self, path: str, words: int) -> None:
        try:
            for row in decode_lines(read_file(self.disk, path), words):
                [int(word) for word in row[-2:]]
        except ValueError as error:
            self.found(path, 0, str(error))

    def found(self, file: str, position: int, problem: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(file, position, problem))


class _Transactions:
    """The open transactions, and those aborted in the current segment."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []

    def note(self, header: Header, data: Mapped, position: int) -> None:
        """Process the batch at `position`."""
        producer_id = header.producer_id
        if header.attributes & CONTROL:
            marker = decode_marker(data[position : position + header.size_bytes])
            first = self.open.pop(producer_id, None)
            if marker is not None and not marker.commit and first is not None:
                self.aborted.append((producer_id, first, header.base_offset))
        elif header.attributes & TRANSACTIONAL:
            self.open.setdefault(producer_id, header.base_offset)


class _SegmentCheck:
    """Checks one segment and its indexes in parallel."""

    def __init__(
        self, found: Verification, stem: str, base: int, *, sealed: bool, names: set[str]
    ) -> None:
        self._verification = found
        self._disk = found.disk
        self._stem = stem
        self._base = base
        self._sealed = sealed
        self._names = names
        self._offsets = self._offset_entries()
        self._times = self._time_entries()
        self._next_offset = next(self._offsets, None)
        self._next_time = next(self._times, None)

    def run(self, transactions: _Transactions) -> int:
        """Check the segment; the offset after its last batch."""
        transactions.aborted = []
        data = self._disk.map_file(self._stem + LOG)
        end = position = reported = 0
        for position, header, whole in self._batches(data):
            self._verification.counts.batches += 1
            first, last = header.base_offset, header.last_offset
            if not whole:
                self._found(LOG, position, f"the checksum of batch {first} to {last} is wrong")
            elif first < max(end, self._base):
                lowest = max(end, self._base)
                self._found(LOG, position, f"offset {first}; expected at least {lowest}")
            elif not 0 <= header.last_offset_delta <= self._base + MAX_RELATIVE - first:
                self._found(LOG, position, f"last offset {last} is out of the segment's range")
            self._match_offset(position, last)
            self._match_time(last, header.max_timestamp)
            if whole:
                end = max(end, last + 1)
                transactions.note(header, data, position)
            if position - reported >= _REPORTED_BYTES:
                self._verification.progress(position - reported)
                reported = position
        self._verification.counts.bytes += len(data)
        self._verification.progress(len(data) - reported)
        self._leftover_entries()
        self._transaction_index(transactions)
        return end

    def _batches(self, data: Mapped) -> Iterator[tuple[int, Header, bool]]:
        """Position, header and validity of each batch; skips bytes that are not a batch."""
        view = memoryview(data)
        position, size = 0, len(data)
        while position < size:
            if size - position < HEADER_BYTES:
                self._found(
                    LOG, position, f"the last {size - position} bytes are not a whole batch"
                )
                return
            header = read_header(view, position)
            length = header.size_bytes
            problem = None
            if length < HEADER_BYTES or position + length > size:
                problem = f"a batch of {length} bytes; {size - position} are left"
            elif header.magic != MAGIC:
                problem = f"magic {header.magic} instead of {MAGIC}"
            if problem is not None:
                behind = self._behind_damage(data, position)
                if behind is None:
                    self._found(LOG, position, f"{problem}; no batch follows")
                    return
                self._found(LOG, position, f"{problem}; the next batch is at {behind}")
                position = behind
                continue
            body = view[position + CHECKSUMMED_FROM : position + length]
            yield position, header, crc32c(body) == header.crc
            position += length

    def _behind_damage(self, data: Mapped, position: int) -> int | None:
        """The position of the next whole batch."""

        def read(length: int, at: int) -> bytes:
            return data[at : at + length]

        limits = (self._base, self._base + MAX_RELATIVE)
        found = find_batch(read, len(data), position + 1, limits)
        return None if found is None else found[0]

    # -- indexes --------------------------------------------------------------------------------

    def _mapped(self, suffix: str) -> Mapped | None:
        if (self._stem + suffix).rpartition("/")[2] in self._names:
            return self._disk.map_file(self._stem + suffix)
        if self._sealed:
            self._found(suffix, 0, "is missing; a broker will rebuild it")
        return None

    def _offset_entries(self) -> Iterator[tuple[int, int, int]]:
        """The position of each entry, its offset, and its position in the log."""
        data = self._mapped(INDEX)
        if data is None:
            return
        entries = OffsetEntries(data)
        if entries.torn:
            self._found(INDEX, len(data), "the size is not a multiple of 8 bytes")
        before = -1
        for at, entry in enumerate(entries):
            place = at * OFFSET_ENTRY_BYTES
            if entry >> 32 < 0 or (entry & POSITION_MASK) <= before:
                self._found(INDEX, place, "the entry is not greater than the previous one")
                return
            before = entry & POSITION_MASK
            yield place, (entry >> 32) + self._base, before

    def _time_entries(self) -> Iterator[tuple[int, int, int]]:
        """The position of each entry, its offset, and its timestamp."""
        data = self._mapped(TIME_INDEX)
        if data is None:
            return
        entries = TimeEntries(data)
        if entries.torn:
            self._found(TIME_INDEX, len(data), "the size is not a multiple of 12 bytes")
        last_timestamp, last_relative = -1, -1
        for at, (timestamp, relative) in enumerate(entries):
            place = at * TIME_ENTRY_BYTES
            if timestamp < last_timestamp or relative < last_relative:
                self._found(TIME_INDEX, place, "the entry is not greater than the previous one")
                return
            last_timestamp, last_relative = timestamp, relative
            yield place, relative + self._base, timestamp

    def _match_offset(self, position: int, last: int) -> None:
        while self._next_offset is not None and self._next_offset[2] <= position:
            place, offset, pointed = self._next_offset
            if pointed < position:
                self._found(INDEX, place, f"points to {pointed}, where no batch begins")
            elif offset != last:
                self._found(INDEX, place, f"has offset {offset}, but the batch ends at {last}")
            self._next_offset = next(self._offsets, None)

    def _match_time(self, last: int, max_timestamp: int) -> None:
        while self._next_time is not None and self._next_time[1] <= last:
            place, offset, timestamp = self._next_time
            if timestamp != max_timestamp:
                self._found(
                    TIME_INDEX,
                    place,
                    f"has {timestamp} at offset {offset}, but the batch has {max_timestamp}",
                )
            self._next_time = next(self._times, None)

    def _leftover_entries(self) -> None:
        while self._next_offset is not None:
            place, _, pointed = self._next_offset
            self._found(INDEX, place, f"points to {pointed}, after the last batch")
            self._next_offset = next(self._offsets, None)
        while self._next_time is not None:
            place, offset, _ = self._next_time
            self._found(TIME_INDEX, place, f"has offset {offset}, after the last batch")
            self._next_time = next(self._times, None)

    def _transaction_index(self, transactions: _Transactions) -> None:
        path = self._stem + TRANSACTION_INDEX
        data = b""
        if path.rpartition("/")[2] in self._names:
            data = read_file(self._disk, path)
        elif not self._sealed:
            return  # that of the active segment is written at a clean stop
        whole = len(data) - len(data) % _ABORTED.size
        if whole != len(data):
            self._found(TRANSACTION_INDEX, whole, "the last entry is not whole")
        listed = set()
        for at in range(0, whole, _ABORTED.size):
            version, producer_id, first, last, _ = _ABORTED.unpack_from(data, at)
            listed.add((producer_id, last))
            if version != 0 or not 0 <= first < last:
                self._found(TRANSACTION_INDEX, at, f"an entry from {first} to {last}")
        for producer_id, first, last in transactions.aborted:
            if (producer_id, last) not in listed:
                self._found(
                    TRANSACTION_INDEX,
                    whole,
                    f"lacks the transaction of producer {producer_id} from {first} to {last}",
                )

    def _found(self, suffix: str, position: int, problem: str) -> None:
        self._verification.found(self._stem + suffix, position, problem)


def segment_bases(names: set[str] | list[str]) -> list[int]:
    """The first offsets of the segments among a folder's file names."""
    stems = (name.removesuffix(LOG) for name in names if name.endswith(LOG))
    return sorted(int(stem) for stem in stems if len(stem) == _DIGITS and stem.isdecimal())


def log_bytes(disk: Disk, path: str) -> int:
    """The bytes of log files that a check of the folder reads."""
    names = disk.list_folder(path)
    total = sum(disk.file_size(f"{path}/{base:0{_DIGITS}d}{LOG}") for base in segment_bases(names))
    for name in names:
        if parse_folder_name(name) is not None and disk.is_folder(f"{path}/{name}"):
            total += log_bytes(disk, f"{path}/{name}")
    return total
