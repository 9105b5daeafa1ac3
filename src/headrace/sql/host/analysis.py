"""Spark's analysis of a plan: nothing is read, and nothing is run."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.sql.host.plan_frames import plan_rows, result_rows
from headrace.sql.host.refusals import refusals
from headrace.sql.host.views import empty_views
from headrace.sql.hosting import FunctionSpec
from headrace.sql.plans import PlanKind, QueryPlan
from headrace.sql.sources import SqlSource


def analysed(
    spark: SparkSession,
    plan: QueryPlan,
    sources: Sequence[SqlSource],
    functions: Sequence[FunctionSpec],
) -> dict[str, object]:
    """The columns of the result, and Spark's plan as text; QueryRefused."""
    with refusals():
        rows = plan_rows(spark, plan, sources, functions, empty_views(spark))
        _check_streaming(spark, rows, plan)
        return {"columns": described(result_rows(rows, plan)), "plan": _explained(rows)}


def described(rows: DataFrame) -> list[dict[str, str]]:
    """The names and types of columns."""
    return [
        {"name": each.name, "type": each.dataType.simpleString()} for each in rows.schema.fields
    ]


def output_mode(plan: QueryPlan) -> str:
    """How a query emits: rows that change, or rows that are final."""
    changes = plan.kind is PlanKind.AGGREGATE and not plan.emit_final
    return "update" if changes else "append"


def _check_streaming(spark: SparkSession, rows: DataFrame, plan: QueryPlan) -> None:
    """AnalysisException for what a stream cannot do, such as sorting."""
    jvm: Any = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = modes.Update() if output_mode(plan) == "update" else modes.Append()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)


def _explained(rows: DataFrame) -> str:
    """The analysed plan: Spark makes a physical one only for a query with a checkpoint."""
    return str(rows._jdf.queryExecution().analyzed().toString())
