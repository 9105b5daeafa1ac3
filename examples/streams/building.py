"""The topics of the examples, the schemas of their records, and how they are read and written.

Every record is JSON with an event time. This module has no stream logic; the examples
themselves are one function each, from DataFrames to a DataFrame.
"""

import argparse
import os
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from headrace.pipelines import write_epochs

# A sensor measures: temperature in degrees Celsius, humidity in percent.
READINGS = "id STRING, sensor STRING, temperature DOUBLE, humidity DOUBLE, time TIMESTAMP"
# The properties of a sensor; a compacted topic with one record per sensor.
SENSORS = "sensor STRING, room STRING, warmest DOUBLE"
# A motion in a room.
MOTIONS = "room STRING, time TIMESTAMP"
# An alarm, and the answer of a guard.
ALARMS = "alarm STRING, room STRING, time TIMESTAMP"
ANSWERS = "alarm STRING, guard STRING, time TIMESTAMP"


@dataclass(frozen=True)
class Building:
    """The cluster of the topics, and whether to stop after the existing records."""

    spark: SparkSession
    bootstrap: str
    once: bool = False
    # The prefix of the names of topics and queries.
    prefix: str = ""

    def stream(self, topic: str, schema: str) -> DataFrame:
        """A topic from its beginning: the fields of its records as columns."""
        records = self.spark.readStream.format("headrace").options(**self._source(topic)).load()
        return _fields(records, schema)

    def table(self, topic: str, schema: str, key: str) -> DataFrame:
        """A compacted topic as a table: the last record of each key, as of now."""
        records = self.spark.read.format("headrace").options(**self._source(topic)).load()
        newest = records.groupBy("key").agg(F.max_by("value", "offset").alias("value"))
        return _fields(newest, schema).where(F.col(key).isNotNull())

    def publish(self, frame: DataFrame, topic: str, key: str) -> StreamingQuery:
        """Write final results to a topic, exactly once; the query has the topic's name."""
        writer = (
            _records(frame, key)
            .writeStream.format("headrace")
            .outputMode("append")
            .options(**self._sink(topic))
            .option("delivery", "exactly-once")
        )
        return self._start(writer, topic)

    def publish_changes(self, frame: DataFrame, topic: str, key: str) -> StreamingQuery:
        """Write results that change, exactly once; the last record of a key is valid."""
        write = write_epochs(self.prefix + topic, bootstrap=self.bootstrap)
        changes = _records(frame, key).writeStream.outputMode("update")
        return self._start(changes.foreachBatch(write), topic)

    def _start(self, writer: DataStreamWriter, topic: str) -> StreamingQuery:
        if self.once:
            writer = writer.trigger(availableNow=True)
        return writer.queryName(self.prefix + topic).start()

    def _sink(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, "topic": self.prefix + topic}

    def _source(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.prefix + topic,
            "startingOffsets": "earliest",
        }


def _records(frame: DataFrame, key: str) -> DataFrame:
    """Rows as records of a topic: JSON with a key."""
    value = F.to_json(F.struct("*")).alias("value")
    return frame.select(F.col(key).cast("string").alias("key"), value)


def _fields(records: DataFrame, schema: str) -> DataFrame:
    value = F.from_json(F.col("value").cast("string"), schema)
    return records.select(value.alias("value")).select("value.*")


def enter() -> Building:
    """The building from the command line and the environment."""
    words = argparse.ArgumentParser()
    words.add_argument("--once", action="store_true", help="stop after the existing records")
    words.add_argument("--prefix", default="", help="prefix of the names of topics")
    chosen, _ = words.parse_known_args()
    bootstrap = os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return Building(spark, bootstrap, chosen.once, chosen.prefix)
