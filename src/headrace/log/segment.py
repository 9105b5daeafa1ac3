"""One segment of a partition: a `.log` file of whole record batches, read by offset and by time.

The names of the files are in `segment_files.py`, the indexes in `segment_indexes.py`. Every look-up
checks the batch that the index points to, and rebuilds an index that is wrong. `log.py` decides
what to append, when to roll and how far a reader may read.
"""

import logging
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator

from headrace.disk import CREATE, READ_WRITE, TRUNCATE, Disk, copy_file
from headrace.errors import ErrorCode, KafkaError
from headrace.log.holes import Hole, Holes
from headrace.log.indexes import (
    POSITION_MASK,
    OffsetIndex,
    TimeEntries,
    floor_by_offset,
    floor_by_position,
    floor_by_time,
    last_time,
    slot_by_offset,
)
from headrace.log.ranges import Ranges
from headrace.log.segment_files import INDEX, LOG, TIME_INDEX, SegmentFiles
from headrace.log.segment_indexes import NO_TIMESTAMP, SegmentIndexes, UnusableIndex
from headrace.log.slices import SegmentFile
from headrace.wire.batch import HEADER_BYTES, MAGIC, OVERHEAD, Header, read_header, unpack_header

MAX_RELATIVE = 2**31 - 1
NEW_FILE = READ_WRITE | CREATE | TRUNCATE
"""To open the empty `.log` file of a new segment."""

# Look-ups walk the headers of about one index interval; a larger read would be wasted.
_WALK_BYTES = 8192

_logger = logging.getLogger("headrace.log")
# Base offset, length, magic and last offset delta: all that going to the next batch takes.
_unpack_hop = struct.Struct(">qi4xB6xi").unpack_from
_FAR_OFFSET = 2**63 - 1


