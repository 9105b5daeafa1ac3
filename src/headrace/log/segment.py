"""One segment of a partition: a `.log` file of whole record batches and its two sparse indexes.

    00000000000000001234.log         batches as they came over the wire, one after the other
    00000000000000001234.index       offset -> position      (indexes.py)
    00000000000000001234.timeindex   timestamp -> offset     (indexes.py)
    00000000000000001234.txnindex    aborted transactions    (transactions.py); often there is none

The name is the offset of the first record. The active segment has its indexes in memory and
writes them when it is sealed or closed: after a crash it is scanned anyway, so writing them
earlier has no benefit. A sealed segment's index files are mapped at the first look-up.
Every look-up checks the batch that the index points to, and rebuilds an index that is wrong.
`log.py` decides what to append, when to roll and how far a reader may read.
"""

import logging
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import ClassVar, NamedTuple

from headrace.disk import CREATE, READ_WRITE, TRUNCATE, Buffer, Disk, sync_file, write_file
from headrace.errors import ErrorCode, KafkaError
from headrace.log.indexes import (
    POSITION_MASK,
    TIME_ENTRY,
    TIME_ENTRY_BYTES,
    OffsetEntries,
    OffsetIndex,
    TimeEntries,
    floor_by_offset,
    floor_by_position,
    floor_by_time,
    last_time,
    offsets_to_bytes,
    pack_entry,
    plausible_offsets,
    slot_by_offset,
)
from headrace.log.ranges import Ranges
from headrace.log.slices import SegmentFile
from headrace.wire.batch import HEADER_BYTES, MAGIC, OVERHEAD, Header, read_header, unpack_header

NO_TIMESTAMP = -1
MAX_RELATIVE = 2**31 - 1
LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"
TRANSACTION_INDEX = ".txnindex"
DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"

# Look-ups walk the headers of about one index interval; a larger read would be wasted.
_WALK_BYTES = 8192

_logger = logging.getLogger("headrace.log")
# Base offset, length, magic and last offset delta: all that going to the next batch takes.
_unpack_hop = struct.Struct(">qi4xB6xi").unpack_from
_FAR_OFFSET = 2**63 - 1


def segment_path(folder: str, base_offset: int, suffix: str) -> str:
    """The path of one of a segment's files."""
    return f"{folder}/{base_offset:020d}{suffix}"


class Hole(NamedTuple):
    """A damaged part of a segment; see `damage.py`."""

    start: int
    """Position of its first byte; -1 if only its offsets are known."""
    stop: int
    first: int
    """The first offset that is lost."""
    following: int
    """The first offset behind it."""


