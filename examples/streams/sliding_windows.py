"""Sliding windows: the highest temperature of the last five minutes, every minute.

A reading belongs to five windows.
"""

from building import READINGS, Building, enter
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def peaks(readings: DataFrame) -> DataFrame:
    return (
        readings.withWatermark("time", "2 minutes")
        .groupBy(F.window("time", "5 minutes", "1 minute"), "sensor")
        .agg(F.count("*").alias("readings"), F.max("temperature").alias("peak"))
        .select(F.col("window.end").alias("until"), "sensor", "readings", "peak")
    )


def start(building: Building) -> None:
    readings = building.stream("readings", READINGS)
    building.publish(peaks(readings), "peaks", key="sensor").awaitTermination()


if __name__ == "__main__":
    start(enter())
