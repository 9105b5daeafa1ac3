"""Kappa: one pipeline for history and new records.

A changed pipeline needs no second batch pipeline to correct history. It is started beside the
old one under another name, reads the topic from the beginning and writes to another topic.
When it has caught up and its results are correct, readers switch to it and the old one is stopped.

    headrace spark run examples/streams/kappa.py -- --version 1
    headrace spark run examples/streams/kappa.py -- --version 2
"""

import argparse
from collections.abc import Callable

from building import READINGS, Building, enter
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

# Sensors that show too high a temperature, and the error.
CORRECTIONS = {"cellar-1": -1.5, "attic-2": -0.5}


def first(readings: DataFrame) -> DataFrame:
    """The averages of every hour, in the first version."""
    return (
        readings.withWatermark("time", "5 minutes")
        .groupBy(F.window("time", "1 hour"), "sensor")
        .agg(F.count("*").alias("readings"), F.round(F.avg("temperature"), 2).alias("temperature"))
        .select(F.col("window.start").alias("hour"), "sensor", "readings", "temperature")
    )


def second(readings: DataFrame) -> DataFrame:
    """The same with corrected temperatures, for the whole history."""
    correction = F.create_map(*[F.lit(x) for pair in CORRECTIONS.items() for x in pair])
    corrected = F.col("temperature") + F.coalesce(correction[F.col("sensor")], F.lit(0.0))
    return first(readings.withColumn("temperature", corrected))


VERSIONS: dict[int, Callable[[DataFrame], DataFrame]] = {1: first, 2: second}


def start(building: Building, version: int) -> None:
    hours = VERSIONS[version](building.stream("readings", READINGS))
    building.publish(hours, f"hours-v{version}", key="sensor").awaitTermination()


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("--version", type=int, choices=VERSIONS, default=1)
    start(enter(), words.parse_known_args()[0].version)
