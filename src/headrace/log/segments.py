"""The segments of one log: finding the place of an offset, and the end of a read."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from headrace.errors import ErrorCode, KafkaError
from headrace.log.segment import Segment
from headrace.log.segment_files import LOG
from headrace.log.slices import Slice

# A read remembers the position of the next offset; enough for every consumer and follower of one
# partition that keeps up, small enough for ten thousand partitions.
_POSITIONS_KEPT = 32


class LogSegments(list[Segment]):
    """The segments of one log, oldest first; the last one is active.

    `end` of the methods is the log end offset.
    """

    __slots__ = ("positions",)

    def __init__(self, segments: Iterable[Segment]) -> None:
        super().__init__(segments)
        self.positions: dict[int, tuple[Segment, int]] = {}
        """Segment and position of offsets at which reads ended, oldest first."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all batches."""
        return sum(segment.size for segment in self)

    def index_of(self, offset: int) -> int:
        """Which segment holds the offset, or would; 0 for one before the first."""
        return max(bisect_right(self, offset, key=_base_offset) - 1, 0)

    def after(self, segment: Segment) -> Segment | None:
        """The segment after this one, or None if it is the last."""
        if segment is self[-1]:
            return None
        return self[bisect_right(self, segment.base_offset, key=_base_offset)]

    def locate(self, offset: int) -> tuple[Segment, int]:
        """Segment and position of the first batch that ends at or after `offset`.

        KafkaError 2 if the offset itself is lost.
        """
        index = self.index_of(offset)
        while True:
            segment = self[index]
            position, base = segment.locate(offset)
            if segment.holes.known:
                _refuse_lost(segment, offset)
            if base >= 0 or index + 1 == len(self):
                return segment, position
            if segment.last_named_offset() >= offset:  # the file has lost its end
                segment.rebuild_indexes()
                _refuse_lost(segment, offset)
            index += 1  # compaction left a gap at the segment's end

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Remember where the batch at `offset` begins: it is probably read next."""
        positions = self.positions
        positions[offset] = (segment, position)
        if len(positions) > _POSITIONS_KEPT:
            del positions[next(iter(positions))]

    def stop_at(self, segment: Segment, limit: int, end: int) -> tuple[int, int]:
        """Where in this segment the batches at `limit` and after begin, and that offset."""
        following = self.after(segment)
        if following is not None and following.base_offset <= limit:
            return segment.size, following.base_offset
        if limit >= end:
            return segment.size, end
        found_in, position = self.positions.get(limit, (None, -1))
        if found_in is segment:
            return position, limit
        return segment.locate(limit)[0], limit

    def offset_after(self, offset: int, piece: Slice, end: int) -> int:
        """The offset after the last batch of a slice that was just read at `offset`."""
        index = self.index_of(offset)
        while self[index].file is not piece.file:
            index += 1  # as in `locate`
        stop = piece.position + piece.length
        for _, header in self[index].walk(stop):
            return header.base_offset
        return self[index + 1].base_offset if index + 1 < len(self) else end

    def holes(self, end: int) -> list[tuple[int, int]]:
        """The known damage: ranges of lost offsets, each with the first offset after it."""
        found = []
        for at, segment in enumerate(self):
            if segment.holes.known:
                upper = self[at + 1].base_offset if at + 1 < len(self) else end
                found += [
                    (hole.first, min(hole.following, upper)) for hole in segment.known_holes()
                ]
        return [(first, behind) for first, behind in found if first < behind]

    def exchange(self, old: Sequence[Segment], fresh: Segment) -> None:
        """Replace the adjacent segments `old` by `fresh`."""
        first = self.index(old[0])
        self[first : first + len(old)] = [fresh]
        self.positions = {
            offset: (segment, position)
            for offset, (segment, position) in self.positions.items()
            if segment not in old
        }


def _refuse_lost(segment: Segment, offset: int) -> None:
    """KafkaError 2 if the offset lies in a hole."""
    for hole in segment.known_holes():
        if hole.first <= offset < hole.following:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{segment.files.path(LOG)} is damaged: the offsets {hole.first} to "
                f"{hole.following - 1} cannot be read; continue at {hole.following}",
            )


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
