"""Plans of joins of streams: Spark joins rows whose times are within a range."""

from dataclasses import replace

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
    tied,
    user_laterals,
    view_of,
)
from headrace.sql.language.planner.projecting import key_names, projected, without_table_functions
from headrace.sql.language.planner.scope import Relation, SelectScope
from headrace.sql.language.planner.single import partition_keys
from headrace.sql.language.select import JoinClause, Within
from headrace.sql.plans import TIME, PlanKind, QueryPlan


def plan_stream_join(request: PlanRequest) -> QueryPlan:
    """Streams to stream."""
    select, (first, *others) = request.select, request.relations
    plain = SelectScope(request.relations)
    source, graces, equal = view_of(first), [], list[Equality]()
    before: list[Relation] = [first]
    for join, relation in zip(select.joins, others, strict=True):
        within = _within(join, relation)
        condition = condition_of(join, before, relation)
        graces.append(request.grace_ms if within.grace_ms is None else within.grace_ms)
        parts = [
            *(
                exp.EQ(this=plain.spark(each.left), expression=plain.spark(each.right))
                for each in condition.equalities
            ),
            *_not_null(join, condition, plain),
            *(plain.spark(each) for each in condition.others),
            _in_range(first, relation, within),
        ]
        on = tied(parts)
        assert on is not None
        source += f"\n{_SPARK_JOINS[join.kind]} {view_of(relation)} ON {sql_of(on)}"
        equal += condition.equalities if join.kind == "INNER" else ()
        before.append(relation)
    # The time of a joined row is that of its latest part; greatest() skips the missing ones.
    time = spark_call("greatest", *(relation.at(TIME) for relation in request.relations))
    key = join_key(select.joins[-1].kind, condition, plain, equal)
    scope, laterals = user_laterals(select, replace(plain, special=special_names(key, time)))
    exploded = without_table_functions(select.projections, scope)
    scope = replace(scope, special={**scope.special, **exploded.special})
    items = projected(exploded.projections, scope, is_stored=request.is_stored)
    keys = list(key.columns)
    if select.partition_by is not None:
        keys = partition_keys(select.partition_by, scope)
    items, names = key_names(
        items,
        keys,
        is_stored=request.is_stored,
        of="of ON" if select.partition_by is None else "of PARTITION BY",
    )
    sql = PlanSql(
        items=items,
        source=source,
        time=time,
        where=None if select.where is None else scope.spark(select.where),
        laterals=(*laterals, *exploded.laterals),
    )
    return QueryPlan(
        kind=PlanKind.STREAM_JOIN,
        inputs=request.inputs,
        sql=sql.text(),
        columns=tuple(item.name for item in items),
        keys=names,
        makes_table=False,
        watermark_ms=max(graces),
        limit=select.limit,
    )


_SPARK_JOINS = {
    "INNER": "JOIN",
    "LEFT": "LEFT OUTER JOIN",
    "RIGHT": "RIGHT OUTER JOIN",
    "FULL": "FULL OUTER JOIN",
}


def _not_null(join: JoinClause, condition: JoinCondition, scope: SelectScope) -> list[exp.Expr]:
    """Spark's state of a full join finds null under the key null, though null equals nothing.

    In other joins Spark itself leaves out rows whose key is null.
    """
    if join.kind != "FULL":
        return []
    return [
        exp.Not(this=exp.Is(this=scope.spark(each.left), expression=exp.null()))
        for each in condition.equalities
    ]


def _within(join: JoinClause, relation: Relation) -> Within:
    if join.within is None:
        raise SqlError(
            f"The JOIN with the stream {relation.alias} needs a time range, as in JOIN"
            f" {relation.alias} WITHIN 1 HOUR ON ....",
            join.source.line,
            join.source.column,
        )
    return join.within


def _in_range(first: Relation, joined: Relation, within: Within) -> exp.Expr:
    """Rows of the joined stream are at most so much earlier, and so much later.

    All joins count from the first stream: times that are computed have no watermark in Spark.
    """
    here, there = first.at(TIME), joined.at(TIME)
    return exp.And(
        this=exp.GTE(
            this=there, expression=exp.Sub(this=here, expression=_interval(within.before_ms))
        ),
        expression=exp.LTE(
            this=there.copy(),
            expression=exp.Add(this=here.copy(), expression=_interval(within.after_ms)),
        ),
    )


def _interval(milliseconds: int) -> exp.Expr:
    return exp.Interval(this=exp.Literal.string(str(milliseconds)), unit=exp.var("MILLISECONDS"))
