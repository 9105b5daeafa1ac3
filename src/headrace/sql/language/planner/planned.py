"""What planners share: the request, and the text of the plan's SQL."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.language.grammar.select_parsing import place_of
from headrace.sql.language.planner.projecting import Item
from headrace.sql.language.planner.scope import Relation, SelectScope, quoted
from headrace.sql.language.select import Select
from headrace.sql.plans import DELETED, TIME, WINDOWEND, WINDOWSTART, Input


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A SELECT to plan."""

    select: Select
    relations: tuple[Relation, ...]
    is_stored: bool
    """The result is a stream or table, and no push query."""
    grace_ms: int

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(Input(each.source.name, each.view or "") for each in self.relations)


@dataclass(slots=True)
class PlanSql:
    """The SQL of a plan, with its columns in their order (see `QueryPlan.sql`)."""

    items: list[Item]
    source: str
    """What follows FROM."""
    time: exp.Expr
    where: exp.Expr | None = None
    group: list[exp.Expr] = field(default_factory=list)
    having: exp.Expr | None = None
    laterals: tuple[str, ...] = ()
    bounds: tuple[exp.Expr, exp.Expr] | None = None
    """The start and the end of the window."""
    deleted: exp.Expr | None = None
    """For tables."""

    def text(self) -> str:
        columns = [(item.spark, item.name) for item in self.items]
        names = {item.name.upper() for item in self.items}
        if self.bounds is not None:
            columns += [
                (bound, name)
                for bound, name in zip(self.bounds, (WINDOWSTART, WINDOWEND), strict=True)
                if name not in names
            ]
        if self.deleted is not None:
            columns.append((self.deleted, DELETED))
        columns.append((self.time, TIME))
        lines = [
            "SELECT "
            + ", ".join(f"{sql_of(node)} AS {identifier(name)}" for node, name in columns),
            f"FROM {self.source}",
            *self.laterals,
        ]
        if self.where is not None:
            lines.append(f"WHERE {sql_of(self.where)}")
        if self.group:
            lines.append("GROUP BY " + ", ".join(map(sql_of, self.group)))
        if self.having is not None:
            lines.append(f"HAVING {sql_of(self.having)}")
        return "\n".join(lines)


def identifier(name: str) -> str:
    """A name in Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def view_of(relation: Relation) -> str:
    assert relation.view is not None
    return identifier(relation.view)


def deleted_unless(deleted: exp.Expr | None, condition: exp.Expr | None) -> exp.Expr:
    """`__deleted` of a row that is there only while the condition holds."""
    if condition is None:
        return deleted if deleted is not None else exp.false()
    holds = exp.Anonymous(this="coalesce", expressions=[condition, exp.false()])
    fails = exp.Not(this=holds)
    return fails if deleted is None else exp.Or(this=deleted, expression=fails)


def user_laterals(select: Select, scope: SelectScope) -> tuple[SelectScope, tuple[str, ...]]:
    """LATERAL VIEW clauses of the statement, and a scope that knows their names."""
    laterals = select.expression.args.get("laterals") or ()
    texts, names = [], set(scope.others)
    for each in laterals:
        call = each.this
        known = SelectScope(scope.relations, scope.special, frozenset(names), scope.order)
        alias = each.args.get("alias")
        if alias is None or not isinstance(call, exp.Anonymous):
            raise SqlError("LATERAL VIEW needs a function and names.", *place_of(each))
        table = identifier(alias.name) if alias.name else ""
        columns = [column.name for column in alias.columns]
        listed = f" AS {', '.join(map(identifier, columns))}" if columns else ""
        outer = "OUTER " if each.args.get("outer") else ""
        arguments = ", ".join(sql_of(known.spark(argument)) for argument in call.expressions)
        texts.append(f"LATERAL VIEW {outer}{call.name}({arguments}) {table}{listed}".rstrip())
        names |= {name.casefold() for name in [alias.name, *columns] if name}
    if not texts:
        return scope, ()
    return SelectScope(scope.relations, scope.special, frozenset(names), scope.order), tuple(texts)


def tied(conditions: Iterable[exp.Expr]) -> exp.Expr | None:
    """All conditions together."""
    found = None
    for each in conditions:
        part = exp.Paren(this=each) if isinstance(each, exp.Or) else each
        found = part if found is None else exp.And(this=found, expression=part)
    return found


def column_of(view: str, name: str) -> exp.Column:
    return quoted(name, view)
