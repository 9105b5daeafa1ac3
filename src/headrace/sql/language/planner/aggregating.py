"""Plans of SELECTs with GROUP BY."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sqlglot import exp

from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.language.grammar.select_parsing import place_of
from headrace.sql.language.planner.function_rewriting import spark_call
from headrace.sql.language.planner.functions import AGGREGATES
from headrace.sql.language.planner.planned import (
    PlanRequest,
    PlanSql,
    deleted_unless,
    user_laterals,
    view_of,
)
from headrace.sql.language.planner.projecting import (
    Item,
    KeyColumn,
    key_names,
    projected,
    without_table_functions,
)
from headrace.sql.language.planner.scope import Found, Relation, SelectScope, quoted
from headrace.sql.language.select import Select
from headrace.sql.plans import ROWOFFSET, ROWTIME, TIME, WINDOWEND, WINDOWSTART, PlanKind, QueryPlan
from headrace.sql.sources import Window

_WINDOW_FUNCTIONS = ("WINDOW", "SESSION_WINDOW")


def has_aggregates(select: Select) -> bool:
    return any(True for node in _results(select) for _ in _aggregates(node))


def _results(select: Select) -> list[exp.Expr]:
    """Expressions over groups."""
    return [*select.projections, *([select.having] if select.having is not None else [])]


def plan_aggregate(request: PlanRequest) -> QueryPlan:
    """Stream to table."""
    select = request.select
    _refuse(request)
    (relation,) = request.relations
    base = SelectScope(request.relations, special={TIME.upper(): _time(relation)})
    base, laterals = user_laterals(select, base)
    exploded = without_table_functions([_with_time(each) for each in select.projections], base)
    base = replace(base, special={**base.special, **exploded.special})
    groups = [_group(each, exploded.projections, base) for each in select.group_by]
    group_sql = [base.spark(each) for each in groups]
    bounds, window_call = _bounds(select.window, relation)
    scope = replace(
        base,
        special={**base.special, **{found.name: found for found in bounds}},
        order=_order(relation, group_sql),
    )
    items = projected(exploded.projections, scope, is_stored=request.is_stored)
    having = None if select.having is None else scope.spark(_with_time(select.having))
    _check_grouped(items, select.having, [*group_sql, *_of_window(window_call)], scope)
    keys = [
        KeyColumn(sql_of(each), (spark,)) for each, spark in zip(groups, group_sql, strict=True)
    ]
    items, names = key_names(items, keys, is_stored=request.is_stored, of="of GROUP BY")
    is_final = select.emit == "FINAL"
    sql = PlanSql(
        items=items,
        source=view_of(relation),
        time=spark_call("max", relation.at(TIME)),
        where=None if select.where is None else base.spark(select.where),
        group=[*group_sql, *_of_window(window_call)],
        having=having if is_final else None,
        laterals=(*laterals, *exploded.laterals),
        bounds=(bounds[0].expression, bounds[1].expression) if bounds else None,
        deleted=deleted_unless(None, None if is_final else having),
    )
    is_windowed = window_call is not None or any(map(_calls_window, groups))
    return QueryPlan(
        kind=PlanKind.AGGREGATE,
        inputs=request.inputs,
        sql=sql.text(),
        columns=tuple(item.name for item in items),
        keys=names,
        makes_table=True,
        emit_final=is_final,
        window=_key_window(select.window),
        watermark_ms=_grace(select.window, request.grace_ms) if is_windowed else None,
        limit=select.limit,
    )


def _refuse(request: PlanRequest) -> None:
    select, relations = request.select, request.relations
    if not select.group_by:
        first = next(each for node in _results(select) for each in _aggregates(node))
        raise SqlError(
            f"{str(first.name).upper()} is over the rows of a group: it needs GROUP BY.",
            *place_of(first),
        )
    if select.window is not None and select.window.kind == "SESSION" and select.emit != "FINAL":
        raise SqlError(
            "WINDOW SESSION needs EMIT FINAL: a session grows with every row, and is emitted once,"
            " when it has ended and the grace period is over."
        )
    if select.joins:
        raise SqlError(
            "GROUP BY over a JOIN takes two statements: CREATE STREAM joined AS SELECT ... JOIN"
            " ...; and then SELECT ... FROM joined GROUP BY ...."
        )
    if relations[0].source.is_table:
        raise SqlError(
            f"GROUP BY over the table {relations[0].alias} is not possible: a change of a row would"
            " have to take its old value out of its group. Aggregate the stream that the table is"
            " made from, or ask with a pull query (without EMIT)."
        )
    if select.where is not None and any(True for _ in _aggregates(select.where)):
        raise SqlError(
            "WHERE is about rows; conditions on aggregates are in HAVING.", *place_of(select.where)
        )
    for node in _results(select):
        if distinct := node.find(exp.Distinct):
            raise SqlError(
                "DISTINCT is not possible in aggregates of streams. COUNT_DISTINCT(x) counts"
                " approximately, and COLLECT_SET(x) collects distinct values.",
                *place_of(distinct),
            )


def _aggregates(node: exp.Expr) -> Iterator[exp.Anonymous]:
    for each in node.find_all(exp.Anonymous):
        if str(each.name).upper() in AGGREGATES and not isinstance(each.this, exp.Identifier):
            yield each


def _time(relation: Relation) -> Found:
    return Found(relation.at(TIME), "timestamp", TIME)


def _with_time(node: exp.Expr) -> exp.Expr:
    """`window(ROWTIME, '1 minute')`: Spark's windows are over timestamps."""
    result = exp.Paren(this=node.copy())
    for call in list(result.find_all(exp.Anonymous)):
        if str(call.name).upper() in _WINDOW_FUNCTIONS and call.expressions:
            first = call.expressions[0]
            if isinstance(first, exp.Column) and first.name.upper() == ROWTIME:
                first.replace(quoted(TIME))
    inner: exp.Expr = result.this
    inner.pop()
    return inner


