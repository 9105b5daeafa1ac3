"""Expressions that may fail for single records, without failing the batch.

With ANSI semantics, casts, divisions and overflows raise an error, which fails the whole epoch
(docs/decisions/0060). `attempted` turns the error into null for the record. Spark uses the same
expression for its functions `try_*`, and has no function for it.
"""

from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def attempted(column: Column, on: Column) -> Column:
    """A struct with the value in its field `it`; null if the expression fails, or if not `on`.

    The expression is inside a conditional one: Spark evaluates subexpressions that several
    expressions share beforehand, and so outside of the attempt, unless they are conditional.
    """
    sql = _java()
    utils = sql.classic.ExpressionUtils
    whole = F.when(on, F.struct(column.alias("it")))
    return Column(utils.column(sql.catalyst.expressions.TryEval(utils.expression(whole._jc))))


def projection(rows: DataFrame) -> tuple[DataFrame, list[tuple[Column, bool]]] | None:
    """The rows below a selection, and its columns, with whether each may fail.

    None if the query is not a plain selection.
    """
    classic = _java().classic
    session = rows.sparkSession
    plan = rows._jdf.queryExecution().analyzed()
    if plan.nodeName() != "Project":
        return None
    below = DataFrame(classic.Dataset.ofRows(session._jsparkSession, plan.child()), session)
    items = plan.projectList()
    found = [items.apply(place) for place in range(items.size())]
    return below, [
        (Column(classic.ExpressionUtils.column(each)), not _is_field(each)) for each in found
    ]


def _is_field(expression: Any) -> bool:
    """Whether it is a column or a field of one, whatever its name."""
    while expression.nodeName() in ("Alias", "GetStructField"):
        expression = expression.child()
    return bool(expression.nodeName() == "AttributeReference")


def _java() -> Any:
    """Spark's own package, which PySpark has no names for."""
    context = SparkContext._active_spark_context
    assert context is not None, "there is a Spark session"
    java: Any = context._jvm
    return java.org.apache.spark.sql
