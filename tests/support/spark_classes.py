"""An archive of Spark's classes, with which each Spark of the tests starts in half the time.

    python -m tests.support.spark_classes

Java maps the classes of such an archive into memory and neither reads nor verifies them again. It
compares the class path and Java's version first, and does without an archive that does not fit.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support import java
from tests.support.spark import local_spark, missing


def main() -> int:
    """Make the archive from the classes that some usual work loads; the exit code."""
    if reason := missing():
        print(f"no archive of Spark's classes: {reason}", file=sys.stderr)
        return 0
    java.SPARK_CLASSES.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=java.SPARK_CLASSES.parent) as folder:
        made = Path(folder) / "classes.jsa"
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join(
            (*java.QUICK_SPARK, f"{java.MAKE_ARCHIVE}={made}", *java.SILENT_JAVA)
        )
        session = local_spark(Path(folder))
        process = session.sparkContext._gateway.proc
        try:
            work(session, Path(folder))
        finally:
            session.stop()
            process.stdin.close()
            process.wait()
        made.rename(java.SPARK_CLASSES)
    return 0


def work(session: SparkSession, folder: Path) -> None:
    """A query, a file, a Python function and a stream."""
    numbers = session.range(100).selectExpr("id", "id % 7 AS bucket", "string(id) AS text")
    numbers.groupBy("bucket").count().orderBy("bucket").collect()
    numbers.mapInArrow(lambda batches: batches, numbers.schema).collect()
    numbers.write.parquet(str(folder / "numbers"))
    session.read.parquet(str(folder / "numbers")).createOrReplaceTempView("numbers")
    session.sql("SELECT bucket, max(id) FROM numbers WHERE text > '3' GROUP BY bucket").toPandas()
    stream = session.readStream.format("rate").load().groupBy("value").count()
    query = (
        stream.writeStream.format("memory")
        .queryName("rates")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    sys.exit(main())
