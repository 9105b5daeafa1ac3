"""Finds the topics that the regular expressions of a consumer group match."""

from collections.abc import Callable, Collection, Iterable, Mapping

from headrace.coordination.groups.subscriptions import Subscriptions
from headrace.expressions.expression import Expression, Search

SEARCH_STEPS = 20_000
"""How much of a search is done at once: a few milliseconds."""


class ExpressionSearch:
    """A search for the topics of all expressions, a little at a time.

    It is not part of what a group persists, and begins again after a change of topics.
    """

    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions
        self._compiled: dict[str, Expression] = {}
        self._search: Search | None = None

    @property
    def is_running(self) -> bool:
        """Whether a search has begun and has not ended."""
        return self._search is not None

    def advance(self, topics: Callable[[], Iterable[str]]) -> Mapping[str, Collection[str]] | None:
        """Search for a few milliseconds; the topics by expression when all are found.

        `topics` is called when a search begins.
        """
        if self._search is None:
            texts = sorted(self._subscriptions.expressions())
            self._search = Search([self._compile(text) for text in texts], list(topics()))
        return self._search.found if self._search.go_on(SEARCH_STEPS) else None

    def end(self) -> None:
        """The result is written, or topics have changed: the next search begins again."""
        self._search = None

    def matching(self, text: str, topics: Iterable[str]) -> set[str]:
        """Those of some topics that an expression matches."""
        expression = self._compile(text)
        return {name for name in topics if expression.matches(name)}

    def _compile(self, text: str) -> Expression:
        used = self._subscriptions.expressions()
        self._compiled = {one: made for one, made in self._compiled.items() if one in used}
        if text not in self._compiled:
            self._compiled[text] = Expression(text)
        return self._compiled[text]
