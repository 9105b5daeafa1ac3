"""The two indexes of one segment: which batches get an entry, in memory and on disk.

The active segment has its indexes in memory and writes them when it is sealed or closed: after a
crash it is scanned anyway, so writing them earlier has no benefit. A sealed segment's index files
are mapped at the first look-up. How entries are packed and searched is in `indexes.py`. Whether an
index matches the batches is checked in `segment.py`, which also rebuilds it from them.
"""

from array import array
from contextlib import suppress

from headrace.disk import Buffer, write_file
from headrace.log.indexes import (
    POSITION_MASK,
    TIME_ENTRY,
    TIME_ENTRY_BYTES,
    OffsetEntries,
    OffsetIndex,
    TimeEntries,
    offsets_to_bytes,
    pack_entry,
    plausible_offsets,
)
from headrace.log.segment_files import INDEX, TIME_INDEX, SegmentFiles, remove_shared

NO_TIMESTAMP = -1


class UnusableIndex(ValueError):
    """An index file is missing, torn or cannot be its segment's."""


class SegmentIndexes:
    """The offset index and the time index; `Log.append` changes the fields in place."""

    __slots__ = (
        "_files", "bases", "due", "interval", "largest_offset", "largest_timestamp",
        "mapped_times", "offsets", "times",
    )  # fmt: skip

    def __init__(self, files: SegmentFiles, interval: int) -> None:
        self._files = files
        self.interval = interval
        """`index.interval.bytes`."""
        self.due = interval
        """A batch that begins after this position gets an index entry."""
        self.offsets: OffsetIndex | None = None
        """The offset index; None if it has no entries, or if its file is not mapped yet."""
        self.bases: array[int] | None = None
        """The first offset of each indexed batch; only while they are known without reading."""
        self.times: bytearray | None = None
        """The entries of the time index of an active segment."""
        self.mapped_times: TimeEntries | None = None
        """The time index of a sealed segment, if it was looked up."""
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_offset = files.base_offset
        """The last offset of the first batch that has the largest timestamp."""

    def add_batch(
        self, position: int, base_offset: int, last_offset: int, max_timestamp: int
    ) -> None:
        """Add the batch at `position`; it gets an entry if one is due."""
        if max_timestamp > self.largest_timestamp:
            self.largest_timestamp = max_timestamp
            self.largest_offset = last_offset
        if position > self.due:
            self.add_entry(position, base_offset, last_offset)

    def add_entry(self, position: int, base_offset: int, last_offset: int) -> None:
        """Add an entry to both indexes."""
        self.due = position + self.interval
        offsets = self.offsets
        if offsets is None:
            offsets = self.offsets = array("q")
            self.bases = array("q")
        assert isinstance(offsets, array), "a sealed segment gets no index entries"
        offsets.append(pack_entry(last_offset - self._files.base_offset, position))
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
            relative = self.largest_offset - self._files.base_offset
            times += TIME_ENTRY.pack(self.largest_timestamp, relative)

    def is_full(self, index_bytes: int) -> bool:
        """Whether one of the indexes has reached `segment.index.bytes`."""
        offsets = len(self.offsets) if self.offsets is not None else 0
        times = len(self.times) // TIME_ENTRY_BYTES if self.times is not None else 0
        # One slot of the time index stays free for the entry that sealing adds.
        return offsets >= index_bytes // 8 or times >= index_bytes // TIME_ENTRY_BYTES - 1

    # -- files ----------------------------------------------------------------------------------

    def to_bytes(self) -> tuple[bytes, Buffer]:
        """The content of both files if the segment ends here: the time index gets a last entry."""
        self._add_time_entry()
        offsets = self.offsets if isinstance(self.offsets, array) else array("q")
        return offsets_to_bytes(offsets), self.times or b""

    def write(self, *, sync: bool) -> None:
        """Write both index files of an active segment."""
        offsets, times = self.to_bytes()
        disk = self._files.disk
        for path, data in (
            (self._files.path(INDEX), offsets),
            (self._files.path(TIME_INDEX), times),
        ):
            remove_shared(disk, path)
            write_file(disk, path, data, sync=sync)

    def load(self, log_bytes: int) -> None:
        """Read the files of an active segment into memory; UnusableIndex if that is impossible."""
        mapped_offsets, mapped_times = self.map_offsets(log_bytes), self.map_times()
        offsets, times = mapped_offsets.to_array(), mapped_times.to_bytes()
        self.offsets, self.times = offsets, times
        if offsets:
            self.due = (offsets[-1] & POSITION_MASK) + self.interval
        self._use_last_time()

    def map_offsets(self, log_bytes: int) -> OffsetEntries:
        """The file of the offset index, for a log file of that size; UnusableIndex."""
        path = self._files.path(INDEX)
        try:
            entries = OffsetEntries(self._files.disk.map_file(path))
        except FileNotFoundError as error:
            raise UnusableIndex(path) from error
        if entries.torn or not plausible_offsets(entries, log_bytes):
            raise UnusableIndex(path)
        return entries

    def map_times(self) -> TimeEntries:
        """The file of the time index; UnusableIndex."""
        path = self._files.path(TIME_INDEX)
        try:
            entries = TimeEntries(self._files.disk.map_file(path))
        except FileNotFoundError as error:
            raise UnusableIndex(path) from error
        if entries.torn:
            raise UnusableIndex(path)
        return entries

    def last_named_offset(self, upper: int) -> int:
        """The last offset below `upper` that the files name, or -1."""
        named, base_offset = [-1], self._files.base_offset
        with suppress(FileNotFoundError):
            offsets = OffsetEntries(self._files.disk.map_file(self._files.path(INDEX)))
            if offsets and not offsets.torn:
                named.append((offsets[len(offsets) - 1] >> 32) + base_offset)
        with suppress(UnusableIndex):
            times = self.map_times()
            if times:
                named.append(times[len(times) - 1][1] + base_offset)
        return max(offset for offset in named if offset < upper)

    # -- changes of the segment -----------------------------------------------------------------

    def unload(self) -> None:
        """Forget all entries: the segment is sealed, and its files have them."""
        self.offsets = self.bases = self.times = self.mapped_times = None

    def reset(self) -> None:
        """Begin with empty indexes, before the batches are added again."""
        self.unload()
        self.due = self.interval
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_offset = self._files.base_offset

    def use_as_sealed(self) -> None:
        """Use the entries in memory, which were just made, as those of a sealed segment."""
        self.mapped_times = TimeEntries(self.times or b"")
        self.times = None
        if self.offsets is None:
            self.offsets = array("q")

    def use_as_active(self, offsets: OffsetIndex, times: TimeEntries) -> None:
        """Take the entries of a sealed segment into memory: it becomes the active one."""
        self.offsets = offsets if isinstance(offsets, array) else offsets.to_array()
        self.times = times.to_bytes()
        self.mapped_times = None

    def truncate(self, position: int) -> int:
        """Remove the entries of batches from `position` on; where the last indexed one begins."""
        offsets = self.offsets if isinstance(self.offsets, array) else array("q")
        while offsets and offsets[-1] & POSITION_MASK >= position:
            offsets.pop()
            if self.bases is not None:
                self.bases.pop()
        self.offsets = offsets
        last_relative = offsets[-1] >> 32 if offsets else -1
        times = self.times if self.times is not None else bytearray()
        while times and TIME_ENTRY.unpack_from(times, len(times) - TIME_ENTRY_BYTES)[1] > (
            last_relative
        ):
            del times[-TIME_ENTRY_BYTES:]
        self.times = times
        self.largest_timestamp, self.largest_offset = NO_TIMESTAMP, self._files.base_offset
        self._use_last_time()
        origin = (offsets[-1] & POSITION_MASK) if offsets else 0
        self.due = origin + self.interval
        return origin

    def _use_last_time(self) -> None:
        """The last entry of the time index has the largest timestamp."""
        if self.times:
            last = len(self.times) - TIME_ENTRY_BYTES
            self.largest_timestamp, relative = TIME_ENTRY.unpack_from(self.times, last)
            self.largest_offset = self._files.base_offset + relative
