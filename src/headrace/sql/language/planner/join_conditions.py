"""Conditions of joins: the equalities in ON, and the key that follows from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.language.grammar.select_parsing import place_of
from headrace.sql.language.planner.function_rewriting import spark_call
from headrace.sql.language.planner.projecting import KeyColumn
from headrace.sql.language.planner.scope import ROWKEY, Found, Relation, SelectScope
from headrace.sql.language.select import JoinClause


@dataclass(frozen=True, slots=True)
class Equality:
    """`left = right` in ON: left is of the sources before the JOIN, right of the joined one."""

    left: exp.Expr
    right: exp.Expr


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """ON, in parts."""

    equalities: tuple[Equality, ...]
    others: tuple[exp.Expr, ...]
    """Conditions that are no equalities of both sides."""


def condition_of(join: JoinClause, before: Iterable[Relation], joined: Relation) -> JoinCondition:
    """The parts of ON. Raises SqlError if no equality is among them."""
    left, right = SelectScope(tuple(before)), SelectScope((joined,))
    equalities, others = [], []
    parts = [] if join.on is None else list(_conjuncts(join.on))
    for part in parts:
        if isinstance(part, exp.EQ):
            first, second = part.this, part.expression
            if _belongs(first, left, right) and _belongs(second, right, left):
                equalities.append(Equality(first, second))
                continue
            if _belongs(second, left, right) and _belongs(first, right, left):
                equalities.append(Equality(second, first))
                continue
        others.append(part)
    if not equalities:
        raise SqlError(
            f"The JOIN with {joined.alias} needs ON with an equality of both sides, as in"
            f" ON {next(iter(left.relations)).alias}.id = {joined.alias}.id.",
            join.source.line,
            join.source.column,
        )
    return JoinCondition(tuple(equalities), tuple(others))


def _conjuncts(node: exp.Expr) -> Iterable[exp.Expr]:
    if isinstance(node, exp.Paren):
        yield from _conjuncts(node.this)
    elif isinstance(node, exp.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _belongs(node: exp.Expr, scope: SelectScope, other: SelectScope) -> bool:
    """Whether an expression has names, all of them of the scope, and none that both have."""
    names = list(node.find_all(exp.Column))
    return bool(names) and all(_is_of(each, scope, other) for each in names)


def _is_of(name: exp.Column, scope: SelectScope, other: SelectScope) -> bool:
    if not _finds(scope, name):
        return False
    if _finds(other, name) and not scope.relation(name.parts[0].name):
        raise SqlError(
            f"{name.name} is ambiguous: write the alias of its source before it.", *place_of(name)
        )
    return True


def _finds(scope: SelectScope, name: exp.Column) -> bool:
    try:
        return scope.find(name) is not None
    except SqlError:
        return False


@dataclass(frozen=True, slots=True)
class JoinKey:
    """The key of a join's result."""

    columns: tuple[KeyColumn, ...]
    rowkey: exp.Expr | None
    """What ROWKEY stands for; None if the key has several columns."""
    is_synthetic: bool
    """No column has the key in all rows: `SELECT *` has ROWKEY then."""


def join_key(
    kind: str, condition: JoinCondition, scope: SelectScope, known_equal: Iterable[Equality]
) -> JoinKey:
    """The key of the result of the last JOIN. `known_equal`: equalities of all INNER joins."""
    columns = []
    for equality in condition.equalities:
        left, right = scope.spark(equality.left), scope.spark(equality.right)
        if kind == "FULL":
            both = spark_call("coalesce", left, right)
            columns.append(KeyColumn(ROWKEY, (both,)))
            continue
        value = right if kind == "RIGHT" else left
        viable = _equal_to([left, right], known_equal, scope)
        label = f"{sql_of(equality.left)} or {sql_of(equality.right)}"
        columns.append(
            KeyColumn(label, tuple(viable), value if kind in ("LEFT", "RIGHT") else None)
        )
    is_expression = all(
        not isinstance(side, exp.Column)
        for side in (condition.equalities[0].left, condition.equalities[0].right)
    )
    single = columns[0] if len(columns) == 1 else None
    rowkey = None
    if single is not None:
        rowkey = single.value or single.viable[0]
    return JoinKey(tuple(columns), rowkey, single is not None and (kind == "FULL" or is_expression))


def _equal_to(
    first: list[exp.Expr], known: Iterable[Equality], scope: SelectScope
) -> list[exp.Expr]:
    """All expressions that are equal to these by the equalities of INNER joins."""
    found = {sql_of(each): each for each in first}
    pairs = [(scope.spark(each.left), scope.spark(each.right)) for each in known]
    grown = True
    while grown:
        grown = False
        for left, right in pairs:
            for here, there in ((left, right), (right, left)):
                if sql_of(here) in found and sql_of(there) not in found:
                    found[sql_of(there)] = there
                    grown = True
    return list(found.values())


def special_names(key: JoinKey, rowtime: exp.Expr) -> dict[str, Found]:
    """ROWKEY, and ROWTIME of the joined row."""
    names = {"ROWTIME": Found(spark_call("unix_millis", rowtime), "bigint", "ROWTIME")}
    if key.rowkey is not None:
        # `SELECT *` has ROWKEY if it is the name of what was found here.
        name = ROWKEY if key.is_synthetic else ROWKEY.lower()
        names[ROWKEY] = Found(key.rowkey, None, name)
    return names
