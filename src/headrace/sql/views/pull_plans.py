"""Pull queries as they are answered, by views or by Spark.

The functions are Spark's, `*` is replaced by the columns, and every column of a result has a name.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.language.planner.function_rewriting import RewriteContext, rewritten
from headrace.sql.language.planner.scope import with_milliseconds
from headrace.sql.language.select import Select
from headrace.sql.plans import WINDOWEND, WINDOWSTART, Input, PlanKind, QueryPlan
from headrace.sql.sources import SqlSource
from headrace.sql.views.spark_sql.typed import NotAnswerable


@dataclass(frozen=True, slots=True)
class PullPlan:
    """A pull query over some sources."""

    query: exp.Query
    sources: Mapping[str, SqlSource]
    """By their names in the query, in lower case."""
    columns: tuple[str, ...]

    def for_spark(self) -> QueryPlan:
        """The plan for SqlHosting.batch."""
        return QueryPlan(
            PlanKind.STATELESS,
            tuple(Input(source.name, name) for name, source in self.sources.items()),
            sql_of(self.query),
            self.columns,
            keys=(),
            makes_table=False,
        )


def pull_plan(select: Select, sources: Callable[[str], SqlSource | None]) -> PullPlan:
    """The plan of a query without EMIT; SqlError if it names a source that does not exist, and
    NotAnswerable if it has clauses that only queries which run continuously have."""
    if select.window is not None or select.partition_by is not None:
        raise NotAnswerable("WINDOW and PARTITION BY are for queries with EMIT CHANGES")
    if any(join.within is not None for join in select.joins):
        raise NotAnswerable("WITHIN is for queries with EMIT CHANGES")
    query = rewritten(with_milliseconds(select.expression), RewriteContext())
    assert isinstance(query, exp.Query), "a query is still one in other words"
    names = _Naming(sources)
    columns = names.name_columns(query, {})
    return PullPlan(query, names.used, tuple(columns))


class _Naming:
    """Names the columns of a query and of those in it, from the inside out."""

    def __init__(self, sources: Callable[[str], SqlSource | None]) -> None:
        self._sources = sources
        self.used: dict[str, SqlSource] = {}

    def name_columns(self, query: exp.Expr, outer: Mapping[str, list[str]]) -> list[str]:
        """Name the columns of a query, and return the names."""
        known = dict(outer)
        clause = query.args.get("with_")
        for each in clause.expressions if clause is not None else ():
            known[each.alias.casefold()] = self.name_columns(each.this, known)
        if isinstance(query, exp.Subquery):
            return self.name_columns(query.this, known)
        if isinstance(query, exp.SetOperation):
            columns = self.name_columns(query.left, known)
            self.name_columns(query.right, known)
            return columns
        if not isinstance(query, exp.Select):
            raise NotAnswerable(f"{type(query).__name__} in a query")
        relations = list(self._relations(query, known))
        for each in _inner_queries(query):
            self.name_columns(each, known)
        items = [item for each in query.expressions for item in _expanded(each, relations)]
        query.set("expressions", _named(items))
        return [each.alias_or_name for each in query.expressions]

    def _relations(
        self, query: exp.Select, known: Mapping[str, list[str]]
    ) -> Iterator[tuple[str, list[str]]]:
        """The aliases of FROM and JOIN, and the columns that `*` has of each."""
        clause = query.args.get("from_")
        nodes = [] if clause is None else [clause.this]
        nodes += [join.this for join in query.args.get("joins") or ()]
        for node in nodes:
            if isinstance(node, exp.Subquery):
                yield node.alias_or_name, self.name_columns(node.this, known)
                continue
            name = node.name.casefold()
            if name in known:
                yield node.alias_or_name, known[name]
                continue
            source = self._sources(node.name) if isinstance(node, exp.Table) else None
            if source is None:
                raise SqlError(f"There is no stream or table {node.name}.")
            self.used[name] = source
            yield node.alias_or_name, _shown_columns(source)


def _shown_columns(source: SqlSource) -> list[str]:
    """The columns of `*`: of windowed tables, the bounds of the window follow the key."""
    keys = [each.name for each in source.keys] if source.window is not None else []
    bounds = [WINDOWSTART, WINDOWEND] if source.window is not None else []
    return [*keys, *bounds, *(each.name for each in source.columns if each.name not in keys)]


def _inner_queries(query: exp.Select) -> Iterator[exp.Expr]:
    """Queries in expressions, such as EXISTS (...); not those in FROM and WITH."""
    for name, value in query.args.items():
        if name in ("from_", "with_"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, exp.Expr):
                continue
            found = part.args.get("on") if isinstance(part, exp.Join) else part
            if isinstance(found, exp.Expr):
                yield from _outermost(found)


def _outermost(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Select | exp.SetOperation):
        yield node
        return
    for child in node.iter_expressions():
        yield from _outermost(child)


def _expanded(
    node: exp.Expr, relations: list[tuple[str, list[str]]]
) -> Iterator[tuple[str | None, exp.Expr]]:
    """The columns that an item of SELECT stands for, with their names if they have one."""
    owner: str | None = None
    star: exp.Expr = node
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        owner, star = node.table, node.this
    if not isinstance(star, exp.Star):
        name = node.alias if isinstance(node, exp.Alias) else _own_name(node)
        yield name or None, node.this if isinstance(node, exp.Alias) else node
        return
    left_out = {each.name.casefold() for each in star.args.get("except_") or ()}
    for alias, columns in relations:
        if owner is not None and owner.casefold() != alias.casefold():
            continue
        for column in columns:
            if column.casefold() not in left_out:
                name = f"{alias}_{column}" if len(relations) > 1 else column
                yield name, exp.column(column, alias, quoted=True)


def _own_name(node: exp.Expr) -> str | None:
    """The name of a column or field without an alias."""
    if isinstance(node, exp.Column):
        return str(node.name)
    is_field = isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier)
    return str(node.expression.name) if is_field else None


def _named(items: list[tuple[str | None, exp.Expr]]) -> list[exp.Expr]:
    """The items with aliases; those without a name are numbered, as in ksqlDB."""
    used = {name.casefold() for name, _ in items if name is not None}
    numbers = (number for number in range(1 << 31) if f"ksql_col_{number}" not in used)
    found: list[exp.Expr] = []
    seen: set[str] = set()
    for given, node in items:
        name = f"KSQL_COL_{next(numbers)}" if given is None else given
        if name.casefold() in seen:
            raise SqlError(f"The result has two columns {name}: give one of them an alias (AS).")
        seen.add(name.casefold())
        found.append(exp.alias_(node, name, quoted=True, copy=False))
    return found
