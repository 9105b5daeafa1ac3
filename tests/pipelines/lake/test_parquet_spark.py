"""Plain Parquet files with Spark: what it writes, what it reads, and what it shows."""

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support import s3 as s3_server
from tests.support.s3 import KEY, REGION, SECRET, S3Server

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def numbers(spark: SparkSession, *columns: str) -> DataFrame:
    """A stream with the numbers 0 to 9."""
    rates: Any = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "10")
    return rates.option("numPartitions", "2").load().selectExpr("value as n", *columns)


def write_one_epoch(rows: DataFrame, checkpoint: Path, **options: str) -> Any:
    query = (
        rows.writeStream.format("headrace-parquet")
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_spark_reads_folders_and_new_columns_without_options(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "files")
    old = numbers(spark, "if(value < 5, 'a/b', null) as city")
    write_one_epoch(old, tmp_path / "1", path=path, partitionBy="city")
    new = numbers(spark, "'Bern' as city", "'x' as note")
    write_one_epoch(new, tmp_path / "2", path=path, partitionBy="city")
    found = spark.read.parquet(path)
    assert set(found.columns) == {"n", "city", "note"}
    rows = sorted((row.city or "", row.n, row.note) for row in found.collect())
    assert rows == sorted(
        [("a/b" if n < 5 else "", n, None) for n in range(10)]
        + [("Bern", n, "x") for n in range(10)],
        key=lambda row: (row[0], row[1]),
    )


def test_a_batch_write_appends(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(5).selectExpr("id", "id % 2 as part")
    for _ in range(2):
        writer = frame.write.format("headrace-parquet").option("partitionBy", "part")
        writer.mode("append").save(str(tmp_path))
    found = spark.read.parquet(str(tmp_path))
    assert sorted(row.id for row in found.collect()) == sorted([*range(5), *range(5)])
    with pytest.raises(Exception, match="only appends"):
        frame.write.format("headrace-parquet").mode("overwrite").save(str(tmp_path))


def test_the_secret_of_s3_is_in_no_plan_progress_checkpoint_or_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    if reason := s3_server.missing():
        pytest.skip(reason)
    shown = io.StringIO()
    with S3Server() as server, contextlib.redirect_stdout(shown):
        server.create_bucket("lake")
        storage = {
            "storage.AWS_ACCESS_KEY_ID": KEY,
            "storage.AWS_SECRET_ACCESS_KEY": SECRET,
            "storage.AWS_SESSION_TOKEN": f"token-{SECRET}",
            "storage.AWS_REGION": REGION,
            "storage.AWS_ENDPOINT_URL": server.url,
        }
        rows = numbers(spark)
        query = write_one_epoch(rows, tmp_path / "1", path="s3://lake/files", **storage)
        query.explain(True)
        print(query.lastProgress)
        files = server.filesystem()
        assert files.get_file_info("lake/files/_common_metadata").is_file
        with pytest.raises(Exception, match="bucket") as failed:
            write_one_epoch(rows, tmp_path / "2", path="s3://no-such-bucket/files", **storage)
        logged = server.log()
    texts = {
        str(path): path.read_text(errors="replace")
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    texts |= {"shown": shown.getvalue(), "error": str(failed.value), "server": logged}
    assert "headrace-parquet" in texts["shown"]
    assert [where for where, text in texts.items() if SECRET in text] == []
