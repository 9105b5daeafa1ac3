"""Where queries write is published with them, and nothing of their secrets."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql import SparkSession

from headrace.pipelines.running.listener import publish_progress
from headrace.pipelines.running.progress import Query, SinkTarget, without_secrets
from headrace.pipelines.running.progress_topic import TOPIC, QueryWatcher
from headrace.pipelines.running.query_sinks import from_execution, from_text
from headrace.testing.running import RunningBroker
from tests.support.topics import create_topic

SECRET = "hush-hush"


@pytest.fixture
def consumer(headrace: RunningBroker) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": headrace.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    yield made
    made.close()


def sinks(spark: SparkSession, broker: RunningBroker, folder: Path, topic: str) -> dict[str, Any]:
    """Writers by the name of their query, and what they are expected to publish."""
    rows = spark.readStream.format("rate").load()
    text = rows.selectExpr("cast(value AS string) AS value")
    named = text.selectExpr("value", f"'{topic}' AS topic")
    cluster = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    secret = {"kafka.ssl.truststore.password": SECRET}
    delta, files = str(folder / "delta"), str(folder / "files")
    storage = {"storage.secret_access_key": SECRET}
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{folder}/catalog.db"}
    warehouse = {"catalog.warehouse": str(folder / "warehouse"), "catalog.s3.secret": SECRET}

    def writer(frame: Any, kind: str, **options: str) -> Any:
        return frame.writeStream.format(kind).options(**options)

    return {
        "headrace": (
            writer(text, "headrace", topic=topic, **cluster, **secret),
            SinkTarget("headrace", topic=topic, mode="append"),
        ),
        "headrace-by-column": (
            writer(named, "headrace", **cluster),
            SinkTarget("headrace", mode="append"),
        ),
        "kafka": (
            writer(text, "kafka", topic=topic, **cluster, **secret),
            SinkTarget("kafka", topic=topic, mode="append"),
        ),
        "delta": (
            writer(rows, "headrace-delta", path=delta, **storage),
            SinkTarget("delta", path=delta, mode="append"),
        ),
        "iceberg": (
            writer(rows, "headrace-iceberg", table="lake.rates", **catalog, **warehouse),
            SinkTarget("iceberg", table="lake.rates", mode="append"),
        ),
        "file": (
            writer(rows, "parquet", path=files),
            SinkTarget("file", path=f"file:{files}", mode="append"),
        ),
        "console": (writer(rows, "console"), SinkTarget("console", mode="append")),
        "noop": (
            writer(rows, "noop").outputMode("update"),
            SinkTarget("noop", mode="update"),
        ),
        "memory": (
            writer(rows.groupBy().count(), "memory").outputMode("complete"),
            SinkTarget("memory", mode="complete"),
        ),
        "foreach_batch": (
            rows.writeStream.foreachBatch(lambda _frame, _number: None),
            SinkTarget("foreachBatch", mode="append"),
        ),
    }


@pytest.mark.spark
@pytest.mark.slow
def test_every_kind_of_sink_is_published_without_its_secrets(
    spark: SparkSession, headrace: RunningBroker, consumer: Consumer, tmp_path: Path
) -> None:
    topic = f"sink-{uuid.uuid4().hex[:8]}"
    create_topic(headrace.bootstrap_servers, topic)
    listener = publish_progress(spark, headrace.bootstrap_servers)
    watcher = QueryWatcher(consumer)
    expected, found = {}, {}
    try:
        for name, (writer, target) in sinks(spark, headrace, tmp_path, topic).items():
            query_name = f"{name}_{uuid.uuid4().hex[:8]}".replace("-", "_")
            writer = writer.queryName(query_name).trigger(once=True)
            checkpoint = str(tmp_path / "checkpoints" / name)
            query = writer.option("checkpointLocation", checkpoint).start()
            assert query.awaitTermination(120)
            assert query.exception() is None, name
            expected[name] = target
            deadline = time.monotonic() + 60
            while (seen := _named(watcher, query_name)) is None or seen.sink_target is None:
                assert time.monotonic() < deadline, (name, seen)
                watcher.advance(0.2)
            found[name] = seen.sink_target
    finally:
        spark.streams.removeListener(listener)
    assert found == expected
    assert SECRET.encode() not in b"".join(_values(consumer))


def _named(watcher: QueryWatcher, name: str) -> Query | None:
    return next((each for each in watcher.queries.values() if each.name == name), None)


def _values(consumer: Consumer) -> Iterator[bytes]:
    """Everything that was published."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    while (message := consumer.poll(60)) is not None and message.error() is None:
        yield message.value() or b""


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (None, None),
        ("FileSink[file:/data/out]", SinkTarget("file", path="file:/data/out")),
        ("FileSink[s3a://key:hush@bucket/x]", SinkTarget("file", path="s3a://key@bucket/x")),
        ("DeltaSink[/lake/orders]", SinkTarget("delta", path="/lake/orders")),
        ("ForeachBatchSink", SinkTarget("foreachBatch")),
        ("org.example.OwnSink@1234", SinkTarget("other")),
    ],
)
def test_the_text_of_a_sink_tells_its_kind(text: str | None, target: SinkTarget | None) -> None:
    assert from_text(text) == target


def test_a_plan_that_cannot_be_read_leaves_what_the_text_tells() -> None:
    assert from_execution(object(), "ForeachBatchSink") == SinkTarget("foreachBatch")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3a://key:hush@bucket/a", "s3a://key@bucket/a"),
        ("abfss://lake@account.dfs.core.windows.net/a", None),
        ("https://a.b/c?sig=hush&x=1 failed", "https://a.b/c failed"),
        ("FileSink[https://a.b/c?sig=hush]", "FileSink[https://a.b/c]"),
        ("cannot connect to 127.0.0.1:9092", None),
        ("mailto me@example.com: why?", None),
    ],
)
def test_urls_are_published_without_passwords_and_query_strings(
    text: str, shown: str | None
) -> None:
    assert without_secrets(text) == (shown or text)
