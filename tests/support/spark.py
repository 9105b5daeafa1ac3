"""One local Spark for all tests of a process, and the jars of Spark's own Kafka connector."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.pipelines.running import spark_home

ROOT = Path(__file__).resolve().parents[2]
CONNECTOR = ROOT / ".tools" / "spark-kafka"
FROM_AVRO = ROOT / ".tools" / "spark-avro"


@cache
def missing() -> str | None:
    """None when Spark can run, else a sentence naming what is missing."""
    if shutil.which("java") is None:
        return "no Java runtime for Spark: install the Debian package openjdk-17-jre-headless"
    return None


def connector_jars() -> list[Path]:
    """The jars of Spark's own connector; empty until scripts/fetch-java-tools has brought them."""
    return sorted(CONNECTOR.glob("*/*.jar"))


def avro_jars() -> list[Path]:
    """The jar of Spark's own from_avro, for comparisons; as above."""
    return sorted(FROM_AVRO.glob("*/*.jar"))


def local_spark(
    folder: Path, settings: Mapping[str, str] | None = None, more_jars: Sequence[Path] = ()
) -> SparkSession:
    """A session in this process, on loopback, without a web page, its files in `folder`."""
    # Workers would be another Python, and would not see the source tree.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(ROOT / "src"), *inherited]))
    if home := spark_home.without_zips(os.environ):
        os.environ["SPARK_HOME"] = str(home)
    builder = SparkSession.builder.master("local[2]").appName("headrace-tests")
    values = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.ui.enabled": "false",
        **(settings or {}),
    }
    if jars := [*connector_jars(), *more_jars]:
        values["spark.jars"] = ",".join(map(str, jars))
    for name, value in values.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
