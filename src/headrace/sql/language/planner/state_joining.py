"""Plans of joins with tables: the driver joins by the state of a key.

A row of a stream looks up the row that the table has for its key. Two tables are joined by their
primary keys, and a change of either side is a change of the result.
"""

from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.language.planner.function_rewriting import spark_call
from headrace.sql.language.planner.join_conditions import (
    Equality,
    JoinCondition,
    condition_of,
    join_key,
    special_names,
)
from headrace.sql.language.planner.planned import (
    PlanRequest,
    PlanSql,
    column_of,
    deleted_unless,
    identifier,
    user_laterals,
)
from headrace.sql.language.planner.projecting import key_names, projected, without_table_functions
from headrace.sql.language.planner.scope import Relation, SelectScope
from headrace.sql.language.planner.single import partition_keys, refuse_for_tables
from headrace.sql.language.select import JoinClause
from headrace.sql.plans import DELETED, TIME, Input, PlanKind, QueryPlan, StateJoin

LEFT_PREFIX, RIGHT_PREFIX = "l__", "r__"


@dataclass(frozen=True, slots=True)
class _Side:
    """What a join has on one side: a source, or the view of the joins before."""

    input: Input
    relations: tuple[Relation, ...]
    """With names of columns as the input has them."""
    is_stream: bool

    def prefixed(self, prefix: str) -> tuple[Relation, ...]:
        return tuple(replace(each, prefix=prefix + each.prefix) for each in self.relations)


def plan_state_join(request: PlanRequest) -> QueryPlan:
    """A stream with tables to a stream, or tables to a table."""
    select = request.select
    for relation in request.relations:
        if relation.source.window is not None:
            raise SqlError(
                f"{relation.alias} has windowed keys, and joins by key do not know windows. Create"
                " a table with WINDOWSTART AS a column, or a stream over its topic, and join that."
            )
    sides = [
        _Side(each, (replace(relation, view=None),), not relation.source.is_table)
        for each, relation in zip(request.inputs, request.relations, strict=True)
    ]
    left, *others = sides
    joins: list[StateJoin] = []
    equal: list[Equality] = []
    for number, (join, right) in enumerate(zip(select.joins, others, strict=True)):
        condition = _condition(join, left, right, equal, is_first=number == 0)
        step = _joined(join, left, right, condition, f"__join_{number}", is_first=number == 0)
        joins.append(step)
        equal += condition.equalities if join.kind == "INNER" else ()
        swapped = step.left == right.input
        left = _Side(
            Input("", step.view),
            (
                *left.prefixed(RIGHT_PREFIX if swapped else LEFT_PREFIX),
                *right.prefixed(LEFT_PREFIX if swapped else RIGHT_PREFIX),
            ),
            step.left_is_stream,
        )
    return _planned(request, joins, left, condition, equal)


def _planned(
    request: PlanRequest,
    joins: list[StateJoin],
    result: _Side,
    condition: JoinCondition,
    equal: list[Equality],
) -> QueryPlan:
    select, view = request.select, joins[-1].view
    plain = SelectScope(tuple(replace(each, view=view) for each in result.relations))
    time = column_of(view, TIME)
    key = join_key(select.joins[-1].kind, condition, plain, equal)
    scope = replace(plain, special=special_names(key, time))
    laterals: tuple[str, ...] = ()
    projections = select.projections
    if result.is_stream:
        scope, laterals = user_laterals(select, scope)
        exploded = without_table_functions(projections, scope)
        scope = replace(scope, special={**scope.special, **exploded.special})
        projections, laterals = exploded.projections, (*laterals, *exploded.laterals)
    else:
        refuse_for_tables(request, scope)
    items = projected(projections, scope, is_stored=request.is_stored)
    keys, of = list(key.columns), "of ON"
    if select.partition_by is not None:
        keys, of = partition_keys(select.partition_by, scope), "of PARTITION BY"
    items, names = key_names(items, keys, is_stored=request.is_stored, of=of)
    where = None if select.where is None else scope.spark(select.where)
    sql = PlanSql(
        items=items,
        source=identifier(view),
        time=time,
        where=where if result.is_stream else None,
        laterals=laterals,
        deleted=None if result.is_stream else deleted_unless(column_of(view, DELETED), where),
    )
    return QueryPlan(
        kind=PlanKind.STATE_JOIN,
        inputs=request.inputs,
        sql=sql.text(),
        columns=tuple(item.name for item in items),
        keys=names,
        makes_table=not result.is_stream,
        joins=tuple(joins),
        limit=select.limit,
    )


