"""Compatibility checks that were made, and what they found.

For builds that check the same schema against the same version at every run. A schema that is new
each time gains nothing here: it is parsed and compared.
"""

from collections.abc import Sequence

from headrace.registry import limits
from headrace.registry.kept import Kept
from headrace.registry.lookup import Comparison
from headrace.registry.parsing import Parser

KEPT_CHARACTERS = 1_000_000
LARGEST_CHARACTERS = 100_000
"""Of one comparison: its schemas with all that they refer to, and its messages."""


class Verdicts:
    """Finds out, and remembers. Any thread may ask."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._kept: Kept[Comparison, Sequence[str]] = Kept(KEPT_CHARACTERS, LARGEST_CHARACTERS)

    def known(self, compared: Comparison) -> Sequence[str] | None:
        """What was found before, if it is remembered."""
        return self._kept.get(compared)

    def remember(self, compared: Comparison, found: Sequence[str]) -> None:
        self._kept.put(compared, found, compared.characters + sum(map(len, found)))

    def problems(self, compared: Comparison, pairs: int = limits.COMPARISONS) -> Sequence[str]:
        """Why the new schema may not come next; empty if it may."""
        found = self.known(compared)
        if found is None:
            found = tuple(compared.run(self._parser, pairs))
            self.remember(compared, found)
        return found
