"""Aggregation: the totals of each sensor so far. A result is written again whenever it changes."""

from building import READINGS, Building, enter
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def totals(readings: DataFrame) -> DataFrame:
    return readings.groupBy("sensor").agg(
        F.count("*").alias("readings"),
        F.round(F.avg("temperature"), 2).alias("temperature"),
        F.min("temperature").alias("coldest"),
        F.max("temperature").alias("warmest"),
    )


def start(building: Building) -> None:
    readings = building.stream("readings", READINGS)
    building.publish_changes(totals(readings), "totals", key="sensor").awaitTermination()


if __name__ == "__main__":
    start(enter())
