"""Numbers of milliseconds as timestamps. Spark fails on numbers that its timestamps do not hold."""

from pyspark.sql import Column
from pyspark.sql import functions as F

_LIMIT_MS = (1 << 63) // 1000 - 1
"""Timestamps count microseconds."""


def timestamp_of_millis(number: Column) -> Column:
    """The timestamp; null if the number is too large."""
    return F.when(number.between(-_LIMIT_MS, _LIMIT_MS), F.timestamp_millis(number))
