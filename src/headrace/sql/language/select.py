"""A SELECT, as it was read: an expression tree of sqlglot, and ksqlDB's clauses beside it."""

from dataclasses import dataclass, field

from sqlglot import exp

from headrace.sql.sources import Window


@dataclass(frozen=True, slots=True)
class SourceRef:
    """A stream or table in FROM or JOIN."""

    name: str
    alias: str
    """The name of the source unless another one was given."""
    line: int | None = field(default=None, compare=False)
    column: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Within:
    """The time range of a join: how far a row of the right side may be from one of the left."""

    before_ms: int
    after_ms: int
    grace_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JoinClause:
    """A JOIN."""

    kind: str
    """INNER, LEFT, RIGHT or FULL."""
    source: SourceRef
    on: exp.Expr | None
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT.

    `expression` has the query without WINDOW, WITHIN, PARTITION BY and EMIT. Functions in it are
    `exp.Anonymous`, with the names that were written; `function_rewriting.rewritten` puts Spark's
    functions in their places.
    """

    text: str
    """From SELECT to the end, as it was written."""
    expression: exp.Query
    first: SourceRef | None
    """None if the query is none of one stream or table and its joins: see `only_pull`."""
    joins: tuple[JoinClause, ...] = ()
    partition_by: tuple[exp.Expr, ...] | None = None
    """None: there is no PARTITION BY."""
    window: Window | None = None
    """Of a session, `size_ms` is the gap."""
    emit: str | None = None
    """CHANGES or FINAL."""
    limit: int | None = None
    only_pull: str | None = None
    """Why only a pull query can be written like this; None: every query can."""

    @property
    def projections(self) -> tuple[exp.Expr, ...]:
        return tuple(self.expression.selects)

    @property
    def where(self) -> exp.Expr | None:
        return _inside(self.expression, "where")

    @property
    def having(self) -> exp.Expr | None:
        return _inside(self.expression, "having")

    @property
    def group_by(self) -> tuple[exp.Expr, ...]:
        """Without the parentheses that may enclose the list."""
        group = self.expression.args.get("group")
        if group is None:
            return ()
        return flattened(group.expressions)


def flattened(expressions: list[exp.Expr]) -> tuple[exp.Expr, ...]:
    """`(a, b)` and `a, b` are the same list."""
    if len(expressions) == 1 and isinstance(expressions[0], exp.Tuple):
        return tuple(expressions[0].expressions)
    if len(expressions) == 1 and isinstance(expressions[0], exp.Paren):
        return (expressions[0].this,)
    return tuple(expressions)


def _inside(query: exp.Query, clause: str) -> exp.Expr | None:
    found = query.args.get(clause)
    return None if found is None else found.this
