"""Orders with a schema: written in two versions, read as columns, beside a foreign record.

headrace serve --data-dir /tmp/orders &
headrace registry serve &
headrace spark run examples/typed/orders.py
"""

import os
import sys
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

OLD = "struct(id, 'customer-' || id as customer) as value"
NEW = "struct(id, 'customer-' || id as customer, id * 1.5d as price) as value"


def write(frame: DataFrame, options: Mapping[str, str], topic: str) -> None:
    """Write rows to the topic; a struct needs a format."""
    frame.write.format("headrace").mode("append").options(**options).option("topic", topic).save()


def run(spark: SparkSession, cluster: Mapping[str, str], registry: str, topic: str) -> DataFrame:
    """The topic as columns, with records of both versions and one that is not an order."""
    typed = {**cluster, "schema.registry.url": registry, "value.format": "avro"}
    write(spark.range(0, 3).selectExpr(OLD), typed, topic)
    write(spark.range(3, 6).selectExpr(NEW), typed, topic)
    write(spark.sql("select 'not an order' as value"), cluster, topic)
    return spark.read.format("headrace").options(**typed).option("subscribe", topic).load()


def main() -> None:
    registry = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8081"
    cluster = {"kafka.bootstrap.servers": os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")}
    spark = SparkSession.builder.getOrCreate()
    orders = run(spark, cluster, registry, "orders")
    orders.printSchema()
    orders.select("offset", "value.*", "_error").show(truncate=False)


if __name__ == "__main__":
    main()