def _calls_window(node: exp.Expr) -> bool:
    return any(str(each.name).upper() in _WINDOW_FUNCTIONS for each in node.find_all(exp.Anonymous))


def _group(node: exp.Expr, projections: tuple[exp.Expr, ...], scope: SelectScope) -> exp.Expr:
    """An expression of GROUP BY; numbers and aliases stand for columns of the result."""
    if isinstance(node, exp.Literal) and not node.is_string:
        position = int(node.name) if node.name.isdecimal() else 0
        if not 1 <= position <= len(projections):
            raise SqlError(f"GROUP BY {node.name}: there are {len(projections)} columns.")
        found: exp.Expr = projections[position - 1].unalias()
        return found
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        is_column = any(each.source.column(node.name) for each in scope.relations)
        aliased: list[exp.Expr] = [
            each.this
            for each in projections
            if isinstance(each, exp.Alias) and each.alias.casefold() == node.name.casefold()
        ]
        if aliased and not is_column:
            return aliased[0]
    return _with_time(node)


def _bounds(window: Window | None, relation: Relation) -> tuple[tuple[Found, ...], exp.Expr | None]:
    """WINDOWSTART and WINDOWEND, and Spark's window to group by."""
    if window is None:
        return (), None
    time = relation.at(TIME)
    if window.kind == "SESSION":
        call = spark_call("session_window", time, _interval(window.size_ms))
    elif window.kind == "HOPPING":
        call = spark_call("window", time, _interval(window.size_ms), _interval(window.advance_ms))
    else:
        call = spark_call("window", time, _interval(window.size_ms))
    found = tuple(
        Found(
            spark_call(
                "unix_millis", exp.Dot(this=call.copy(), expression=exp.to_identifier(part))
            ),
            "bigint",
            name,
        )
        for part, name in (("start", WINDOWSTART), ("end", WINDOWEND))
    )
    return found, call


def _interval(milliseconds: int | None) -> exp.Expr:
    return exp.Literal.string(f"{milliseconds} milliseconds")


def _of_window(call: exp.Expr | None) -> list[exp.Expr]:
    return [] if call is None else [call]


def _order(relation: Relation, groups: Iterable[exp.Expr]) -> exp.Expr:
    """What "latest by offset" means.

    Rows of a group are in one partition if the group has all columns of the key: their offsets have
    an order. Otherwise offsets of different partitions would be compared; then time decides first.
    """
    texts = {sql_of(each) for each in groups}
    keys = relation.source.keys
    if keys and all(sql_of(relation.at(key.name)) in texts for key in keys):
        return quoted(ROWOFFSET)
    return spark_call("struct", quoted(TIME), quoted(ROWOFFSET))


def _check_grouped(
    items: Iterable[Item], having: exp.Expr | None, groups: list[exp.Expr], scope: SelectScope
) -> None:
    """Every column is in GROUP BY or in an aggregate."""
    texts = {sql_of(each) for each in groups}
    nodes = [item.written for item in items]
    for node in [*nodes, *([having] if having is not None else [])]:
        stray = _ungrouped(node, texts, scope)
        if stray is not None:
            raise SqlError(
                f"{sql_of(stray)} is neither in GROUP BY nor in an aggregate function.",
                *place_of(stray),
            )


def _ungrouped(node: exp.Expr, groups: set[str], scope: SelectScope) -> exp.Expr | None:
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return _ungrouped(node.this, groups, scope)
    if isinstance(node, exp.Anonymous) and str(node.name).upper() in AGGREGATES:
        return None
    found = scope.find(node)
    if found is not None:
        is_bound = found.name in (WINDOWSTART, WINDOWEND) and found.relation is None
        return None if is_bound or _is_grouped(found.expression, groups) else node
    if sql_of(scope.spark(node)) in groups:
        return None
    for child in node.iter_expressions():
        stray = _ungrouped(child, groups, scope)
        if stray is not None:
            return stray
    return None


def _is_grouped(column: exp.Expr, groups: set[str]) -> bool:
    """A field is grouped if its struct is."""
    if sql_of(column) in groups:
        return True
    return isinstance(column, exp.Dot) and _is_grouped(column.this, groups)


def _key_window(window: Window | None) -> Window | None:
    if window is None or window.kind != "SESSION":
        return window
    return replace(window, size_ms=None)


def _grace(window: Window | None, default: int) -> int:
    return default if window is None or window.grace_ms is None else window.grace_ms
