"""Makes one topic equal to another for the readers of its latest values, exactly once.

Keys and values are copied as they are: both topics have the same formats. The write has a name, and
is in the ledger of the sink: it adds nothing if it is repeated after a crash.
"""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructType

from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.writing import KEY, TIMESTAMP, TRANSACTIONS, VALUE
from headrace.sql.hosting import RowCopy


def copy_rows(spark: SparkSession, settings: SqlDriverSettings, copy: RowCopy) -> None:
    """Write the differences, and begin the ledger of the query that goes on with the target."""
    options = {
        **settings.kafka_options(),
        "topic": copy.target,
        "delivery": "exactly-once",
        "transactionalIdPrefix": TRANSACTIONS,
    }
    if copy.keyed:
        rows = _differences(spark, settings, copy)
        _write(rows, {**options, "query": copy.name, "epoch": "0"})
    if copy.query:
        # Without a page the next epoch would be refused: it might be one that was written before.
        nothing = spark.createDataFrame(
            [], StructType().add(KEY, BinaryType()).add(VALUE, BinaryType())
        )
        names = {"query": copy.query, "epoch": str(copy.epoch), "ledger": "new"}
        _write(nothing, {**options, **names})


def _write(rows: DataFrame, options: Mapping[str, str]) -> None:
    rows.write.format("headrace").options(**options).mode("append").save()


def _differences(spark: SparkSession, settings: SqlDriverSettings, copy: RowCopy) -> DataFrame:
    """Records that give each key of the target the value that it has in the origin."""
    origin = _latest(spark, settings, copy.origin, copy.origin_ends).alias("origin")
    target = _latest(spark, settings, copy.target, copy.target_ends).alias("target")
    pair = origin.join(target, KEY, "full_outer")
    wanted, present = F.col("origin.value"), F.col("target.value")
    changed = pair.where(~wanted.eqNullSafe(present)).select(
        KEY, wanted.alias(VALUE), F.col("origin.timestamp").alias(TIMESTAMP)
    )
    # A fixed number of tasks: a repeated write must have as many as the first.
    return changed.repartition(max(len(copy.target_ends), 1), KEY)


def _latest(
    spark: SparkSession, settings: SqlDriverSettings, topic: str, ends: Mapping[str, int]
) -> DataFrame:
    """The latest record of each key. The value is null if it is a tombstone."""
    options = {
        **settings.kafka_options(),
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
        "startingOffsets": "earliest",
        "endingOffsets": json.dumps({topic: dict(ends)}),
        "columns": "key,value,offset,timestamp",
    }
    records = spark.read.format("headrace").options(**options).load()
    latest = F.max_by(F.struct("value", "timestamp"), F.col("offset")).alias("latest")
    found = records.where(F.col(KEY).isNotNull()).groupBy(KEY).agg(latest)
    return found.select(KEY, "latest.*")
