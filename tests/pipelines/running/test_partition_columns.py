"""`.partitionBy` of Spark's own writers reaches the lake sinks; tables are read without Spark."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.pipelines.lake.iceberg import in_warehouse
from headrace.pipelines.running.partition_columns import hand_on_partition_columns

pytestmark = pytest.mark.spark

COLUMNS = (
    "value as id",
    "concat('a/b=', value % 3, ' %') as kind",
    "if(value % 5 = 0, null, date_add(date'2024-02-28', cast(value % 2 as int))) as day",
)


@pytest.fixture
def changed() -> Iterator[None]:
    """PySpark's writers as `headrace spark` has them, for one test."""
    names = ("format", "partitionBy", "clusterBy")
    before = [
        (writer, name, vars(writer)[name])
        for writer in (DataFrameWriter, DataStreamWriter)
        for name in names
    ]
    hand_on_partition_columns()
    yield
    for writer, name, original in before:
        setattr(writer, name, original)
        if hasattr(writer, "_headrace_hand_on"):
            del writer._headrace_hand_on


def batch(spark: SparkSession) -> DataFrame:
    return spark.range(0, 30, 1, 2).withColumnRenamed("id", "value").selectExpr(*COLUMNS)


def stream(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 15)
    return source.load().selectExpr(*COLUMNS)


class Table:
    """A table that a query writes, and what its own library says of it."""

    def __init__(self, kind: str, home: Path) -> None:
        self.format = f"headrace-{kind}"
        self.kind, self.home = kind, home
        self.options = (
            {"path": str(home / "orders")}
            if kind == "delta"
            else {"table": "sales.orders", "warehouse": str(home)}
        )

    def partition_columns(self) -> list[str]:
        if self.kind == "delta":
            return DeltaTable(str(self.home / "orders")).metadata().partition_columns
        table = in_warehouse(str(self.home), "sales.orders").table()
        return [field.name for field in table.spec().fields]

    def rows(self) -> pa.Table:
        if self.kind == "delta":
            return DeltaTable(str(self.home / "orders")).to_pyarrow_table()
        return in_warehouse(str(self.home), "sales.orders").table().scan().to_arrow()


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(request.param, tmp_path)


def check(table: Table, frame: DataFrame) -> None:
    assert table.partition_columns() == ["day", "kind"]
    found = table.rows().select(["id", "kind", "day"]).sort_by("id").to_pylist()
    expected = [row.asDict() for row in frame.orderBy("id").collect()]
    assert found == expected[: len(found)]
    assert found


@pytest.mark.usefixtures("changed")
def test_a_stream_with_partition_by_makes_a_partitioned_table(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    query = (
        stream(spark)
        .writeStream.partitionBy("day", "kind")
        .format(table.format)
        .options(**table.options, checkpointLocation=str(tmp_path / "checkpoint"))
        .start()
    )
    while query.isActive and (query.lastProgress or {}).get("batchId", 0) < 1:
        query.awaitTermination(0.2)
    query.stop()
    assert query.exception() is None
    check(table, spark.range(0, 300).withColumnRenamed("id", "value").selectExpr(*COLUMNS))


@pytest.mark.usefixtures("changed")
def test_a_batch_with_partition_by_makes_a_partitioned_table(
    spark: SparkSession, table: Table
) -> None:
    writer = batch(spark).write.format(table.format).options(**table.options).mode("append")
    writer.save(partitionBy=["day", "kind"])
    check(table, batch(spark))
    # A later write may leave the columns out.
    batch(spark).write.format(table.format).options(**table.options).mode("append").save()
    assert table.rows().num_rows == 60


def test_the_option_does_the_same_in_any_program(spark: SparkSession, table: Table) -> None:
    writer = batch(spark).write.format(table.format).options(**table.options).mode("append")
    writer.option("partitionBy", "day, kind").save()
    check(table, batch(spark))
    # Spark's own reader of Parquet opens the files.
    files = [str(path) for path in table.home.rglob("data/headrace/*/0/*.parquet")]
    assert spark.read.parquet(*files).count() == 30


@pytest.mark.usefixtures("changed")
def test_what_the_sinks_do_not_support_is_refused_with_a_sentence(
    spark: SparkSession, table: Table
) -> None:
    writer = batch(spark).write.format(table.format).options(**table.options).mode("append")
    with pytest.raises(PySparkException, match="'nope', which the DataFrame does not have"):
        writer.partitionBy("nope").save()
    with pytest.raises(ValueError, match="does not support clusterBy"):
        batch(spark).write.format(table.format).clusterBy("kind")
    with pytest.raises(ValueError, match="does not support clusterBy"):
        stream(spark).writeStream.clusterBy("kind").format(table.format)
    with pytest.raises(PySparkException, match="bucketBy"):
        batch(spark).write.format(table.format).bucketBy(2, "kind").mode("append").save()
    writer = batch(spark).write.format(table.format).options(**table.options).mode("append")
    with pytest.raises(PySparkException, match="no option mergeschema"):
        writer.option("mergeSchema", "true").save()


@pytest.mark.usefixtures("changed")
def test_other_formats_partition_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    batch(spark).write.partitionBy("day").format("parquet").save(str(tmp_path / "plain"))
    assert (tmp_path / "plain" / "day=2024-02-28").is_dir()
