"""Tumbling windows: the averages of every minute, each once, when the minute is over.

A minute is over when readings two minutes newer have arrived. Readings after that are late,
and are left out, because the average has been published.
"""

from building import READINGS, Building, enter
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def averages(readings: DataFrame) -> DataFrame:
    return (
        readings.withWatermark("time", "2 minutes")
        .groupBy(F.window("time", "1 minute"), "sensor")
        .agg(
            F.count("*").alias("readings"),
            F.round(F.avg("temperature"), 2).alias("temperature"),
            F.round(F.avg("humidity"), 2).alias("humidity"),
        )
        .select(
            F.col("window.start").alias("minute"), "sensor", "readings", "temperature", "humidity"
        )
    )


def start(building: Building) -> None:
    readings = building.stream("readings", READINGS)
    building.publish(averages(readings), "minutes", key="sensor").awaitTermination()


if __name__ == "__main__":
    start(enter())