def _condition(
    join: JoinClause, left: _Side, right: _Side, equal: list[Equality], *, is_first: bool
) -> JoinCondition:
    (joined,) = right.relations
    if join.within is not None:
        raise SqlError(
            "WITHIN is only for joins of two streams: a table has one row for a key.",
            join.source.line,
            join.source.column,
        )
    if right.is_stream and not is_first:
        raise SqlError(
            f"Write the stream first: FROM {joined.alias} JOIN ....",
            join.source.line,
            join.source.column,
        )
    condition = condition_of(join, left.relations, joined)
    if condition.others:
        shown = sql_of(condition.others[0])
        raise SqlError(
            f"ON of a join with a table only compares keys; {shown} belongs to WHERE.",
            join.source.line,
            join.source.column,
        )
    if right.is_stream:
        table, expressions = left.relations[0], [each.left for each in condition.equalities]
    else:
        table, expressions = joined, [each.right for each in condition.equalities]
    _check_primary_key(join, table, expressions)
    if not left.is_stream and not right.is_stream:
        _check_left_key(join, left, condition, equal, is_first=is_first)
    return condition


def _check_primary_key(join: JoinClause, table: Relation, expressions: list[exp.Expr]) -> None:
    scope = SelectScope((table,))
    found = {sql_of(scope.spark(each)) for each in expressions}
    wanted = {sql_of(table.at(key.name)) for key in table.source.keys}
    if found != wanted:
        keys = " AND ".join(f"{table.alias}.{key.name} = ..." for key in table.source.keys)
        raise SqlError(
            f"A join with the table {table.alias} is by its primary key: ON {keys}.",
            join.source.line,
            join.source.column,
        )


def _check_left_key(
    join: JoinClause,
    left: _Side,
    condition: JoinCondition,
    equal: list[Equality],
    *,
    is_first: bool,
) -> None:
    """Both tables are joined by their primary keys."""
    scope = SelectScope(left.relations)
    found = {sql_of(scope.spark(each.left)) for each in condition.equalities}
    first = left.relations[0]
    own = {sql_of(first.at(key.name)) for key in first.source.keys}
    same = {
        text
        for pair in equal
        for text in (sql_of(scope.spark(pair.left)), sql_of(scope.spark(pair.right)))
    }
    if found == own or (not is_first and found <= own | same):
        return
    raise SqlError(
        f"Two tables are joined by their primary keys, and the left side of this JOIN is not"
        f" {' and '.join(key.name for key in first.source.keys)} of {first.alias}. For a join by"
        f" a foreign key, create a stream over the topic of {first.alias}, and join that with"
        f" {join.source.alias}.",
        join.source.line,
        join.source.column,
    )


def _joined(
    join: JoinClause,
    left: _Side,
    right: _Side,
    condition: JoinCondition,
    view: str,
    *,
    is_first: bool,
) -> StateJoin:
    kind = join.kind
    left_key = _key([each.left for each in condition.equalities], left, right, condition)
    right_key = _key([each.right for each in condition.equalities], right, left, condition)
    if right.is_stream:
        kind = _swapped_kind(join, right)
    elif left.is_stream and kind not in ("INNER", "LEFT"):
        raise SqlError(
            f"{kind} JOIN of a stream with a table is not possible: rows of the table alone are no"
            " events. Use JOIN or LEFT JOIN.",
            join.source.line,
            join.source.column,
        )
    elif kind == "RIGHT":
        if not is_first:
            raise SqlError(
                "RIGHT JOIN is only possible as the first JOIN: write the tables in another order.",
                join.source.line,
                join.source.column,
            )
        return StateJoin(view, right.input, left.input, right_key, left_key, "LEFT", False)
    if right.is_stream:
        return StateJoin(view, right.input, left.input, right_key, left_key, kind, True)
    return StateJoin(view, left.input, right.input, left_key, right_key, kind, left.is_stream)


def _swapped_kind(join: JoinClause, stream: _Side) -> str:
    if join.kind == "INNER":
        return "INNER"
    if join.kind == "RIGHT":
        return "LEFT"
    alias = stream.relations[0].alias
    raise SqlError(
        f"{join.kind} JOIN of a table with the stream {alias} is not possible: rows of the table"
        f" alone are no events. Write the stream first: FROM {alias} LEFT JOIN ....",
        join.source.line,
        join.source.column,
    )


_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")


def _key(expressions: list[exp.Expr], side: _Side, other: _Side, condition: JoinCondition) -> str:
    """The key of one side, as Spark's SQL over its view; types are the same on both."""
    here, there = SelectScope(side.relations), SelectScope(other.relations)
    parts = []
    for expression, equality in zip(expressions, condition.equalities, strict=True):
        partner = equality.right if expression is equality.left else equality.left
        own, its = here.type_of(expression), there.type_of(partner)
        spark = here.spark(expression)
        if own != its and own in _WHOLE_NUMBERS and its in _WHOLE_NUMBERS:
            spark = exp.cast(spark, "bigint", dialect="spark")
        elif own is not None and its is not None and own != its:
            raise SqlError(
                f"{sql_of(expression)} has the type {own}, and {sql_of(partner)} has"
                f" {its}: join keys have the same type. Use a stream or table with CAST."
            )
        parts.append(spark)
    if len(parts) == 1:
        return sql_of(parts[0])
    fields = [exp.alias_(each, f"k{index}", quoted=True) for index, each in enumerate(parts)]
    return sql_of(spark_call("struct", *fields))
