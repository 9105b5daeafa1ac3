"""The demo's pipeline: readings to averages of every minute, to alerts, to a table. Exactly once.

    demo-readings ──> averages ──> demo-averages ──┬──> alerts ──> demo-alerts
                                                   └──> table  ──> a Delta table

    headrace spark run examples/sensors/pipeline.py -- --table data/demo/averages

Three streaming queries in one program. Only the first has state; the other two read what it has
committed. Each is a consumer group of its name, and each continues where it was after a crash.
"""

import argparse
import os

from house_rules import ALERTS, AVERAGES, PLACES, READINGS
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

READING = "sensor STRING, place STRING, temperature DOUBLE, humidity DOUBLE, time TIMESTAMP"
AVERAGE = (
    "minute TIMESTAMP, sensor STRING, place STRING, readings LONG, "
    "temperature DOUBLE, humidity DOUBLE, alert STRING"
)


def averages(readings: DataFrame) -> DataFrame:
    """The averages of every sensor and minute, each once, when the minute is over."""
    return (
        readings.withWatermark("time", "2 minutes")
        .groupBy(F.window("time", "1 minute"), "sensor", "place")
        .agg(
            F.count("*").alias("readings"),
            F.round(F.avg("temperature"), 2).alias("temperature"),
            F.round(F.avg("humidity"), 2).alias("humidity"),
        )
        .select(
            F.col("window.start").alias("minute"),
            *("sensor", "place", "readings", "temperature", "humidity"),
            alert().alias("alert"),
        )
    )


def alert() -> Column:
    """The alert of a place, or null."""
    found = F.lit(None).cast("string")
    for place in PLACES:
        here = F.col("place") == place.name
        found = (
            F.when(here & (F.col("temperature") > place.warmest), "too warm")
            .when(here & (F.col("temperature") < place.coldest), "too cold")
            .when(here & (F.col("humidity") > place.dampest), "too damp")
            .when(here & (F.col("humidity") < place.driest), "too dry")
            .otherwise(found)
        )
    return found


class Log:
    """The topics: how they are read and written."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap

    def read(self, topic: str, schema: str, group: str) -> DataFrame:
        """The committed records of a topic, from its beginning."""
        records = (
            self._spark.readStream.format("headrace")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .option("group.id", group)
            .load()
        )
        value = F.from_json(F.col("value").cast("string"), schema)
        return records.select(value.alias("value")).select("value.*")

    def write(self, frame: DataFrame, topic: str, name: str) -> StreamingQuery:
        """Write to a topic, exactly once."""
        rows = frame.select(F.col("sensor").alias("key"), F.to_json(F.struct("*")).alias("value"))
        writer = (
            rows.writeStream.format("headrace")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("topic", topic)
            .option("delivery", "exactly-once")
        )
        return _named(writer, name).start()


def _named(writer: DataStreamWriter, name: str) -> DataStreamWriter:
    return writer.queryName(name).outputMode("append").trigger(processingTime="1 second")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--table", required=True, metavar="FOLDER", help="where the Delta table is")
    chosen = words.parse_args()
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    log = Log(spark, os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092"))
    log.write(averages(log.read(READINGS, READING, "demo-averages")), AVERAGES, "averages")
    warnings = log.read(AVERAGES, AVERAGE, "demo-alerts").where("alert IS NOT NULL")
    log.write(warnings, ALERTS, "alerts")
    rows = log.read(AVERAGES, AVERAGE, "demo-table")
    table = rows.writeStream.format("headrace-delta").option("path", chosen.table)
    _named(table, "table").start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
