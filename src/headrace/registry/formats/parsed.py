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
    """How messages call the two schemas of a comparison."""

    reader: str
    writer: str


class Parsed(Protocol):
    """A schema that is valid."""

    @property
    def kind(self) -> str: ...

    @property
    def canonical(self) -> str:
        """The text that is kept: two spellings of one schema have the same."""

    def normalized(self) -> str:
        """The text where clients ask to normalise: what has no meaning is put in one order."""

    def formatted(self, form: str) -> str:
        """The text in one of the type's other forms."""

    def problems(self, writer: "Parsed", sides: Sides) -> list[str]:
        """Why data of `writer` cannot be read with this schema; empty if it can."""


class Budget:
    """Counts the steps of one comparison and ends it where it grows out of hand."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = limits.COMPARISONS

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise InvalidSchema(
                f"The schemas are too large to compare: more than {limits.COMPARISONS} pairs of "
                "types"
            )


def unknown_form(form: str, known: str) -> InvalidSchema:
    return InvalidSchema(f"There is no format {form[:50]!r} of this schema type; known: {known}")
