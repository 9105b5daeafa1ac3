"""Spark accepts the SQL of plans, has the expected columns, and can stream it.

The views are empty streams with the columns that `plans.py` promises. A join by state is an empty
view as well: the driver's part is tested with the driver.
"""

from collections.abc import Iterable

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.sql.plans import DELETED, TIME, WINDOWEND, WINDOWSTART, PlanKind, QueryPlan
from headrace.sql.sources import SqlSource
from tests.sql.language.cases import CASES, PlanCase, planned, source

pytestmark = pytest.mark.spark


def columns_of(found: SqlSource) -> dict[str, str]:
    """The columns of the view of a source, and their types."""
    columns = {column.name: column.type for column in found.columns}
    columns |= {"ROWTIME": "bigint", "ROWPARTITION": "int", "ROWOFFSET": "bigint"}
    if found.window is not None:
        columns |= {WINDOWSTART: "bigint", WINDOWEND: "bigint"}
    if found.is_table:
        columns[DELETED] = "boolean"
    return columns


def empty_view(spark: SparkSession, columns: dict[str, str], watermark_ms: int | None) -> DataFrame:
    """An empty stream; `__time` has a watermark."""
    rows = spark.readStream.format("rate").load().withColumnRenamed("timestamp", TIME)
    if watermark_ms is not None:
        rows = rows.withWatermark(TIME, f"{watermark_ms} milliseconds")
    return rows.selectExpr(
        *(f"CAST(NULL AS {kind}) AS `{name}`" for name, kind in columns.items()), TIME
    )


def make_views(spark: SparkSession, plan: QueryPlan) -> None:
    columns: dict[str, dict[str, str]] = {}
    for each in plan.inputs:
        found = source(each.source)
        assert found is not None
        columns[each.view] = columns_of(found)
        empty_view(spark, columns[each.view], plan.watermark_ms).createOrReplaceTempView(each.view)
    for join in plan.joins:
        left, right = columns[join.left.view], columns[join.right.view]
        left_key, right_key = (
            spark.table(view).selectExpr(f"{key} AS k").schema["k"].dataType
            for view, key in ((join.left.view, join.left_key), (join.right.view, join.right_key))
        )
        assert left_key == right_key
        columns[join.view] = {
            **{f"l__{name}": kind for name, kind in left.items()},
            **{f"r__{name}": kind for name, kind in right.items()},
        }
        if not join.left_is_stream:
            columns[join.view][DELETED] = "boolean"
        empty_view(spark, columns[join.view], None).createOrReplaceTempView(join.view)


def expected_columns(plan: QueryPlan) -> Iterable[str]:
    yield from plan.columns
    if plan.window is not None:
        yield from (each for each in (WINDOWSTART, WINDOWEND) if each not in plan.columns)
    if plan.makes_table:
        yield DELETED
    yield TIME


def check_streaming(spark: SparkSession, rows: DataFrame, mode: str) -> None:
    """What Spark checks when a query starts."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode)()
    checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), output_mode)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.text)
def test_spark_accepts_the_plan(spark: SparkSession, case: PlanCase) -> None:
    plan = planned(case.text)
    make_views(spark, plan)
    rows = spark.sql(plan.sql)
    assert rows.columns == list(expected_columns(plan))
    is_update = plan.kind is PlanKind.AGGREGATE and not plan.emit_final
    check_streaming(spark, rows, "Update" if is_update else "Append")
