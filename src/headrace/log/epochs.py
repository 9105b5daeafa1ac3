"""The start offset of each leader epoch of one partition: `leader-epoch-checkpoint`.

The file is text: the line `0` (its version), the number of entries, then `epoch start_offset`
for each. Entries increase in both. It is written when data is flushed, not at each new epoch:
batches carry their epoch, so recovery finds those of unflushed data again.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

FILE_NAME = "leader-epoch-checkpoint"
NO_EPOCH = -1


class EpochEntry(NamedTuple):
    """Where an epoch begins."""

    epoch: int
    start_offset: int


class EpochCache:
    """Epochs and their start offsets, oldest first."""

    __slots__ = ("_entries", "dirty")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries = tuple(map(EpochEntry._make, entries))
        self.dirty = False

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """Epochs and start offsets are both strictly increasing."""
        return self._entries

    @property
    def latest(self) -> int:
        """The newest epoch that has an entry, or -1."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that begins at `start_offset`; one that is not newer is ignored."""
        if epoch <= self.latest:
            return
        # An epoch without records is replaced by the next one, which begins at the same offset.
        kept = tuple(entry for entry in self._entries if entry.start_offset < start_offset)
        self._entries = (*kept, EpochEntry(epoch, start_offset))
        self.dirty = True

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and the offset at which it ended.

        (-1, -1) where nothing is known. This answers OffsetForLeaderEpoch.
        """
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1].epoch:
            return NO_EPOCH, -1
        if epoch == entries[-1].epoch:
            return epoch, log_end
        after = bisect_right(entries, epoch, key=_epoch)
        if after == 0:
            # Older than all that is left: it ended where the oldest known epoch began.
            return epoch, entries[0].start_offset
        return entries[after - 1].epoch, entries[after].start_offset

    def epoch_at(self, offset: int) -> int:
        """The epoch under which the record at `offset` was written, or -1."""
        at = bisect_right(self._entries, offset, key=_start)
        return self._entries[at - 1].epoch if at else NO_EPOCH

    def truncate_end(self, end_offset: int) -> None:
        """Remove epochs that begin at or after the new log end."""
        kept = tuple(entry for entry in self._entries if entry.start_offset < end_offset)
        if len(kept) != len(self._entries):
            self._entries = kept
            self.dirty = True

    def truncate_start(self, start_offset: int) -> None:
        """Remove epochs that ended before the new log start; the one that covers it stays."""
        at = bisect_right(self._entries, start_offset, key=_start)
        if at == 0 or (at == 1 and self._entries[0].start_offset == start_offset):
            return
        covering = self._entries[at - 1]._replace(start_offset=start_offset)
        self._entries = (covering, *self._entries[at:])
        self.dirty = True

    def adopt(self, entries: tuple[tuple[int, int], ...]) -> None:
        """Replace all entries."""
        self.dirty = self.dirty or entries != self._entries
        self._entries = tuple(map(EpochEntry._make, entries))

    def clear(self) -> None:
        """Forget everything."""
        self.dirty = self.dirty or bool(self._entries)
        self._entries = ()


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch


def _start(entry: EpochEntry) -> int:
    return entry.start_offset
