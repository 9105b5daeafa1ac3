"""Decides what the log of a fork takes from its parent. `build.py` makes it."""

from dataclasses import dataclass

from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.log.transactions import EndedTransactions


@dataclass(frozen=True, slots=True)
class ForkPlan:
    """What a fork takes from its parent."""

    parent: Log
    generation: int
    folder: str
    """The parent's folder."""
    linked: tuple[Segment, ...]
    """The parent's segments that get links."""
    copied: Segment | None
    """The parent's segment that is copied in part."""
    copied_bytes: int
    start_offset: int
    end_offset: int
    """The fork's own records begin here: at the cut, or after the batch that contains it."""
    transactions: EndedTransactions
    """Those that end in the linked segments."""
    later: tuple[tuple[Segment, int, int], ...]
    """Where markers are looked for: segments, the first position and the size of each."""
    unsynced_from: int
    """Segments from this offset on may not be on the disk yet."""


def plan_fork(parent: Log, cut: int) -> ForkPlan | None:
    """What a fork that begins with the parent's records below `cut` consists of.

    None if the parent does not have all of them yet, or has an open transaction below the cut.
    """
    parent.availability.check()
    folder, generation = parent.folder, parent.generation
    point = parent.durability.safe_point
    if parent.start_offset >= cut:
        nothing = EndedTransactions()
        return ForkPlan(parent, generation, folder, (), None, 0, cut, cut, nothing, (), point)
    first_open = parent.producers.first_open_transaction()
    if parent.end_offset < cut or (first_open is not None and first_open < cut):
        return None
    segments = parent.segments
    index = segments.index_of(cut)
    segment = segments[index]
    try:
        length, end = _place_of(segment, cut)
    except OSError as error:
        raise parent.availability.error(f"reading {folder} failed: {error}", error) from error
    linked = segments[:index]
    copied = None
    if length and segment.sealed and length == segment.size:
        linked.append(segment)
    elif length:
        copied = segment
    transactions = parent.transactions.copy(
        copied.base_offset if copied else end, [one.base_offset for one in linked]
    )
    later = [(segment, length, segment.size)]
    later += [(one, 0, one.size) for one in segments[index + 1 :]]
    return ForkPlan(
        parent, generation, folder, tuple(linked), copied, length, parent.start_offset, end,
        transactions, tuple(later), point,
    )  # fmt: skip


def _place_of(segment: Segment, cut: int) -> tuple[int, int]:
    """The position and the offset after the batch that contains the cut, or ends before it."""
    if cut <= segment.base_offset:
        return 0, cut
    position, base = segment.locate(cut)
    if not 0 <= base < cut:
        return position, cut
    header = segment.header_at(position)
    return position + header.size_bytes, header.next_offset
