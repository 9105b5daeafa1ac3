"""The interface of a parsed schema of any type, and the input of a comparison."""

from dataclasses import dataclass
from typing import Protocol

from headrace.registry import limits
from headrace.registry.failures import InvalidSchema


@dataclass(frozen=True, slots=True)
class SchemaDependency:
    """A schema that another one refers to by this name; its own dependencies come before it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Sides:
    """The names of the two schemas in messages, and the limit of a comparison."""

    reader: str
    writer: str
    pairs: int = limits.COMPARISONS
    """Most pairs of types that are compared."""


class Parsed(Protocol):
    """A valid schema."""

    @property
    def kind(self) -> str: ...

    @property
    def canonical(self) -> str:
        """The text that is stored; the same for two spellings of one schema."""

    def normalized(self) -> str:
        """The normalized text: parts whose order has no meaning are sorted."""

    def formatted(self, form: str) -> str:
        """The text in another format of the type."""

    def problems(self, writer: "Parsed", sides: Sides) -> list[str]:
        """Why data of `writer` cannot be read with this schema; empty if it can."""


class TooManyPairs(InvalidSchema):
    """The comparison exceeds the limit on pairs of types."""

    def __init__(self, pairs: int) -> None:
        super().__init__(f"The schemas are too large to compare: more than {pairs} pairs of types")


class Budget:
    """Counts the pairs of one comparison and ends it at the limit."""

    __slots__ = ("_left", "_pairs")

    def __init__(self, pairs: int) -> None:
        self._pairs = self._left = pairs

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyPairs(self._pairs)


def unknown_form(form: str, known: str) -> InvalidSchema:
    return InvalidSchema(f"There is no format {form[:50]!r} of this schema type; known: {known}")
