"""Queries over what is in the topics now."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from headrace.sql.host.analysis import described
from headrace.sql.host.json_values import json_rows
from headrace.sql.host.plan_frames import plan_rows, result_rows
from headrace.sql.host.refusals import refusals
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.views import batch_views
from headrace.sql.hosting import FunctionSpec, QueryRefused
from headrace.sql.plans import DELETED, QueryPlan
from headrace.sql.sources import SqlSource

MOST_ROWS = 100_000
"""The response is one message."""


def batch_result(
    spark: SparkSession,
    settings: SqlDriverSettings,
    plan: QueryPlan,
    sources: Sequence[SqlSource],
    functions: Sequence[FunctionSpec],
    limit: int | None,
) -> dict[str, object]:
    """The columns and rows of a plan; QueryRefused."""
    with refusals():
        rows = plan_rows(spark, plan, sources, functions, batch_views(spark, settings))
        if DELETED in rows.columns:
            rows = rows.where(f"not {DELETED}")
        result = result_rows(rows, plan)
    bounds = [each for each in (limit, plan.limit) if each is not None]
    most = min(bounds, default=MOST_ROWS + 1)
    table = result.limit(most).toArrow()
    if not bounds and table.num_rows > MOST_ROWS:
        raise QueryRefused(f"the result has more than {MOST_ROWS} rows; add a LIMIT")
    return {"columns": described(result), "rows": list(json_rows(table, result.schema))}
