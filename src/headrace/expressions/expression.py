"""Regular expressions over names, matched in linear time whatever the expression.

An expression becomes a small program of states, and the sets of states that it can be in become,
when they are first met, the states of a table. A name costs one look-up for each of its characters
once the table is warm; no expression can make it go back and try again.

The time is counted in steps, so that a caller can stop and go on later: see `Search`.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from headrace.errors import ErrorCode, KafkaError
from headrace.expressions.syntax import (
    ALPHABET,
    OTHER,
    WORD,
    Assertion,
    Chars,
    Choice,
    Node,
    Repeat,
    Sequence,
    parse,
)

MAX_STATES = 5000
"""The largest program; a subscription that needs more is refused."""
MAX_TABLE = 1000
"""Rows of the table; when there are more, it is cleared."""
MAX_EXPRESSION_CHARACTERS = 4096

_END = ""


class _Step(NamedTuple):
    """Takes one of these characters and goes on."""

    allowed: frozenset[str]
    target: int


class _Fork(NamedTuple):
    """Goes on at all of these places at once."""

    targets: tuple[int, ...]


class _Guard(NamedTuple):
    """Goes on if the place between two characters is of this kind."""

    kind: str
    target: int


class _Accept(NamedTuple):
    """The name matches if it ends here."""


_State: TypeAlias = _Step | _Fork | _Guard | _Accept
_Row: TypeAlias = tuple[frozenset[int], str]
"""Where the program can be, and what was before: "" at the start, else a sign of the same kind."""


class Expression:
    """A compiled expression; `matches` says whether it stands for a whole name."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = 0
        """What its matches have cost so far: one for a look-up, more for a new entry."""
        if len(text) > MAX_EXPRESSION_CHARACTERS:
            raise _too_large(text)
        self._states: list[_State] = []
        accept = self._add(_Accept())
        self._start: _Row = (frozenset({self._build(parse(text), accept)}), _END)
        self._table: dict[_Row, dict[str, _Row]] = {}
        self._accepts: dict[_Row, bool] = {}

    def matches(self, name: str) -> bool:
        """Whether it stands for the whole of `name`."""
        row = self._start
        for sign in name:
            known = self._table.get(row)
            following = known.get(sign) if known is not None else None
            if following is None:
                following = self._advance(row, sign)
            row = following
            if not row[0]:
                break
        self.steps += len(name) + 1
        accepted = self._accepts.get(row)
        if accepted is None:
            reached = self._reach(row, _END)
            accepted = any(isinstance(self._states[one], _Accept) for one in reached)
            self._accepts[row] = accepted
        return accepted

    def _advance(self, row: _Row, sign: str) -> _Row:
        """Where one character leads; kept in the table."""
        if sign not in ALPHABET:
            sign = OTHER
            known = self._table.get(row, {}).get(sign)
            if known is not None:
                return known
        if len(self._table) >= MAX_TABLE:
            self._table.clear()
            self._accepts.clear()
        following = frozenset(
            state.target
            for one in self._reach(row, sign)
            if isinstance(state := self._states[one], _Step) and sign in state.allowed
        )
        found = (following, "a" if sign in WORD else "-")
        self._table.setdefault(row, {})[sign] = found
        return found

    def _reach(self, row: _Row, following: str) -> set[int]:
        """The states that can be reached from a row before the next character."""
        reached: set[int] = set()
        waiting = list(row[0])
        while waiting:
            one = waiting.pop()
            if one in reached:
                continue
            reached.add(one)
            state = self._states[one]
            if isinstance(state, _Fork):
                waiting.extend(state.targets)
            elif isinstance(state, _Guard) and _holds(state.kind, row[1], following):
                waiting.append(state.target)
        self.steps += len(reached) + 1
        return reached

    # --------------------------------------------------------------------------- building

    def _add(self, state: _State) -> int:
        if len(self._states) >= MAX_STATES:
            raise _too_large(self.text)
        self._states.append(state)
        return len(self._states) - 1

    def _build(self, node: Node, after: int) -> int:
        """Add the states of a node, which go on at `after`; where they begin."""
        match node:
            case Chars(allowed):
                return self._add(_Step(allowed, after))
            case Assertion(kind):
                return self._add(_Guard(kind, after))
            case Sequence(items):
                for item in reversed(items):
                    after = self._build(item, after)
                return after
            case Choice(options):
                return self._add(_Fork(tuple(self._build(one, after) for one in options)))
            case Repeat(item, least, most):
                return self._build_repeat(item, least, most, after)

    def _build_repeat(self, item: Node, least: int, most: int | None, after: int) -> int:
        if most is None:
            loop = self._add(_Fork(()))
            again = self._build(item, loop)
            self._states[loop] = _Fork((again, after))
            start = loop
        else:
            start = after
            for _ in range(most - least):
                start = self._add(_Fork((self._build(item, start), after)))
        for _ in range(least):
            start = self._build(item, start)
        return start


def _holds(kind: str, before: str, following: str) -> bool:
    match kind:
        case "^":
            return before == _END
        case "$":
            return following == _END
    at_edge = (before in WORD) != (following in WORD)
    return at_edge if kind == "b" else not at_edge


def _too_large(text: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"The regular expression `{text[:40]}...` is too large: write fewer repetitions.",
    )


class Search:
    """The topics that some expressions stand for, found a little at a time."""

    def __init__(self, expressions: Iterable[Expression], names: Iterable[str]) -> None:
        self.found: dict[str, list[str]] = {}
        self._work = self._pairs(list(expressions), list(names))

    def go_on(self, max_steps: int) -> bool:
        """Work for about so many steps; whether everything has been found."""
        spent = 0
        for cost in self._work:
            spent += cost
            if spent >= max_steps:
                return False
        return True

    def _pairs(self, expressions: list[Expression], names: list[str]) -> Iterator[int]:
        for expression in expressions:
            found = self.found[expression.text] = []
            for name in names:
                before = expression.steps
                if expression.matches(name):
                    found.append(name)
                yield expression.steps - before
