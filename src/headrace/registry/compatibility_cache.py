"""Compatibility checks with a cache of their results.

The cache serves builds that check the same schema against the same versions on every run. A schema
that is new on every request is parsed and compared each time.
"""

from collections.abc import Sequence

from headrace.registry.cache import BoundedCache
from headrace.registry.lookup import Comparison
from headrace.registry.parsing import Parser
from headrace.schemas.comparison import COMPARED_PAIRS

CACHE_CHARACTERS = 1_000_000
LARGEST_CHARACTERS = 100_000
"""The limit of one cached check: its schemas with their references, and its messages."""


class CompatibilityChecks:
    """Runs compatibility checks and caches the results. Thread-safe."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._cache: BoundedCache[Comparison, Sequence[str]] = BoundedCache(
            CACHE_CHARACTERS, LARGEST_CHARACTERS
        )

    def cached(self, compared: Comparison) -> Sequence[str] | None:
        """The result of an earlier check, or None if it is not in the cache."""
        return self._cache.get(compared)

    def store(self, compared: Comparison, found: Sequence[str]) -> None:
        self._cache.put(compared, found, compared.characters + sum(map(len, found)))

    def problems(self, compared: Comparison, pairs: int = COMPARED_PAIRS) -> Sequence[str]:
        """Why the new schema is incompatible; empty if it is compatible."""
        found = self.cached(compared)
        if found is None:
            found = tuple(compared.run(self._parser, pairs))
            self.store(compared, found)
        return found
