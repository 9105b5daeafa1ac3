"""A plan as a DataFrame: its views, its joins by state, and its SQL over these."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.sql.host.functions import register_functions
from headrace.sql.host.state_joins import state_join
from headrace.sql.host.views import MakeView
from headrace.sql.hosting import FunctionSpec
from headrace.sql.plans import TIME, PlanKind, QueryPlan
from headrace.sql.sources import SqlSource


def plan_rows(
    spark: SparkSession,
    plan: QueryPlan,
    sources: Sequence[SqlSource],
    functions: Sequence[FunctionSpec],
    make_view: MakeView,
) -> DataFrame:
    """The rows of a plan, with all columns that its SQL has.

    The session must be of this query alone: views and functions have names of the plan.
    """
    by_name = {each.name.casefold(): each for each in sources}
    register_functions(spark, functions)
    views: dict[str, DataFrame] = {}
    for each in plan.inputs:
        rows = make_view(by_name[each.source.casefold()], each.view)
        views[each.view] = _with_watermark(rows, plan)
    _register(views)
    for join in plan.joins:
        joined = {join.view: state_join(join, views)}
        views |= joined
        _register(joined)
    return spark.sql(plan.sql)


def _register(views: Mapping[str, DataFrame]) -> None:
    for name, rows in views.items():
        rows.createOrReplaceTempView("`" + name.replace("`", "``") + "`")


def _with_watermark(rows: DataFrame, plan: QueryPlan) -> DataFrame:
    if plan.watermark_ms is None or plan.kind not in (PlanKind.AGGREGATE, PlanKind.STREAM_JOIN):
        return rows
    if not rows.isStreaming:
        return rows
    return rows.withWatermark(TIME, f"{plan.watermark_ms} milliseconds")


def result_rows(rows: DataFrame, plan: QueryPlan) -> DataFrame:
    """Only the columns of the result, in their order."""
    return rows.select(*(F.col("`" + name.replace("`", "``") + "`") for name in plan.columns))
