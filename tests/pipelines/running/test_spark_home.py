"""Python processes of Spark find PySpark where it is compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from headrace.pipelines.running.spark_home import without_zips

INSTALLED = Path(pyspark.__file__).parent


def test_it_has_all_of_spark_but_the_zips(tmp_path: Path) -> None:
    home = without_zips({"HOME": str(tmp_path)})
    assert home is not None
    assert home.is_relative_to(tmp_path / ".cache")
    assert (home / "bin" / "spark-submit").samefile(INSTALLED / "bin" / "spark-submit")
    assert (home / "jars").samefile(INSTALLED / "jars")
    assert list((home / "python").iterdir()) == []
    assert without_zips({"XDG_CACHE_HOME": str(tmp_path / ".cache")}) == home


def test_a_spark_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    assert without_zips({"HOME": str(tmp_path), "SPARK_HOME": "/opt/spark"}) is None
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_to_write_to_spark_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".cache").write_text("no folder")
    assert without_zips({"HOME": str(tmp_path)}) is None
    assert without_zips({}) is None


def test_two_programs_may_make_it_at_the_same_time(tmp_path: Path) -> None:
    program = (
        "import os; from headrace.pipelines.running.spark_home import without_zips; "
        "print(without_zips(os.environ))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("SPARK_HOME", None)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(4)
    ]
    said = {each.communicate()[0].strip() for each in running}
    (made,) = (tmp_path / "headrace").iterdir()
    assert said == {str(made)}


@pytest.mark.spark
def test_a_worker_imports_pyspark_from_where_it_is_installed(spark: SparkSession) -> None:
    def place(_: object) -> str:
        import pyspark.worker

        return str(pyspark.worker.__file__)

    (found,) = spark.sparkContext.parallelize([0], 1).map(place).collect()
    assert Path(found) == INSTALLED / "worker.py"
