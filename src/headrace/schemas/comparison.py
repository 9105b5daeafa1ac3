"""Common parts of the comparisons of all formats: the names of both schemas, the limit."""

from dataclasses import dataclass

from headrace.schemas.errors import TooManyPairs

COMPARED_PAIRS = 200_000
"""The default limit of compared pairs of types."""


@dataclass(frozen=True, slots=True)
class Sides:
    """The names of the two schemas in messages, and the limit of a comparison."""

    reader: str
    writer: str
    pairs: int = COMPARED_PAIRS
    """The limit of compared pairs of types."""


class Budget:
    """Counts the pairs of one comparison and ends it at the limit."""

    __slots__ = ("_left", "_pairs")

    def __init__(self, pairs: int) -> None:
        self._pairs = self._left = pairs

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyPairs(self._pairs)
