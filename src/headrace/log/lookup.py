"""Finding the place of an offset in the row of segments that make a log."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from headrace.errors import ErrorCode, KafkaError
from headrace.log.segment import Segment
from headrace.log.segment_files import LOG
from headrace.log.slices import Slice


def index_of(segments: Sequence[Segment], offset: int) -> int:
    """Which segment holds the offset, or would; 0 for one before the first."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


def next_segment(segments: Sequence[Segment], segment: Segment) -> Segment | None:
    """The segment after this one, or None if it is the last."""
    if segment is segments[-1]:
        return None
    return segments[bisect_right(segments, segment.base_offset, key=_base_offset)]


def locate(segments: Sequence[Segment], offset: int) -> tuple[Segment, int]:
    """Segment and position of the first batch that ends at or after `offset`.

    KafkaError 2 if the offset itself is lost.
    """
    index = index_of(segments, offset)
    while True:
        segment = segments[index]
        position, base = segment.locate(offset)
        if segment.holes.known:
            _refuse_lost(segment, offset)
        if base >= 0 or index + 1 == len(segments):
            return segment, position
        if segment.last_named_offset() >= offset:  # the file has lost its end
            segment.rebuild_indexes()
            _refuse_lost(segment, offset)
        index += 1  # compaction left a gap at the segment's end


def stop_at(
    segments: Sequence[Segment],
    segment: Segment,
    limit: int,
    end: int,
    known: Mapping[int, tuple[Segment, int]],
) -> tuple[int, int]:
    """Where in this segment the batches at `limit` and after begin, and that offset.

    `end` is the log's; `known` are positions of offsets that need no search.
    """
    following = next_segment(segments, segment)
    if following is not None and following.base_offset <= limit:
        return segment.size, following.base_offset
    if limit >= end:
        return segment.size, end
    found_in, position = known.get(limit, (None, -1))
    if found_in is segment:
        return position, limit
    return segment.locate(limit)[0], limit


def offset_behind(segments: Sequence[Segment], offset: int, piece: Slice, end: int) -> int:
    """The offset behind the last batch of a piece that was read at `offset`; `end` is the log's."""
    index = index_of(segments, offset)
    while segments[index].file is not piece.file:
        index += 1  # as in `locate`
    stop = piece.position + piece.length
    for _, header in segments[index].walk(stop):
        return header.base_offset
    return segments[index + 1].base_offset if index + 1 < len(segments) else end


def _refuse_lost(segment: Segment, offset: int) -> None:
    """KafkaError 2 if the offset lies in a hole."""
    for hole in segment.known_holes():
        if hole.first <= offset < hole.following:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{segment.files.path(LOG)} is damaged: the offsets {hole.first} to "
                f"{hole.following - 1} cannot be read; go on at {hole.following}",
            )


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
