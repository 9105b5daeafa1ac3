"""Reading batches with their checksums: in recovery, and before old bytes are first served.

A batch is checked when it is appended. The bytes that a segment had when it was opened may be
damaged: they are checked at the first read, and again after the file was closed because it was not
used. The checksum does not cover the base offset, which must fit between the offsets of the
neighbouring batches.
"""

import logging
from collections.abc import Iterator

from headrace.errors import ErrorCode, KafkaError
from headrace.log.indexes import POSITION_MASK, floor_by_position
from headrace.log.ranges import Ranges
from headrace.log.segment import MAX_RELATIVE, Segment
from headrace.log.segment_files import LOG
from headrace.log.segments import LogSegments
from headrace.wire.batch import (
    CHECKSUMMED_FROM,
    HEADER_BYTES,
    MAGIC,
    OVERHEAD,
    Header,
    read_header,
    unpack_header,
)
from headrace.wire.checksum import crc32c

_SCAN_BYTES = 1 << 20
_AHEAD_BYTES = 128 << 10
"""The bytes that one read checks at least, so that small reads that follow need no check."""
_CHECK_BYTES = 8 << 20
"""The bytes that one read checks at most: other clients wait for a few milliseconds."""

NO_OFFSET = -1

_logger = logging.getLogger("headrace.log")


def checked_batches(
    segment: Segment,
    gapless_from: int | None,
    start: int = 0,
    lowest: int | None = None,
    piece: int = _SCAN_BYTES,
    upper: int | None = None,
) -> Iterator[tuple[int, Header]]:
    """Position and header of each batch until the first that is torn, damaged or out of order.

    From the offset `gapless_from` on, each must begin exactly where the one before it ended. The
    first, at `start`, has no offset below `lowest`; none has one at `upper` or above. The file is
    read in pieces of that many bytes.
    """
    file, size = segment.opened(), segment.size
    fd, pread = file.fd, file.pread
    buffer, origin, position = b"", start, start
    view = memoryview(buffer)
    lowest = segment.base_offset if lowest is None else lowest
    highest = segment.base_offset + MAX_RELATIVE
    highest = highest if upper is None else min(highest, upper - 1)
    while size - position >= HEADER_BYTES:
        at = position - origin
        if at + HEADER_BYTES > len(buffer):
            buffer, origin, at = pread(fd, piece, position), position, 0
            view = memoryview(buffer)
            if len(buffer) < HEADER_BYTES:
                return
        fields = unpack_header(buffer, at)
        base, length, _, magic, crc, _, delta, _, _, _, _, _, _ = fields
        length += OVERHEAD
        if (
            length < HEADER_BYTES
            or position + length > size
            or magic != MAGIC
            or base < lowest
            or (base > lowest and gapless_from is not None and lowest >= gapless_from)
            or not 0 <= delta <= highest - base
        ):
            return
        if at + length > len(buffer):
            wanted = max(length, piece)
            buffer, origin, at = pread(fd, wanted, position), position, 0
            view = memoryview(buffer)
            if len(buffer) < length:
                return
        if crc32c(view[at + CHECKSUMMED_FROM : at + length]) != crc:
            return
        # Of two batches that overlap, the one after a gap has the wrong offset.
        if base > lowest and _overlaps_next(segment, position + length, base + delta):
            return
        yield position, Header._make(fields)
        lowest = base + delta + 1
        position += length


def check(segment: Segment, position: int, stop: int, upper: int) -> tuple[int, int | None]:
    """The end of the valid batches from `position` on, at most `stop`, and the offset after them.

    The offset is None if all batches up to `stop` are valid, and -1 before a hole: the next read
    has to look up its position. `upper` is the offset after the segment.
    KafkaError 2 if the first batch is damaged.
    """
    for hole in segment.holes.known:
        # A read also ends at a hole without bytes: the next read must report it.
        at = hole.start if hole.start >= 0 else segment.locate(hole.following)[0]
        if position < at < stop:
            whole, following = _check(segment, position, at, upper)
            return whole, NO_OFFSET if following is None else following
    return _check(segment, position, stop, upper)


def _check(segment: Segment, position: int, stop: int, upper: int) -> tuple[int, int | None]:
    if segment.checked is None:
        segment.checked = Ranges()
    start = segment.checked.reach(position)
    if start >= min(stop, segment.unchecked):
        return stop, None
    whole, following = start, _offset_before(segment, start)
    enough = min(max(stop, start + _AHEAD_BYTES), start + _CHECK_BYTES)
    for at, header in checked_batches(segment, None, start, following, _AHEAD_BYTES, upper):
        whole, following = at + header.size_bytes, header.next_offset
        if whole >= enough:
            break
    if whole == position:
        if not segment.holes.examined:
            segment.examine()
            raise DamageFound
        raise _damaged(segment, position)
    segment.checked.add(position, whole)
    return (stop, None) if whole >= stop else (whole, following)


class DamageFound(Exception):
    """Damage was found and recorded in the segment: the caller reads again."""


def _damaged(segment: Segment, position: int) -> KafkaError:
    error = KafkaError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{segment.files.path(LOG)} is damaged at position {position}; the batch there is not "
        "served. It is fetched from another replica if one is in sync. Otherwise readers must skip "
        "it; `headrace log verify` shows what is lost",
    )
    if segment.holes.reported_at != position:  # logged once
        segment.holes.reported_at = position
        _logger.error("%s", error.message)
    return error


def checked_stop(
    segment: Segment,
    position: int,
    stop: int,
    following: int,
    segments: LogSegments,
    end: int,
) -> tuple[int, int]:
    """Where a read from `position` to `stop` must end, and the offset there (`following`).

    `segments` and `end` are the log's.
    """
    behind = segments.after(segment)
    upper = end if behind is None else behind.base_offset
    whole, offset = check(segment, position, stop, upper)
    return whole, following if offset is None else offset


def _offset_before(segment: Segment, position: int) -> int:
    """The lowest offset that a batch at `position` can have, by the one before it."""
    if position == 0:
        return segment.base_offset
    for rebuilt in (False, True):
        index = segment.offset_index()
        at = floor_by_position(index, position - 1, 0, len(index))
        behind, lowest = index[at] & POSITION_MASK if at >= 0 else 0, segment.base_offset
        try:
            for start, header in segment.walk(behind, position):
                behind, lowest = start + header.size_bytes, header.next_offset
        except KafkaError:
            if rebuilt:
                raise
        if behind == position or (segment.holes.skips or {}).get(behind) == position:
            return lowest
        if not rebuilt:
            segment.rebuild_indexes()
    return segment.base_offset + MAX_RELATIVE  # no batch ends at this position


def _overlaps_next(segment: Segment, position: int, last: int) -> bool:
    """Whether there is a batch at `position` whose offsets begin at `last` or before."""
    file = segment.opened()
    data = file.pread(file.fd, HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        return False
    header = read_header(data, 0)
    return header.magic == MAGIC and header.base_offset <= last
