"""Finding the place of an offset in the row of segments that make a log."""

from bisect import bisect_right
from collections.abc import Sequence

from headrace.log.segment import Segment


def index_of(segments: Sequence[Segment], offset: int) -> int:
    """Which segment holds the offset, or would; 0 for one before the first."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


def next_segment(segments: Sequence[Segment], segment: Segment) -> Segment | None:
    """The segment after this one, or None if it is the last."""
    if segment is segments[-1]:
        return None
    return segments[bisect_right(segments, segment.base_offset, key=_base_offset)]


def locate(segments: Sequence[Segment], offset: int) -> tuple[Segment, int]:
    """Segment and position of the first batch that ends at or after `offset`."""
    index = index_of(segments, offset)
    while True:
        segment = segments[index]
        position, header = segment.locate(offset)
        if header is not None or index + 1 == len(segments):
            return segment, position
        index += 1  # compaction left a gap at the segment's end


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
