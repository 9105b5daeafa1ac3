"""The session that the other tests here share."""

import sys

import pytest
from pyspark.sql import SparkSession


@pytest.mark.spark
def test_workers_run_this_python_and_see_this_source(spark: SparkSession) -> None:
    def where(_: int) -> tuple[str, str]:
        import sys

        import headrace

        return sys.executable, headrace.__file__

    import headrace

    found = spark.sparkContext.parallelize([1], 1).map(where).collect()
    assert found == [(sys.executable, headrace.__file__)]
