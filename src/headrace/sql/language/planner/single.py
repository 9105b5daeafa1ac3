"""Plans of SELECTs from one stream or one table, without GROUP BY."""

from dataclasses import replace

from sqlglot import exp

from headrace.sql.language.errors import SqlError
from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.language.grammar.select_parsing import place_of
from headrace.sql.language.planner.planned import (
    PlanRequest,
    PlanSql,
    deleted_unless,
    user_laterals,
    view_of,
)
from headrace.sql.language.planner.projecting import (
    KeyColumn,
    key_names,
    projected,
    without_table_functions,
)
from headrace.sql.language.planner.scope import Relation, SelectScope
from headrace.sql.plans import DELETED, TIME, WINDOWEND, WINDOWSTART, PlanKind, QueryPlan


def plan_stateless(request: PlanRequest) -> QueryPlan:
    """Stream to stream."""
    select, (relation,) = request.select, request.relations
    scope, laterals = user_laterals(select, SelectScope(request.relations))
    exploded = without_table_functions(select.projections, scope)
    scope = replace(scope, special=exploded.special)
    items = projected(exploded.projections, scope, is_stored=request.is_stored)
    window = relation.source.window
    if select.partition_by is None:
        keys = own_keys(relation)
        of = f"the key of {relation.alias}"
    else:
        keys = partition_keys(select.partition_by, scope)
        of = "of PARTITION BY"
        window = None
    items, names = key_names(items, keys, is_stored=request.is_stored, of=of)
    sql = PlanSql(
        items=items,
        source=view_of(relation),
        time=relation.at(TIME),
        where=None if select.where is None else scope.spark(select.where),
        laterals=(*laterals, *exploded.laterals),
        bounds=(relation.at(WINDOWSTART), relation.at(WINDOWEND)) if window else None,
    )
    return QueryPlan(
        kind=PlanKind.STATELESS,
        inputs=request.inputs,
        sql=sql.text(),
        columns=tuple(item.name for item in items),
        keys=names,
        makes_table=False,
        window=window,
        limit=select.limit,
    )


def plan_changes(request: PlanRequest) -> QueryPlan:
    """Table to table: rows that WHERE refuses are deletes of what may have been there before."""
    select, (relation,) = request.select, request.relations
    scope = SelectScope(request.relations)
    refuse_for_tables(request, scope)
    items = projected(select.projections, scope, is_stored=request.is_stored)
    items, names = key_names(
        items,
        own_keys(relation),
        is_stored=request.is_stored,
        of=f"the primary key of {relation.alias}",
    )
    window = relation.source.window
    condition = None if select.where is None else scope.spark(select.where)
    sql = PlanSql(
        items=items,
        source=view_of(relation),
        time=relation.at(TIME),
        deleted=deleted_unless(relation.at(DELETED), condition),
        bounds=(relation.at(WINDOWSTART), relation.at(WINDOWEND)) if window else None,
    )
    return QueryPlan(
        kind=PlanKind.CHANGES,
        inputs=request.inputs,
        sql=sql.text(),
        columns=tuple(item.name for item in items),
        keys=names,
        makes_table=True,
        window=window,
        limit=select.limit,
    )


def own_keys(relation: Relation) -> list[KeyColumn]:
    return [KeyColumn(each.name, (relation.at(each.name),)) for each in relation.source.keys]


def partition_keys(partition_by: tuple[exp.Expr, ...], scope: SelectScope) -> list[KeyColumn]:
    """PARTITION BY NULL: the result has no key."""
    if len(partition_by) == 1 and isinstance(partition_by[0], exp.Null):
        return []
    return [KeyColumn(sql_of(each), (scope.spark(each),)) for each in partition_by]


def refuse_for_tables(request: PlanRequest, scope: SelectScope) -> None:
    """Clauses that only results that are streams can have."""
    select = request.select
    if select.partition_by is not None:
        raise SqlError(
            "PARTITION BY is only for streams: the key of a table identifies its rows. Use GROUP BY"
            " over a stream, or create a stream over the table's topic."
        )
    if without_table_functions(select.projections, scope).laterals:
        raise SqlError(
            "EXPLODE is only for streams: a row of a table cannot become several rows with one key."
        )
    laterals = select.expression.args.get("laterals")
    if laterals:
        raise SqlError("LATERAL VIEW is only for streams.", *place_of(laterals[0]))
