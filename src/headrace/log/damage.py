"""Damage in a log file: which bytes and offsets cannot be served, and where the next batch begins.

A batch is valid if its structure and its CRC-32C are right and its offsets fit between those of its
neighbours. After an invalid batch, the file is searched byte by byte for the next valid one. The
range between them is a hole: readers get error 2 for its offsets, everything else is served, and
its offsets are not used again. `damaged-offsets-checkpoint` in the partition's folder lists the
holes that recovery found, because a hole at the end of a file leaves no trace in the bytes:

    0                             version
    1                             number of lines that follow
    1500 2000                     first offset that is lost, first offset after the hole

`recovery.py` decides what is a hole and what is a torn tail.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from headrace.disk import Disk, read_file, replace_file
from headrace.log.checked import checked_batches
from headrace.log.checkpoints import decode_lines, encode_lines
from headrace.log.holes import Hole
from headrace.log.segment import MAX_RELATIVE, Segment
from headrace.log.segment_files import remove_if_there
from headrace.log.segments import LogSegments
from headrace.wire.batch import (
    CHECKSUMMED_FROM,
    HEADER_BYTES,
    MAGIC,
    read_header,
)
from headrace.wire.checksum import crc32c

FILE_NAME = "damaged-offsets-checkpoint"

_MAGIC_AT = 16
_SEARCH_BYTES = 1 << 20
_MAGIC_BYTE = bytes([MAGIC])

Read: TypeAlias = Callable[[int, int], bytes]
"""Reads a number of bytes at a position of a file."""


def examine(segment: Segment) -> None:
    """Find all holes of a segment with checksums, and record them in the segment."""
    found: list[Hole] = []
    position, lowest = 0, segment.base_offset
    behind = segment.upper or segment.base_offset + MAX_RELATIVE + 1
    while position < segment.size:
        for at, header in checked_batches(segment, None, position, lowest, upper=segment.upper):
            position, lowest = at + header.size_bytes, header.next_offset
        if position >= segment.size:
            break
        following = next_batch(segment, position, lowest, segment.upper)
        if following is None:
            found.append(Hole(position, segment.size, lowest, behind))
            break
        start, offset = following
        found.append(Hole(position, start, lowest, offset))
        position = start
    noted = [hole for hole in segment.holes.known if not any(overlaps(hole, one) for one in found)]
    segment.use_holes([*noted, *found])
    segment.holes.examined = True


def overlaps(one: Hole, other: Hole) -> bool:
    """Whether two holes have an offset in common."""
    return one.first < other.following and other.first < one.following


def next_batch(
    segment: Segment, position: int, lowest: int, upper: int | None, *, gapless: bool = False
) -> tuple[int, int] | None:
    """`find_batch` in a segment: all offsets are at least `lowest` and below `upper`."""
    file = segment.opened()
    highest = segment.base_offset + MAX_RELATIVE
    limits = (lowest, highest if upper is None else min(highest, upper - 1))

    def read(length: int, at: int) -> bytes:
        return file.pread(file.fd, length, at)

    return find_batch(read, segment.size, position, limits, upper, gapless=gapless)


def find_batch(
    read: Read,
    size: int,
    position: int,
    limits: tuple[int, int],
    upper: int | None = None,
    *,
    gapless: bool = False,
) -> tuple[int, int] | None:
    """Position and base offset of the first valid batch at `position` or after it, or None.

    All its offsets lie within `limits`. What follows it must be the end of the file or a batch that
    begins after it, so that bytes inside a record that look like a batch are not taken for one. In
    a log without gaps, a batch at `position` itself has the wrong offset; it is found only if the
    next batch, or `upper` at the end of the file, begins exactly where it ends.
    """
    lowest, highest = limits
    origin = position
    while size - origin >= HEADER_BYTES:
        # Candidates begin in the first part of the piece; their headers may reach into the rest.
        piece = read(_SEARCH_BYTES + HEADER_BYTES, origin)
        at = piece.find(_MAGIC_BYTE, _MAGIC_AT)
        while 0 <= at - _MAGIC_AT <= min(_SEARCH_BYTES - 1, len(piece) - HEADER_BYTES):
            header = read_header(piece, at - _MAGIC_AT)
            start = origin + at - _MAGIC_AT
            end, last = start + header.size_bytes, header.last_offset
            if (
                HEADER_BYTES <= end - start <= size - start
                and lowest <= header.base_offset <= last <= highest
                and crc32c(read(end - start, start)[CHECKSUMMED_FROM:]) == header.crc
            ):
                following = upper if end == size else _base_offset_at(read, size, end)
                exactly = gapless and start == position
                if following == last + 1 if exactly else _fits(following, last, end == size):
                    return start, header.base_offset
            at = piece.find(_MAGIC_BYTE, at + 1)
        origin += _SEARCH_BYTES
    return None


def _fits(following: int | None, last: int, at_end: bool) -> bool:
    return at_end or (following is not None and following > last)


def _base_offset_at(read: Read, size: int, position: int) -> int | None:
    """The base offset of the batch at `position`, if there can be one."""
    data = read(HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        return None
    header = read_header(data, 0)
    length = header.size_bytes
    whole = header.magic == MAGIC and HEADER_BYTES <= length <= size - position
    return header.base_offset if whole else None


def read_holes(disk: Disk, folder: str, names: Iterable[str]) -> list[tuple[int, int]]:
    """The holes that an earlier recovery found: first offset, and first offset after it."""
    if FILE_NAME not in names:
        return []
    try:
        rows = decode_lines(read_file(disk, f"{folder}/{FILE_NAME}"), 2)
        holes = [(int(first), int(following)) for first, following in rows]
    except ValueError:
        return []  # holes that are visible in the bytes will be found again
    return [(first, behind) for first, behind in holes if 0 <= first < behind < 1 << 63]


def assign_holes(
    segments: LogSegments, holes: Iterable[tuple[int, int]], start: int, end: int
) -> None:
    """Set the known lost offsets of each segment."""
    for first, following in holes:
        if start < following and first < end:
            segment = segments[segments.index_of(first)]
            hole = Hole(-1, -1, first, min(following, end))
            if not any(overlaps(hole, known) for known in segment.holes.known):
                segment.use_holes([*segment.holes.known, hole])


def write_holes(disk: Disk, folder: str, holes: Iterable[tuple[int, int]]) -> None:
    """Replace the list of holes; no file if there are none."""
    lines = [f"{first} {following}" for first, following in holes]
    path = f"{folder}/{FILE_NAME}"
    if lines:
        replace_file(disk, path, encode_lines(lines))
    else:
        remove_if_there(disk, path)
