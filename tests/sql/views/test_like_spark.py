"""Queries over views have the results of the same queries in Spark: names, types and rows."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headrace.sql.host.json_values import json_rows
from headrace.sql.host.types import type_of
from headrace.sql.language.grammar.dialect import sql_of
from headrace.sql.plans import ROWOFFSET, ROWPARTITION, ROWTIME
from tests.sql.views.spark_cases import statements
from tests.sql.views.typed_tables import (
    GROUP_ROWS,
    GROUPS,
    THING_ROWS,
    THINGS,
    answered,
    fill,
    planned,
)

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("views")
    fill(folder)
    return folder


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> SparkSession:
    """Spark with views of the same rows."""
    pseudo = [(ROWTIME, "bigint"), (ROWPARTITION, "int"), (ROWOFFSET, "bigint")]
    for of, rows in ((THINGS, THING_ROWS), (GROUPS, GROUP_ROWS)):
        schema = StructType()
        for name, kind in [*((each.name, each.type) for each in of.columns), *pseudo]:
            schema = schema.add(name, type_of(kind))
        numbered = [(*values, 1000 + n, n % 2, n) for n, values in enumerate(rows)]
        spark.createDataFrame(numbered, schema).createOrReplaceTempView(of.name)
    return spark


def shown(rows: list[list[object]], is_ordered: bool) -> list[str]:
    """Rows as texts; sorted if the query does not say in which order."""
    texts = [json.dumps(row, sort_keys=True) for row in rows]
    return texts if is_ordered else sorted(texts)


@pytest.mark.parametrize("text", statements())
def test_a_query_has_sparks_result(text: str, files: Path, views: SparkSession) -> None:
    plan = planned(text)
    found = views.sql(sql_of(plan.query))
    expected = [list(row) for row in json_rows(found.toArrow(), found.schema)]
    columns, rows = answered(files, text)
    # Spark shows names of fields without quotes.
    plain = [(name, kind.replace("`", "")) for name, kind in columns]
    assert plain == [(each.name, each.dataType.simpleString()) for each in found.schema.fields]
    is_ordered = "ORDER BY" in text
    assert shown(rows, is_ordered) == shown(_with_names(expected), is_ordered)


def _with_names(rows: list[list[object]]) -> list[list[object]]:
    """Numbers that JSON does not have, by their names, as views have them."""

    def named(value: object) -> object:
        if isinstance(value, float) and value != value:
            return "NaN"
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
        return value

    return [[named(value) for value in row] for row in rows]
