"""Whether a query can continue with the checkpoint of another one."""

from pyspark.sql import SparkSession

from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.hosting import QuerySpec


def check_replacement(spark: SparkSession, settings: SqlDriverSettings, spec: QuerySpec) -> None:
    """TODO"""
