"""The sinks through Spark itself: found by their names, and an epoch that Spark runs twice."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipelines import write_epochs
from headrace.pipelines.lake import verify as proof
from headrace.pipelines.lake.views import open_view
from headrace.pipelines.sink.output_modes import explained
from headrace.testing.running import RunningBroker
from headrace.types import TopicPartition
from tests.support import spark as support
from tests.support.committed import committed_values
from tests.support.topics import create_topic

pytestmark = pytest.mark.spark

RECORDS = 300


@pytest.fixture
def source(headrace: RunningBroker) -> str:
    """A topic of 300 records in two partitions."""
    topic = create_topic(headrace.bootstrap_servers, f"in-{uuid.uuid4().hex[:8]}", 2)
    producer = Producer({"bootstrap.servers": headrace.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, b"key %d" % number, partition=number % 2)
    assert producer.flush(60) == 0
    return topic


@pytest.fixture
def target(headrace: RunningBroker) -> str:
    return create_topic(headrace.bootstrap_servers, f"out-{uuid.uuid4().hex[:8]}", 3)


def everything() -> list[int]:
    return list(range(RECORDS))


def numbers(headrace: RunningBroker, topic: str) -> list[int]:
    return sorted(map(int, committed_values(headrace.bootstrap_servers, topic)))


def stream(spark: SparkSession, headrace: RunningBroker, topic: str) -> DataFrame:
    """The topic in three epochs."""
    return (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", headrace.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(RECORDS // 3))
        .load()
    )


def run(frame: DataFrame, folder: Path, sink: str, **options: str) -> list[dict[str, Any]]:
    """To the topic's end as it is now; what Spark says about each epoch."""
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(folder / "checkpoint"))
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(100)
    assert not query.isActive, "the query did not come to its end"
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def forget_last_epoch(folder: Path) -> None:
    """As if the driver had died after the sink's commit and before its own note of it."""
    commits = [
        path for path in (folder / "checkpoint" / "commits").iterdir() if path.name.isdigit()
    ]
    last = max(commits, key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_batch_of_rows_arrives_with_its_keys(
    spark: SparkSession, headrace: RunningBroker, target: str, delivery: str
) -> None:
    rows = spark.range(RECORDS).selectExpr(
        "cast(id as string) as key", "cast(id as string) as value"
    )
    (
        rows.repartition(3)
        .write.format("headrace")
        .option("kafka.bootstrap.servers", headrace.bootstrap_servers)
        .option("topic", target)
        .option("delivery", delivery)
        .mode("append")
        .save()
    )
    assert numbers(headrace, target) == everything()
    back = (
        spark.read.format("headrace")
        .option("kafka.bootstrap.servers", headrace.bootstrap_servers)
        .option("subscribe", target)
        .load()
    )
    assert back.where("key = value").count() == RECORDS


@pytest.mark.parametrize("sink", ["at-least-once", "exactly-once", "delta", "iceberg"])
def test_a_frame_without_rows_is_written(
    spark: SparkSession, headrace: RunningBroker, target: str, tmp_path: Path, sink: str
) -> None:
    """Without any task, with an empty task, and from a source that has nothing to read."""
    options = {
        "delta": {"path": str(tmp_path / "t")},
        "iceberg": {"table": "a.t", "warehouse": str(tmp_path / "w")},
    }.get(sink, {"topic": target, "delivery": sink})
    kind = f"headrace-{sink}" if sink in ("delta", "iceberg") else "headrace"
    if kind == "headrace":
        options["kafka.bootstrap.servers"] = headrace.bootstrap_servers
    empty = create_topic(headrace.bootstrap_servers, f"empty-{uuid.uuid4().hex[:8]}", 1)
    reader = spark.read.format("headrace").option("subscribe", empty)
    nothing = reader.option("kafka.bootstrap.servers", headrace.bootstrap_servers).load()
    rows = nothing.select("key", "value")
    for frame in (spark.createDataFrame([], rows.schema), rows.where("false"), rows):
        frame.write.format(kind).options(**options).mode("append").save()
    if kind == "headrace":
        assert numbers(headrace, target) == []


def test_an_epoch_that_spark_runs_again_adds_nothing_to_the_topic(
    spark: SparkSession, headrace: RunningBroker, source: str, target: str, tmp_path: Path
) -> None:
    def once() -> list[dict[str, Any]]:
        return run(
            stream(spark, headrace, source).select("key", "value"),
            tmp_path,
            "headrace",
            kafka__bootstrap__servers=headrace.bootstrap_servers,
            topic=target,
            delivery="exactly-once",
        )

    assert len(once()) == 3
    assert numbers(headrace, target) == everything()
    forget_last_epoch(tmp_path)
    assert [each["numInputRows"] for each in once()] == [RECORDS // 3]
    assert numbers(headrace, target) == everything()


class Reader:
    """The topic as the test filled it: all offsets are there."""

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return {0: (0, RECORDS // 2), 1: (0, RECORDS // 2)}

    def offsets(self, place: TopicPartition, first: int, last: int) -> proof.Offsets:
        raise AssertionError(f"a complete table has no hole to look into: {place} {first} {last}")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_epoch_that_spark_runs_again_adds_nothing_to_a_table(
    spark: SparkSession, headrace: RunningBroker, source: str, tmp_path: Path, kind: str
) -> None:
    table, warehouse = (
        (str(tmp_path / "orders"), None)
        if kind == "delta"
        else ("sales.orders", str(tmp_path / "warehouse"))
    )
    options = {"path": table} if warehouse is None else {"table": table, "warehouse": warehouse}

    def once() -> list[dict[str, Any]]:
        return run(stream(spark, headrace, source), tmp_path, f"headrace-{kind}", **options)

    assert len(once()) == 3
    forget_last_epoch(tmp_path)
    assert len(once()) == 1
    reports = proof.verify(
        open_view(table, warehouse=warehouse),
        proof.Wanted(source, complete=True),
        Reader(),
        lambda *_: None,
    )
    assert [(each.rows, each.findings) for each in reports] == [(RECORDS // 2, [])] * 2


@pytest.mark.slow
def test_sparks_own_sink_doubles_the_epoch_that_it_runs_again(
    spark: SparkSession, headrace: RunningBroker, source: str, target: str, tmp_path: Path
) -> None:
    """Not our promise: this is the difference that delivery=exactly-once makes."""
    if not support.connector_jars():
        pytest.skip("no jars of Spark's Kafka connector: run `make tools`")

    def once() -> list[dict[str, Any]]:
        return run(
            stream(spark, headrace, source).select("key", "value"),
            tmp_path,
            "kafka",
            kafka__bootstrap__servers=headrace.bootstrap_servers,
            topic=target,
        )

    once()
    forget_last_epoch(tmp_path)
    once()
    assert len(numbers(headrace, target)) == RECORDS + RECORDS // 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop("value"), "no column 'value'"),
        (
            lambda frame: frame.withColumn("value", frame["id"]),
            "'value' is bigint; expected string",
        ),
    ],
)
def test_a_wrong_column_is_refused_before_the_query_runs(
    spark: SparkSession,
    headrace: RunningBroker,
    target: str,
    change: Callable[[DataFrame], DataFrame],
    words: str,
) -> None:
    frame = spark.range(1).selectExpr("id", "string(id) as value")
    writer = change(frame).write.format("headrace").option("topic", target)
    writer = writer.option("kafka.bootstrap.servers", headrace.bootstrap_servers).mode("append")
    with pytest.raises(Exception, match=words):
        writer.save()


def counts(spark: SparkSession, headrace: RunningBroker, topic: str) -> DataFrame:
    """How many records of each of ten kinds there were so far."""
    kinds = stream(spark, headrace, topic).selectExpr("string(int(string(value)) % 10) as key")
    return kinds.groupBy("key").count().selectExpr("key", "string(count) as value")


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_a_mode_that_the_sink_does_not_have_is_answered_with_the_way_that_works(
    spark: SparkSession,
    headrace: RunningBroker,
    source: str,
    target: str,
    tmp_path: Path,
    mode: str,
) -> None:
    writer = counts(spark, headrace, source).writeStream.outputMode(mode).format("headrace")
    writer = writer.option("kafka.bootstrap.servers", headrace.bootstrap_servers)
    writer = writer.option("checkpointLocation", str(tmp_path)).option("topic", target)
    query = writer.start()
    with pytest.raises(Exception, match=r"Update mode|complete") as caught:
        query.awaitTermination(100)
    # Spark itself refuses update; what the listener of `headrace spark run` makes of it:
    first_line = explained(str(caught.value)).strip().splitlines()[0]
    said = first_line if mode == "update" else str(caught.value)
    assert '.outputMode("update").foreachBatch(write_epochs(' in said
    assert "exactly once" in said
    assert numbers(headrace, target) == []


def aggregate(
    rows: DataFrame, folder: Path, write: Callable[[DataFrame, int], None]
) -> list[dict[str, Any]]:
    """Write an aggregate in update mode to the end of its source; the progress of each epoch."""
    writer = rows.writeStream.outputMode("update").foreachBatch(write).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    assert query.awaitTermination(100)
    return list(query.recentProgress)


def written(spark: SparkSession, headrace: RunningBroker, topic: str) -> DataFrame:
    reader = spark.read.format("headrace").option("subscribe", topic)
    reader = reader.option("kafka.isolation.level", "read_committed")
    return reader.option("kafka.bootstrap.servers", headrace.bootstrap_servers).load()


def last_values(rows: DataFrame) -> dict[int, int]:
    last = rows.groupBy("key").agg(F.max_by("value", "offset").alias("value")).collect()
    return {int(row.key): int(row.value) for row in last}


def test_a_batch_without_an_epoch_is_written_again_when_spark_repeats_it(
    spark: SparkSession, headrace: RunningBroker, source: str, target: str, tmp_path: Path
) -> None:
    options = {
        "kafka.bootstrap.servers": headrace.bootstrap_servers,
        "topic": target,
        "delivery": "exactly-once",
    }

    def write(rows: DataFrame, epoch: int) -> None:
        rows.write.format("headrace").options(**options).mode("append").save()

    for _ in range(2):
        aggregate(counts(spark, headrace, source), tmp_path, write)
        forget_last_epoch(tmp_path)
    assert written(spark, headrace, target).count() == 4 * 10
    assert last_values(written(spark, headrace, target)) == dict.fromkeys(range(10), RECORDS // 10)


def test_results_that_change_are_written_once_through_crashes_and_repetitions(
    spark: SparkSession, headrace: RunningBroker, source: str, target: str, tmp_path: Path
) -> None:
    """A function of several writes: another topic, the same topic again, and no rows."""
    bootstrap = headrace.bootstrap_servers
    other = create_topic(bootstrap, f"{target}.0", 2)
    to_target = write_epochs(target, bootstrap=bootstrap)
    to_other = write_epochs(other, bootstrap=bootstrap)
    fives = write_epochs(target, bootstrap=bootstrap, part="fives")
    nothing = write_epochs(target, bootstrap=bootstrap, part="nothing")
    crashes = [2, 1]

    def write(rows: DataFrame, epoch: int) -> None:
        nothing(rows.where("false"), epoch)
        to_target(rows, epoch)
        if crashes and epoch == crashes[-1]:
            raise KeyError(f"crash in epoch {crashes.pop()}")
        to_other(rows, epoch)
        fives(rows.where("key = '5'"), epoch)

    for _ in range(2):
        with pytest.raises(Exception, match="crash in epoch"):
            aggregate(counts(spark, headrace, source), tmp_path, write)
    aggregate(counts(spark, headrace, source), tmp_path, write)
    for _ in range(2):
        forget_last_epoch(tmp_path)
        (again,) = aggregate(counts(spark, headrace, source), tmp_path, write)
        assert (again["batchId"], again["numInputRows"]) == (2, RECORDS // 3)
    assert written(spark, headrace, target).count() == 3 * 10 + 3
    assert written(spark, headrace, other).count() == 3 * 10
    for topic in (target, other):
        assert last_values(written(spark, headrace, topic)) == dict.fromkeys(
            range(10), RECORDS // 10
        )


def test_a_second_write_of_an_epoch_to_a_topic_is_refused_and_not_lost(
    spark: SparkSession, headrace: RunningBroker, source: str, target: str, tmp_path: Path
) -> None:
    to_target = write_epochs(target, bootstrap=headrace.bootstrap_servers)

    def write(rows: DataFrame, epoch: int) -> None:
        to_target(rows.where("key < '5'"), epoch)
        to_target(rows.where("key >= '5'"), epoch)

    with pytest.raises(Exception, match=r"epoch 0 .* has been written in this run of the query"):
        aggregate(counts(spark, headrace, source), tmp_path, write)


def test_a_write_outside_a_query_needs_a_name(spark: SparkSession, target: str) -> None:
    rows = spark.range(1).selectExpr("string(id) as value")
    with pytest.raises(RuntimeError, match=r"the id of the streaming query is unknown.*query="):
        write_epochs(target)(rows, 0)
