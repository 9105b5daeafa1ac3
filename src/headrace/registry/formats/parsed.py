"""What every type of schema offers once it is parsed, and what it is parsed with."""

from dataclasses import dataclass
from typing import Protocol

from headrace.registry import limits
from headrace.registry.failures import InvalidSchema


@dataclass(frozen=True, slots=True)
class Dependency:
    """A schema that another one refers to by this name; its own dependencies come before it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Sides:
    """The two schemas of a comparison as messages call them, and how long it may take."""

    reader: str
    writer: str
    pairs: int = limits.COMPARISONS
    """Of types that are compared at most."""


class Parsed(Protocol):
    """A schema that is valid."""

    @property
    def kind(self) -> str: ...

    @property
    def canonical(self) -> str:
        """The text that is stored; the same for two spellings of one schema."""

    def normalized(self) -> str:
        """The text where clients ask to normalise: what has no meaning is put in one order."""

    def formatted(self, form: str) -> str:
        """The text in one of the type's other forms."""

    def problems(self, writer: "Parsed", sides: Sides) -> list[str]:
        """Why data of `writer` cannot be read with this schema; empty if it can."""


class TooManyPairs(InvalidSchema):
    """Schemas that cannot be compared in the steps that are allowed."""

    def __init__(self, pairs: int) -> None:
        super().__init__(f"The schemas are too large to compare: more than {pairs} pairs of types")


class Budget:
    """Counts the steps of one comparison and ends it where it grows out of hand."""

    __slots__ = ("_left", "_pairs")

    def __init__(self, pairs: int) -> None:
        self._pairs = self._left = pairs

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyPairs(self._pairs)


def unknown_form(form: str, known: str) -> InvalidSchema:
    return InvalidSchema(f"There is no format {form[:50]!r} of this schema type; known: {known}")
