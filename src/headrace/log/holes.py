"""The known damage of one segment; `damage.py` finds it."""

from collections.abc import Iterable
from typing import ClassVar, NamedTuple


class Hole(NamedTuple):
    """A damaged part of a segment."""

    start: int
    """Position of its first byte; -1 if only its offsets are known."""
    stop: int
    first: int
    """The first offset that is lost."""
    following: int
    """The first offset after it."""


class Holes:
    """The holes of one segment, oldest first, and how a walk over its batches avoids them."""

    any_known: ClassVar[bool] = False
    """Whether this process has found any damage."""

    __slots__ = ("examined", "known", "reported_at", "skips")

    def __init__(self) -> None:
        self.known: tuple[Hole, ...] = ()
        self.examined = False
        """Whether all bytes of the segment were examined for damage."""
        self.skips: dict[int, int] | None = None
        """By the position at which a hole begins, that of the next batch; None without holes."""
        self.reported_at = -1
        """The position of the damaged batch that was last logged."""

    def use(self, holes: Iterable[Hole]) -> None:
        """Replace the known holes."""
        self.known = tuple(sorted(holes, key=lambda hole: hole.first))
        skips = {hole.start: hole.stop for hole in self.known if hole.start < hole.stop}
        self.skips = skips or None
        if self.known:
            Holes.any_known = True

    def position_after(self, sound: int, position: int) -> int:
        """Where a walk continues that found a batch at `sound` and damage at `position`."""
        for start, stop in (self.skips or {}).items():
            if start <= sound < stop or start <= position < stop:
                return stop
        return position
