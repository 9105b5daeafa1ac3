"""Spark in this process, for comparisons."""

from tests.connect.spark_session import spark as spark
