"""Which leader epoch began at which offset of one partition: `leader-epoch-checkpoint`.

The file is text: the line `0` (its version), the number of entries, then `epoch start_offset`
for each. Entries increase in both. It is written when data is flushed, not at each new epoch:
batches carry their epoch, so recovery finds those of unflushed data again.
"""

from bisect import bisect_right

FILE_NAME = "leader-epoch-checkpoint"
NO_EPOCH = -1


class EpochCache:
    """Epochs and their start offsets, oldest first."""

    __slots__ = ("_entries", "dirty")

    def __init__(self, entries: tuple[tuple[int, int], ...] = ()) -> None:
        self._entries = entries
        self.dirty = False

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset), both strictly increasing."""
        return self._entries

    @property
    def latest(self) -> int:
        """The newest epoch that has an entry, or -1."""
        return self._entries[-1][0] if self._entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Say that `epoch` begins at `start_offset`; an epoch that is not newer changes nothing."""
        if epoch <= self.latest:
            return
        # An epoch that wrote nothing loses its entry to the one that begins at the same offset.
        kept = tuple(entry for entry in self._entries if entry[1] < start_offset)
        self._entries = (*kept, (epoch, start_offset))
        self.dirty = True

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest known epoch not above `epoch`, and the offset at which it ended.

        (-1, -1) where nothing is known. This answers OffsetForLeaderEpoch.
        """
        entries = self._entries
        if epoch < 0 or not entries or epoch > entries[-1][0]:
            return NO_EPOCH, -1
        if epoch == entries[-1][0]:
            return epoch, log_end
        after = bisect_right(entries, epoch, key=_epoch)
        if after == 0:
            # Older than all that is left: it ended where the oldest known epoch began.
            return epoch, entries[0][1]
        return entries[after - 1][0], entries[after][1]

    def epoch_at(self, offset: int) -> int:
        """The epoch under which the record at `offset` was written, or -1."""
        at = bisect_right(self._entries, offset, key=_start)
        return self._entries[at - 1][0] if at else NO_EPOCH

    def truncate_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or after the new log end."""
        kept = tuple(entry for entry in self._entries if entry[1] < end_offset)
        if len(kept) != len(self._entries):
            self._entries = kept
            self.dirty = True

    def truncate_start(self, start_offset: int) -> None:
        """Forget epochs that ended before the new log start; the one that covers it stays."""
        at = bisect_right(self._entries, start_offset, key=_start)
        if at == 0 or (at == 1 and self._entries[0][1] == start_offset):
            return
        epoch = self._entries[at - 1][0]
        self._entries = ((epoch, start_offset), *self._entries[at:])
        self.dirty = True

    def adopt(self, entries: tuple[tuple[int, int], ...]) -> None:
        """Know exactly these."""
        self.dirty = self.dirty or entries != self._entries
        self._entries = entries

    def clear(self) -> None:
        """Forget everything."""
        self.dirty = self.dirty or bool(self._entries)
        self._entries = ()


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]