class Segment:
    """The state of one segment; `Log.append` changes the active one's fields in place."""

    __slots__ = (
        "_seen_size", "base_offset", "checked", "file", "files", "first_timestamp", "holes",
        "indexes", "on_release", "sealed", "size", "unchecked", "upper", "used",
    )  # fmt: skip

    def __init__(
        self, disk: Disk, folder: str, base_offset: int, size: int, index_interval: int
    ) -> None:
        self.files = SegmentFiles(disk, folder, base_offset)
        self.indexes = SegmentIndexes(self.files, index_interval)
        self.holes = Holes()
        self.base_offset = base_offset
        self.size = size
        self.sealed = False
        self.file: SegmentFile | None = None
        """The open `.log` file."""
        self.unchecked = size
        """Below this position, a read has to check the checksums; see `checked.py`."""
        self.checked: Ranges | None = None
        self.upper: int | None = None
        """The base offset of the next segment, where it is known."""
        self.used = False
        """Whether the file was read since the last call of `used_lately`."""
        self._seen_size = size
        self.on_release: Callable[[], None] | None = None
        """Called when the open file is closed, to clear caches of its descriptor."""
        self.first_timestamp = NO_TIMESTAMP

    def opened(self, flags: int = READ_WRITE) -> SegmentFile:
        """The open `.log` file; hold on to it while you use its descriptor."""
        file = self.file
        if file is None:
            file = self.file = SegmentFile(self.files.disk, self.files.path(LOG), flags)
            self.files.disk.open_files.add(self)
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
            self.indexes.unload()
            self.unchecked = self.size
            self.checked = None
        self.files.disk.open_files.forget(self)

    # -- damage -------------------------------------------------------------------------------

    def use_holes(self, holes: Iterable[Hole]) -> None:
        """Set the known damage."""
        self.holes.use(holes)
        if self.holes.known:
            self.unchecked, self.checked = self.size, None  # reads have to stop at a hole

    def examine(self) -> None:
        """Find all damage with checksums; walks and look-ups then skip it."""
        from headrace.log.damage import examine

        self.holes.examined = True  # before the search, which may find damage itself
        examine(self)
        for hole in self.holes.known:
            _logger.error(
                "%s is damaged at position %d: the offsets %d to %d cannot be read. They are "
                "fetched from another replica if one is in sync. Otherwise readers must skip them; "
                "`headrace log verify` shows what is lost",
                self.files.path(LOG), hole.start, hole.first, hole.following - 1,
            )  # fmt: skip
        self.rebuild_indexes()

    def known_holes(self) -> tuple[Hole, ...]:
        """The known damage; a hole at the end of the file ends where a batch was appended since."""
        holes = self.holes.known
        if holes and holes[-1].following > self.base_offset + MAX_RELATIVE:
            *others, last = holes
            for _, header in self.walk(last.stop):
                self.holes.use((*others, last._replace(following=header.base_offset)))
                break
        return self.holes.known

    # -- indexing -----------------------------------------------------------------------------

    def seal(self) -> None:
        """End the segment: it gets no more batches, and its index files are mapped when needed."""
        self.sealed = True
        self.on_release = None
        self.indexes.unload()

    def sync(self) -> None:
        """Bring the log file to the disk, and a sealed segment's indexes too."""
        # Keep a reference, so that the owner cannot close it during the sync; if it is closed
        # already, the file that is opened here is not kept.
        file = self.file or SegmentFile(self.files.disk, self.files.path(LOG))
        self.files.disk.fdatasync(file.fd)
        if self.sealed:
            self.files.sync_indexes()

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batches."""
        _logger.warning("rebuilding the indexes of %s", self.files.path(LOG))
        holes, indexes = self.holes, self.indexes
        examined, named, end = holes.examined, self.last_named_offset(), self.base_offset
        indexes.reset()
        for position, header in self.walk(0):
            if holes.examined != examined:
                break
            end = header.next_offset
            indexes.add_batch(position, header.base_offset, end - 1, header.max_timestamp)
        if holes.examined != examined:
            return  # damage was found, and the indexes were built from the undamaged batches
        if named >= end and not any(hole.following > end for hole in holes.known):
            _logger.error(
                "%s ends before offset %d, which its index names", self.files.path(LOG), named
            )
            self.use_holes([*holes.known, Hole(self.size, self.size, end, named + 1)])
        if self.sealed:
            if named < end:
                indexes.write(sync=False)
            else:
                indexes.to_bytes()  # keep the files: only they show what is lost
            indexes.use_as_sealed()

    def last_named_offset(self) -> int:
        """The last offset that the index files of a sealed segment name, or -1."""
        if not self.sealed or self.upper is None:
            return -1
        return self.indexes.last_named_offset(self.upper)

    def offset_index(self) -> OffsetIndex:
        """The offset index, mapped if this segment is sealed, and rebuilt if it is unusable."""
        indexes = self.indexes
        if indexes.offsets is not None:
            return indexes.offsets
        if not self.sealed:
            return array("q")
        try:
            indexes.offsets = indexes.map_offsets(self.size)
        except UnusableIndex:
            self.rebuild_indexes()
            return self.offset_index()
        self.files.disk.open_files.add(self)
        return indexes.offsets

    def time_index(self) -> TimeEntries:
        """The time index, mapped if this segment is sealed, and rebuilt if it is unusable."""
        indexes = self.indexes
        if not self.sealed:
            return TimeEntries(indexes.times or b"")
        if indexes.mapped_times is not None:
            return indexes.mapped_times
        try:
            entries = indexes.map_times()
            # Records without timestamps leave the time index empty.
            usable = bool(entries) or self.first_time() < 0
        except UnusableIndex:
            entries, usable = TimeEntries(b""), False
        if self.size and not usable:
            self.rebuild_indexes()
            return self.indexes.mapped_times or TimeEntries(b"")
        indexes.mapped_times = entries
        self.files.disk.open_files.add(self)
        return entries

    def latest_time(self) -> tuple[int, int]:
        """The largest timestamp, and the last offset of the batch that holds it."""
        indexes = self.indexes
        unknown = self.sealed and indexes.largest_timestamp == NO_TIMESTAMP
        if unknown and (times := self.time_index()):
            # Use the last entry of the time index if it matches the batches; else rebuild it.
            offsets = self.offset_index()
            timestamp, relative = times[len(times) - 1]
            offset = self.base_offset + relative
            position, base = found = self.locate(offset)
            # The last entry has the largest timestamp: batches after the last indexed one have
            # no larger one.
            if offsets:
                indexed, _ = self.locate(self.base_offset + (offsets[len(offsets) - 1] >> 32))
                position = max(position, indexed)
            if indexes.largest_timestamp == NO_TIMESTAMP:  # else an index was rebuilt
                matches = (
                    0 <= base <= offset and self.header_at(found[0]).max_timestamp == timestamp
                )
                later = (header.max_timestamp > timestamp for _, header in self.walk(position))
                if not matches or any(later):
                    self.rebuild_indexes()
                else:
                    indexes.largest_timestamp, indexes.largest_offset = timestamp, offset
        return indexes.largest_timestamp, indexes.largest_offset

    def newest_ms(self) -> int:
        """The largest time of its records, or where they have none, that of its last write.

        A sealed segment's time index ends with it, and reading that much keeps no file open.
        """
        newest = self.indexes.largest_timestamp
        if newest == NO_TIMESTAMP and self.sealed:
            newest = last_time(self.files.disk, self.files.path(TIME_INDEX))
        if newest == NO_TIMESTAMP:
            newest = self.latest_time()[0]
        return newest if newest >= 0 else self.files.disk.modified_ms(self.files.path(LOG))

    def first_time(self) -> int:
        """The largest timestamp of the first batch; -1 of an empty segment."""
        for _, header in self.walk(0):
            return header.max_timestamp
        return NO_TIMESTAMP

    # -- look-ups --------------------------------------------------------------------------------

    def walk(self, position: int, stop: int | None = None) -> Iterator[tuple[int, Header]]:
        """Position and header of each batch from a batch's beginning on; checks no CRC.

        If a batch is not valid, the segment is examined, and the walk continues after the damage.
        """
        end = self.size if stop is None else stop
        file = self.opened()
        pread, fd = file.pread, file.fd
        buffer, origin = b"", position
        lowest, highest = self.base_offset, self.base_offset + MAX_RELATIVE
        sound, holes = position, self.holes
        while position < end:
            if holes.skips is not None and position in holes.skips:
                position = sound = holes.skips[position]
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
            if holes.examined:
                raise _not_a_batch(self.files.path(LOG), position)
            self.examine()
            # The batch before this one may be what is damaged, and its length be wrong.
            position = holes.position_after(sound, position)
            lowest = self.base_offset

    def _hop(self, position: int, entry: int | None, offset: int, limit: int) -> tuple[int, int]:
        """Go from batch to batch to the first that reaches `offset` or ends after `limit`.

        Its position and base offset, or the size and -1 at the end of the file. Starts at the
        entry's batch if that is after `position`; UnusableIndex if the entry does not fit it.
        """
        expected = -1
        skips, lowest, highest = self.holes.skips, self.base_offset, self.base_offset + MAX_RELATIVE
        if entry is not None and entry & POSITION_MASK > position:
            position = entry & POSITION_MASK
            expected = (entry >> 32) + self.base_offset
            if position >= self.size:
                raise UnusableIndex(self.files.path(INDEX))
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
                        raise UnusableIndex(self.files.path(INDEX))
                    expected = -1
                if (
                    length < HEADER_BYTES
                    or magic != MAGIC
                    or position + length > size
                    or not lowest <= base <= last <= highest
                ):
                    raise _not_a_batch(self.files.path(LOG), position)
                if last >= offset or position + length > limit:
                    return position, base
                position += length
                at += length
            if at == 0 and (skips is None or position not in skips):
                # Not even one header was left in the file.
                if expected >= 0:
                    raise UnusableIndex(self.files.path(INDEX))
                raise _not_a_batch(self.files.path(LOG), position)
        return size, -1

    def locate(self, offset: int) -> tuple[int, int]:
        """The first batch that ends at or after `offset`: its position and base offset.

        The size and -1 if all batches end before it.
        """
        for _ in range(3):
            index = self.indexes.offsets
            if index is None:
                index = self.offset_index()
            entry = floor_by_offset(index, offset - self.base_offset)
            try:
                return self._hop(0, entry, offset, MAX_RELATIVE)
            except UnusableIndex:
                self.rebuild_indexes()
            except KafkaError:
                if self.holes.examined:
                    raise
                self.examine()
        raise _not_a_batch(self.files.path(LOG), 0)

    def boundary(self, start: int, offset: int, limit: int) -> tuple[int, int]:
        """The last batch boundary not after `limit`, at least `start`, and the offset there.

        `offset` is that of the batch at `start`. The offset found is -1 at the segment's end.
        """
        for _ in range(3):
            index, bases = self.indexes.offsets, self.indexes.bases
            if index is None:
                index = self.offset_index()
            low = slot_by_offset(index, offset - self.base_offset)
            high = low + (limit - start) // self.indexes.interval + 2
            at = floor_by_position(index, limit, low, high)
            entry = index[at] if at >= 0 else None
            if bases is not None and at >= 0 and index[at] & POSITION_MASK > start:
                # Up to one index interval below the limit, but the file need not be read.
                return index[at] & POSITION_MASK, bases[at]
            try:
                return self._hop(start, entry, _FAR_OFFSET, limit)
            except UnusableIndex:
                self.rebuild_indexes()
            except KafkaError:
                if self.holes.examined:
                    raise
                self.examine()
        raise _not_a_batch(self.files.path(LOG), start)

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

    # -- truncation ---------------------------------------------------------------------------

    def truncate(self, position: int) -> None:
        """Truncate the file at `position`, durably, and make this segment the active one."""
        own_file(self, position)
        if self.sealed:
            self.indexes.use_as_active(self.offset_index(), self.time_index())
            self.sealed = False
        self.upper = None
        file, disk = self.opened(), self.files.disk
        disk.ftruncate(file.fd, position)
        disk.fdatasync(file.fd)
        self.size = position
        self.unchecked = min(self.unchecked, position)
        indexes = self.indexes
        for _, header in self.walk(indexes.truncate(position)):
            if header.max_timestamp > indexes.largest_timestamp:
                indexes.largest_timestamp = header.max_timestamp
                indexes.largest_offset = header.last_offset

    def header_at(self, position: int) -> Header:
        """The header of the batch at `position`."""
        file = self.opened()
        return read_header(file.pread(file.fd, HEADER_BYTES, position), 0)

    def read_batch(self, position: int, header: Header) -> bytes:
        """The bytes of the whole batch at `position`."""
        file = self.opened()
        return file.pread(file.fd, header.size_bytes, position)

    def remove_files(self) -> None:
        """Remove all files now; readers that have the log file open are not affected."""
        self.files.remove()
        self.release()


def own_file(segment: Segment, length: int) -> None:
    """Replace a `.log` file that another log shares, before it is changed in place.

    The copy has the first `length` bytes. A file that is not shared stays.
    """
    files = segment.files
    disk, path = files.disk, files.path(LOG)
    if disk.links(path) == 1:
        return
    copy_file(disk, segment.opened().fd, path + ".tmp", length)
    disk.rename(path + ".tmp", path)
    disk.sync_folder(files.folder)
    segment.release()  # slices keep the shared file open


def _not_a_batch(path: str, position: int) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"{path} holds no record batch at position {position}"
    )