class Segment:
    """The state of one segment; `Log.append` changes the active one's fields in place."""

    any_damaged: ClassVar[bool] = False  # whether this process has met damage at all

    __slots__ = (
        "_disk",
        "_mapped_times",
        "_seen_size",
        "base_offset",
        "bases",
        "checked",
        "damaged_at",
        "examined",
        "file",
        "first_timestamp",
        "folder",
        "holes",
        "index_due",
        "index_interval",
        "largest_offset",
        "largest_timestamp",
        "offsets",
        "on_release",
        "sealed",
        "size",
        "skips",
        "times",
        "unchecked",
        "upper",
        "used",
    )

    def __init__(
        self, disk: Disk, folder: str, base_offset: int, size: int, index_interval: int
    ) -> None:
        self._disk = disk
        self.folder = folder
        self.base_offset = base_offset
        self.size = size
        self.sealed = False
        self.file: SegmentFile | None = None
        # Below this position bytes may have rotted since they were written; see `checked.py`.
        self.unchecked = size
        self.checked: Ranges | None = None
        # The damaged batch that was last found.
        self.damaged_at = -1
        # Known damage, oldest first; whether all bytes were looked at for it; and by the position
        # at which a hole begins the one at which batches go on. None as long as there is none.
        self.holes: tuple[Hole, ...] = ()
        self.examined = False
        self.skips: dict[int, int] | None = None
        # The base offset of the next segment, where it is known.
        self.upper: int | None = None
        # Whether the file was read since the last call of `used_lately`.
        self.used = False
        self._seen_size = size
        # Caches of the open file's descriptor, to be cleared when it closes.
        self.on_release: Callable[[], None] | None = None
        # The largest timestamp so far, and the last offset of the first batch that has it.
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.index_interval = index_interval
        # A batch that begins after this position gets an index entry.
        self.index_due = index_interval
        self.offsets: OffsetIndex | None = None
        # The first offset of each indexed batch; only while they are known without reading.
        self.bases: array[int] | None = None
        self.times: bytearray | None = None
        self._mapped_times: TimeEntries | None = None

    def path(self, suffix: str) -> str:
        """The path of the file with that suffix."""
        return segment_path(self.folder, self.base_offset, suffix)

    def create_file(self) -> None:
        """Make the empty `.log` file of a new segment."""
        self.file = SegmentFile(self._disk, self.path(LOG), READ_WRITE | CREATE | TRUNCATE)
        self._disk.open_files.add(self)

    def opened(self) -> SegmentFile:
        """The open `.log` file; hold on to it while you use its descriptor."""
        file = self.file
        if file is None:
            file = self.file = SegmentFile(self._disk, self.path(LOG))
            self._disk.open_files.add(self)
        return file

    def used_lately(self) -> bool:
        """Whether it was read or written since the last such question."""
        used = self.used or self.size != self._seen_size
        self.used = False
        self._seen_size = self.size
        return used

    def release(self) -> None:
        """Close the files; a holder of the open file, such as a slice, keeps it open.

        The next reads check the checksums again.
        """
        if self.on_release is not None:
            self.on_release()
        self.file = None
        if self.sealed:
            self.offsets = None
            self._mapped_times = None
            self.unchecked = self.size
            self.checked = None
        self._disk.open_files.forget(self)

    # -- damage ---------------------------------------------------------------------------------

    def use_holes(self, holes: Iterable[Hole]) -> None:
        """Set the known damage."""
        self.holes = tuple(sorted(holes, key=lambda hole: hole.first))
        skips = {hole.start: hole.stop for hole in self.holes if hole.start < hole.stop}
        self.skips = skips or None
        if self.holes:
            Segment.any_damaged = True
            self.unchecked, self.checked = self.size, None  # reads have to stop at a hole

    def examine(self) -> None:
        """Look at all bytes for damage, with checksums; walks and look-ups then avoid it."""
        from headrace.log.damage import examine

        self.examined = True  # looking for what follows a hole may itself meet damage
        examine(self)
        for hole in self.holes:
            _logger.error(
                "%s is damaged at position %d: the offsets %d to %d cannot be read. They are "
                "fetched again from another replica, if one is in sync; else readers have to go "
                "on behind them, and `headrace log verify` shows what is lost",
                self.path(LOG), hole.start, hole.first, hole.following - 1,
            )  # fmt: skip
        self.rebuild_indexes()

    def known_holes(self) -> tuple[Hole, ...]:
        """The known damage; a hole at the end of the file ends where a batch was appended since."""
        if self.holes and self.holes[-1].following > self.base_offset + MAX_RELATIVE:
            *others, last = self.holes
            for _, header in self.walk(last.stop):
                self.holes = (*others, last._replace(following=header.base_offset))
                break
        return self.holes

    def refuse_lost(self, offset: int) -> None:
        """KafkaError 2 if the offset lies in a hole."""
        for hole in self.known_holes():
            if hole.first <= offset < hole.following:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.path(LOG)} is damaged: the offsets {hole.first} to "
                    f"{hole.following - 1} cannot be read; go on at {hole.following}",
                )

    # -- indexing -------------------------------------------------------------------------------

    def note_batch(
        self, position: int, base_offset: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Index one batch at `position`, as appending it does."""
        if max_timestamp > self.largest_timestamp:
            self.largest_timestamp = max_timestamp
            self.largest_offset = last_offset
        if position > self.index_due:
            self.add_entry(position, base_offset, last_offset)

    def add_entry(self, position: int, base_offset: int, last_offset: int) -> None:
        """Add an entry to both indexes of the active segment."""
        self.index_due = position + self.index_interval
        offsets = self.offsets
        if offsets is None:
            offsets = self.offsets = array("q")
            self.bases = array("q")
        assert isinstance(offsets, array), "a sealed segment gets no index entries"
        offsets.append(pack_entry(last_offset - self.base_offset, position))
        if self.bases is not None:
            self.bases.append(base_offset)
        self._add_time_entry()

    def _add_time_entry(self) -> None:
        times = self.times
        if times is None:
            times = self.times = bytearray()
        newest = NO_TIMESTAMP
        if times:
            newest = TIME_ENTRY.unpack_from(times, len(times) - TIME_ENTRY_BYTES)[0]
        if self.largest_timestamp > newest:
            times += TIME_ENTRY.pack(self.largest_timestamp, self.largest_offset - self.base_offset)

    def index_is_full(self, index_bytes: int) -> bool:
        """Whether one of the indexes has reached `segment.index.bytes`."""
        offsets = len(self.offsets) if self.offsets is not None else 0
        times = len(self.times) // TIME_ENTRY_BYTES if self.times is not None else 0
        # One slot of the time index stays free for the entry that sealing adds.
        return offsets >= index_bytes // 8 or times >= index_bytes // TIME_ENTRY_BYTES - 1

    def write_indexes(self, *, sync: bool) -> None:
        """Write both index files of the active segment, with a last entry in the time index."""
        offsets, times = self.index_bytes()
        write_file(self._disk, self.path(INDEX), offsets, sync=sync)
        write_file(self._disk, self.path(TIME_INDEX), times, sync=sync)

    def index_bytes(self) -> tuple[bytes, Buffer]:
        """What the offset index and the time index of a segment that ends here hold."""
        self._add_time_entry()
        offsets = self.offsets if isinstance(self.offsets, array) else array("q")
        return offsets_to_bytes(offsets), self.times or b""

    def seal(self) -> None:
        """No further batch will come; from now on the index files are read where they lie."""
        self.sealed = True
        self.on_release = None
        self.offsets = None
        self.bases = None
        self.times = None

    def sync(self) -> None:
        """Bring the log file to the disk, and a sealed segment's indexes too."""
        # Keep a reference, so that the owner cannot close it during the sync; if it is closed
        # already, the file that is opened here is not kept.
        file = self.file or SegmentFile(self._disk, self.path(LOG))
        self._disk.fdatasync(file.fd)
        if self.sealed:
            for suffix in (INDEX, TIME_INDEX):
                sync_file(self._disk, self.path(suffix))
            with suppress(FileNotFoundError):  # only those with aborted transactions have one
                sync_file(self._disk, self.path(TRANSACTION_INDEX))

    def load_indexes(self) -> bool:
        """Read the active segment's index files into memory; False if they cannot be its own."""
        try:
            mapped_offsets = OffsetEntries(self._disk.map_file(self.path(INDEX)))
            mapped_times = TimeEntries(self._disk.map_file(self.path(TIME_INDEX)))
        except FileNotFoundError:
            return False
        if mapped_offsets.torn or mapped_times.torn:
            return False
        offsets, times = mapped_offsets.to_array(), mapped_times.to_bytes()
        if not plausible_offsets(offsets, self.size):
            return False
        if offsets and not times and self.first_time() >= 0:
            return False
        self.offsets, self.times = offsets, times
        if offsets:
            self.index_due = (offsets[-1] & POSITION_MASK) + self.index_interval
        if times:
            timestamp, relative = TIME_ENTRY.unpack_from(times, len(times) - TIME_ENTRY_BYTES)
            self.largest_timestamp = timestamp
            self.largest_offset = self.base_offset + relative
        return True

    def reset_indexes(self) -> None:
        """Empty indexes, before the batches are noted again."""
        self.offsets = None
        self.bases = None
        self.times = None
        self._mapped_times = None
        self.index_due = self.index_interval
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_offset = self.base_offset

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batches."""
        _logger.warning("rebuilding the indexes of %s", self.path(LOG))
        examined, named, end = self.examined, self.last_named_offset(), self.base_offset
        self.reset_indexes()
        for position, header in self.walk(0):
            if self.examined != examined:
                break
            end = header.next_offset
            self.note_batch(position, header.base_offset, end - 1, header.max_timestamp)
        if self.examined != examined:
            return  # damage was met on the way, and the indexes were made from what is whole
        if named >= end and not any(hole.following > end for hole in self.holes):
            _logger.error("%s ends before offset %d, which its index names", self.path(LOG), named)
            self.use_holes([*self.holes, Hole(self.size, self.size, end, named + 1)])
        if self.sealed:
            if named < end:
                self.write_indexes(sync=False)
            else:
                self.index_bytes()  # keep the files: only they show what is lost
            self._mapped_times = TimeEntries(self.times or b"")
            self.times = None
            if self.offsets is None:
                self.offsets = array("q")

    def last_named_offset(self) -> int:
        """The last offset that the index files of a sealed segment name, or -1."""
        if not self.sealed or self.upper is None:
            return -1
        named = [-1]
        with suppress(FileNotFoundError):
            offsets = OffsetEntries(self._disk.map_file(self.path(INDEX)))
            if offsets and not offsets.torn:
                named.append((offsets[len(offsets) - 1] >> 32) + self.base_offset)
        with suppress(FileNotFoundError):
            times = TimeEntries(self._disk.map_file(self.path(TIME_INDEX)))
            if times and not times.torn:
                named.append(times[len(times) - 1][1] + self.base_offset)
        return max(offset for offset in named if offset < self.upper)

    def offset_index(self) -> OffsetIndex:
        """The offset index, mapped if this segment is sealed."""
        offsets = self.offsets
        if offsets is None:
            if not self.sealed:
                return array("q")
            try:
                offsets = OffsetEntries(self._disk.map_file(self.path(INDEX)))
                if offsets.torn or not plausible_offsets(offsets, self.size):
                    raise ValueError(self.path(INDEX))
                self.offsets = offsets
                self._disk.open_files.add(self)
            except (FileNotFoundError, ValueError):
                self.rebuild_indexes()
                return self.offset_index()
        return offsets

    def time_index(self) -> TimeEntries:
        """The time index, mapped if this segment is sealed."""
        if not self.sealed:
            return TimeEntries(self.times or b"")
        entries = self._mapped_times
        if entries is None:
            missing = False
            try:
                entries = TimeEntries(self._disk.map_file(self.path(TIME_INDEX)))
            except FileNotFoundError:
                entries, missing = TimeEntries(b""), True
            # Records without timestamps leave the time index empty.
            lost = not entries and (missing or self.first_time() >= 0)
            if self.size and (lost or entries.torn):
                self.rebuild_indexes()
                return self._mapped_times or TimeEntries(b"")
            self._mapped_times = entries
            self._disk.open_files.add(self)
        return entries

    def latest_time(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the batch that holds it."""
        if self.sealed and self.largest_timestamp == NO_TIMESTAMP:
            self._read_latest_time()
        return self.largest_timestamp, self.largest_offset

    def _read_latest_time(self) -> None:
        """Use the last entry of the time index if it matches the batches; else rebuild it."""
        entries = self.time_index()
        if not entries:
            return  # no batch has a time
        offsets = self.offset_index()
        timestamp, relative = entries[len(entries) - 1]
        offset = self.base_offset + relative
        position, base = found = self.locate(offset)
        # Sealing adds the largest of all: what stands behind the last indexed batch is not later.
        if offsets:
            indexed, _ = self.locate(self.base_offset + (offsets[len(offsets) - 1] >> 32))
            position = max(position, indexed)
        if self.largest_timestamp != NO_TIMESTAMP:
            return  # an index was rebuilt
        told = 0 <= base <= offset and self.header_at(found[0]).max_timestamp == timestamp
        if not told or any(later.max_timestamp > timestamp for _, later in self.walk(position)):
            self.rebuild_indexes()
        else:
            self.largest_timestamp, self.largest_offset = timestamp, offset

    def newest_ms(self) -> int:
        """The largest time of its records, or where they have none, that of its last write.

        A sealed segment's time index ends with it, and reading that much keeps no file open.
        """
        newest = self.largest_timestamp
        if newest == NO_TIMESTAMP and self.sealed:
            newest = last_time(self._disk, self.path(TIME_INDEX))
        if newest == NO_TIMESTAMP:
            newest = self.latest_time()[0]
        return newest if newest >= 0 else self._disk.modified_ms(self.path(LOG))

    def first_time(self) -> int:
        """The largest timestamp of the first batch; -1 of an empty segment."""
        for _, header in self.walk(0):
            return header.max_timestamp
        return NO_TIMESTAMP

    # -- finding --------------------------------------------------------------------------------

    def walk(self, position: int, stop: int | None = None) -> Iterator[tuple[int, Header]]:
        """Position and header of each batch from a batch's beginning on; checks no CRC.

        Where no batch can be, the segment is examined, and the walk goes on behind the damage.
        """
        end = self.size if stop is None else stop
        file = self.opened()
        pread, fd = file.pread, file.fd
        buffer, origin = b"", position
        lowest, highest = self.base_offset, self.base_offset + MAX_RELATIVE
        sound = position
        while position < end:
            if self.skips is not None and position in self.skips:
                position = sound = self.skips[position]
                continue
            at = position - origin
            if not 0 <= at <= len(buffer) - HEADER_BYTES:
                buffer, origin, at = pread(fd, _WALK_BYTES, position), position, 0
            if len(buffer) >= HEADER_BYTES:
                fields = unpack_header(buffer, at)
                base, length, _, magic, _, _, delta, _, _, _, _, _, _ = fields
                if (
                    HEADER_BYTES <= length + OVERHEAD <= self.size - position
                    and magic == MAGIC
                    and base >= lowest
                    and 0 <= delta <= highest - base
                ):
                    yield position, Header._make(fields)
                    lowest = base + delta + 1
                    sound, position = position, position + length + OVERHEAD
                    continue
            if self.examined:
                raise self._not_a_batch(position)
            self.examine()
            # The batch before this one may be what is damaged, and its length be wrong.
            position = self._sound_behind(sound, position)
            lowest = self.base_offset

    def _sound_behind(self, sound: int, position: int) -> int:
        """Where a walk goes on that has come from `sound` to damage at `position`."""
        for start, stop in (self.skips or {}).items():
            if start <= sound < stop or start <= position < stop:
                return stop
        return position

    def _not_a_batch(self, position: int) -> KafkaError:
        return KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{self.path(LOG)} holds no record batch at position {position}",
        )

    def _hop(self, position: int, entry: int | None, offset: int, limit: int) -> tuple[int, int]:
        """Go from batch to batch to the first that reaches `offset` or ends after `limit`.

        Its position and base offset, or the size and -1 at the end of the file. Starts at the
        entry's batch if that lies behind `position`; ValueError if the entry does not fit it.
        """
        expected = -1
        skips, lowest, highest = self.skips, self.base_offset, self.base_offset + MAX_RELATIVE
        if entry is not None and entry & POSITION_MASK > position:
            position = entry & POSITION_MASK
            expected = (entry >> 32) + self.base_offset
            if position >= self.size:
                raise ValueError(self.path(INDEX))
        size, file = self.size, self.opened()
        fd, pread = file.fd, file.pread
        # Often the first header is the result; a larger read would copy unused bytes.
        piece = HEADER_BYTES
        while position < size:
            if skips is not None and position in skips:
                position = skips[position]
                continue
            buffer = pread(fd, piece, position)
            piece = _WALK_BYTES
            at, last_header = 0, len(buffer) - HEADER_BYTES
            while at <= last_header:
                if skips is not None and position in skips:
                    break
                base, length, magic, delta = _unpack_hop(buffer, at)
                length += OVERHEAD
                last = base + delta
                if expected >= 0:
                    if last != expected:
                        raise ValueError(self.path(INDEX))
                    expected = -1
                if (
                    length < HEADER_BYTES
                    or magic != MAGIC
                    or position + length > size
                    or not lowest <= base <= last <= highest
                ):
                    raise self._not_a_batch(position)
                if last >= offset or position + length > limit:
                    return position, base
                position += length
                at += length
            if at == 0 and (skips is None or position not in skips):
                # Not even one header was left in the file.
                raise ValueError(self.path(INDEX)) if expected >= 0 else self._not_a_batch(position)
        return size, -1

    def locate(self, offset: int) -> tuple[int, int]:
        """The first batch that ends at or after `offset`: its position and base offset.

        The size and -1 if all batches end before it.
        """
        for _ in range(3):
            entry = floor_by_offset(self.offset_index(), offset - self.base_offset)
            try:
                return self._hop(0, entry, offset, MAX_RELATIVE)
            except ValueError:
                self.rebuild_indexes()
            except KafkaError:
                if self.examined:
                    raise
                self.examine()
        raise self._not_a_batch(0)

    def boundary(self, start: int, offset: int, limit: int) -> tuple[int, int]:
        """The last batch boundary not after `limit`, at least `start`, and the offset there.

        `offset` is that of the batch at `start`. The offset found is -1 at the segment's end.
        """
        for _ in range(3):
            index = self.offset_index()
            low = slot_by_offset(index, offset - self.base_offset)
            high = low + (limit - start) // self.index_interval + 2
            at = floor_by_position(index, limit, low, high)
            entry = index[at] if at >= 0 else None
            if self.bases is not None and at >= 0 and index[at] & POSITION_MASK > start:
                # Up to one index interval short of the limit, but without a look at the file.
                return index[at] & POSITION_MASK, self.bases[at]
            try:
                return self._hop(start, entry, _FAR_OFFSET, limit)
            except ValueError:
                self.rebuild_indexes()
            except KafkaError:
                if self.examined:
                    raise
                self.examine()
        raise self._not_a_batch(start)

    def locate_time(self, timestamp: int) -> int:
        """The position from which a record of at least that time may be found; not before."""
        for attempt in range(2):
            # An entry of an earlier time: several batches may have the same one, and a damaged
            # entry that names a later one of them looks like a valid one.
            entry = floor_by_time(self.time_index(), timestamp - 1)
            if entry is None:
                return 0
            found, relative = entry
            offset = self.base_offset + relative
            position, base = self.locate(offset)
            header = self.header_at(position) if base >= 0 else None
            if header and header.max_timestamp == found and header.last_offset == offset:
                return position
            if attempt == 0:
                self.rebuild_indexes()
        return 0

    # -- cutting --------------------------------------------------------------------------------

    def cut(self, position: int) -> None:
        """Make `position` the end of the file for good, and this segment the active one."""
        if self.sealed:
            offsets = self.offset_index()
            self.offsets = offsets if isinstance(offsets, array) else offsets.to_array()
            self.times = self.time_index().to_bytes()
            self._mapped_times = None
            self.sealed = False
        self.upper = None
        file = self.opened()
        self._disk.ftruncate(file.fd, position)
        self._disk.fdatasync(file.fd)
        self.size = position
        self.unchecked = min(self.unchecked, position)
        offsets = self.offsets if isinstance(self.offsets, array) else array("q")
        while offsets and offsets[-1] & POSITION_MASK >= position:
            offsets.pop()
            if self.bases is not None:
                self.bases.pop()
        self.offsets = offsets
        origin = (offsets[-1] & POSITION_MASK) if offsets else 0
        self._trim_times(offsets[-1] >> 32 if offsets else -1)
        self.index_due = origin + self.index_interval
        for _, header in self.walk(origin):
            if header.max_timestamp > self.largest_timestamp:
                self.largest_timestamp = header.max_timestamp
                self.largest_offset = header.last_offset

    def _trim_times(self, last_relative: int) -> None:
        times = self.times if self.times is not None else bytearray()
        while times and TIME_ENTRY.unpack_from(times, len(times) - TIME_ENTRY_BYTES)[1] > (
            last_relative
        ):
            del times[-TIME_ENTRY_BYTES:]
        self.times = times
        self.largest_timestamp, self.largest_offset = NO_TIMESTAMP, self.base_offset
        if times:
            timestamp, relative = TIME_ENTRY.unpack_from(times, len(times) - TIME_ENTRY_BYTES)
            self.largest_timestamp = timestamp
            self.largest_offset = self.base_offset + relative

    def header_at(self, position: int) -> Header:
        """The header of the batch at `position`."""
        file = self.opened()
        return read_header(file.pread(file.fd, HEADER_BYTES, position), 0)

    def read_batch(self, position: int, header: Header) -> bytes:
        """The bytes of the whole batch at `position`."""
        file = self.opened()
        return file.pread(file.fd, header.size_bytes, position)

    def remove_files(self) -> None:
        """Remove all files of this segment now; readers that hold the open file go on."""
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            remove_if_there(self._disk, self.path(suffix))
        self.release()

    def set_aside(self) -> list[str]:
        """Rename all files so that no restart finds them, and say which are left to remove."""
        paths = []
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            path = self.path(suffix)
            try:
                self._disk.rename(path, path + DELETED)
                paths.append(path + DELETED)
            except FileNotFoundError:
                continue
        self.release()
        return paths


def remove_if_there(disk: Disk, path: str) -> None:
    """Remove a file; one that is already gone is fine."""
    try:
        disk.remove(path)
    except FileNotFoundError:
        return
