"""Typed topics through Spark itself: batches, streams, and a version that comes while one runs."""

import json
import runpy
import uuid
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from pyspark.sql import DataFrame, SparkSession

from headrace.testing.running import RunningBroker
from tests.pipelines.typed.conftest import Topic
from tests.pipelines.typed.test_reading import FLAT, ORDER, avro_versions
from tests.support import java
from tests.support.apache_kafka import ApacheKafka
from tests.support.committed import committed_values
from tests.support.counting_proxy import CountingProxy
from tests.support.headrace_registry import HeadraceRegistry

pytestmark = pytest.mark.spark


@pytest.fixture(scope="session")
def bootstrap(headrace: RunningBroker) -> str:
    """Spark itself takes its time, so that most of it is shown with one broker."""
    return headrace.bootstrap_servers


def table(spark: SparkSession, topic: Topic, **more: str) -> DataFrame:
    return spark.read.format("headrace").options(**topic.options(**more)).load()


def test_a_topic_is_columns(
    spark: SparkSession, topic: Topic, client: SchemaRegistryClient
) -> None:
    good = AvroSerializer(client, json.dumps(FLAT))(ORDER, topic.context)
    topic.produce(good, None, b"bad")
    frame = table(spark, topic, value__format="avro")
    assert frame.select("value.*").schema.simpleString() == (
        "struct<id:bigint,customer:string,price:decimal(12,2),paid:boolean,weight:double,"
        "at:timestamp,day:date,state:string>"
    )
    rows = frame.selectExpr(
        "offset", "topic", "value.customer", "value.price", "string(value.at) as at", "_error",
        "_raw.value as raw",
    ).orderBy("offset").collect()  # fmt: skip
    assert [tuple(row) for row in rows] == [
        (0, topic.name, ORDER["customer"], ORDER["price"], "2024-05-06 07:08:09.123", None, None),
        (1, topic.name, None, None, None, None, None),
        (2, topic.name, None, None, None, "value: 3 bytes are too few for a schema id", b"bad"),
    ]


def test_an_empty_topic_has_its_typed_columns_and_no_rows(
    spark: SparkSession, topic: Topic, client: SchemaRegistryClient
) -> None:
    AvroSerializer(client, json.dumps(FLAT))(ORDER, topic.context)
    frame = table(spark, topic, value__format="avro")
    assert frame.select("value.id", "_error").collect() == []


def test_a_new_version_needs_no_restart(
    spark: SparkSession,
    topic: Topic,
    client: SchemaRegistryClient,
    proxy: CountingProxy,
    tmp_path: Path,
) -> None:
    versions = avro_versions(3)
    write = [AvroSerializer(client, json.dumps(each)) for each in versions]
    topic.produce(write[0]({"id": 1, "name": "a"}, topic.context))
    name = f"seen_{uuid.uuid4().hex[:8]}"
    query = (
        spark.readStream.format("headrace")
        .options(**topic.options(value__format="avro", startingOffsets="earliest"))
        .load()
        .selectExpr("value.id", "value.name", "_error")
        .writeStream.format("memory")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        topic.produce(write[1]({"id": 2, "name": "b", "f0": 1}, topic.context))
        topic.produce(b"nonsense")
        query.processAllAvailable()
        topic.produce(write[2]({"id": 3, "name": "c", "f0": 1, "f1": 1}, topic.context))
        query.processAllAvailable()
        assert query.isActive
        run_id = query.runId
        rows = spark.table(name).collect()
    finally:
        query.stop()
    assert query.runId == run_id
    assert [(row.id, row.name) for row in rows] == [(1, "a"), (2, "b"), (None, None), (3, "c")]
    assert [row._error is None for row in rows] == [True, True, False, True]
    # One for the reader's schema, and for each new id one from each of the two workers at most.
    assert len([each for each in proxy.requests if "/versions/latest" in each]) == 1
    by_id = [each for each in proxy.requests if "/schemas/ids/" in each]
    assert len(set(by_id)) == 2
    assert max(by_id.count(each) for each in by_id) <= 2


def test_a_stream_is_written_typed_and_once(
    spark: SparkSession, topic: Topic, client: SchemaRegistryClient, tmp_path: Path
) -> None:
    serializer = AvroSerializer(client, json.dumps(FLAT))
    for number in range(4):
        topic.produce(serializer(ORDER | {"id": number}, topic.context))
    target = Topic(topic.bootstrap, topic.registry_url)
    copied = (
        spark.readStream.format("headrace")
        .options(**topic.options(value__format="avro", startingOffsets="earliest"))
        .option("maxOffsetsPerTrigger", "2")
        .load()
        .where("_error is null")
        .selectExpr(
            "struct(value.id as number) as key",
            "struct(value.customer, value.price, array(value.id) as ids) as value",
        )
    )
    query = (
        copied.writeStream.format("headrace")
        .option("kafka.bootstrap.servers", target.bootstrap)
        .option("topic", target.name)
        .option("schema.registry.url", target.registry_url)
        .option("key.format", "json")
        .option("value.format", "avro")
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)
    assert not query.isActive
    deserializer = AvroDeserializer(client)
    found = [deserializer(each, target.context) for each in committed_values(
        target.bootstrap, target.name)]  # fmt: skip
    expected = {"customer": ORDER["customer"], "price": ORDER["price"]}
    assert found == [{**expected, "ids": [number]} for number in range(4)]
    assert client.get_versions(f"{target.name}-key") == [1]
    rows = table(spark, target, key__format="json", value__format="avro").select("key.number")
    assert sorted(row.number for row in rows.collect()) == list(range(4))


def test_the_example_reads_both_versions_and_quarantines_the_foreign_record(
    spark: SparkSession, topic: Topic, proxy: CountingProxy
) -> None:
    path = Path(__file__).resolve().parents[3] / "examples" / "typed" / "orders.py"
    example = runpy.run_path(str(path))
    cluster = {"kafka.bootstrap.servers": topic.bootstrap}
    frame = example["run"](spark, cluster, topic.registry_url, topic.name)
    rows = frame.selectExpr("value.id", "value.customer", "value.price", "_error").collect()
    found = sorted((row.id, row.customer, row.price) for row in rows if row._error is None)
    assert found[:3] == [(number, f"customer-{number}", None) for number in range(3)]
    assert found[3:] == [(number, f"customer-{number}", number * 1.5) for number in range(3, 6)]
    assert [row._error for row in rows if row.id is None] == [
        "value: begins with 0x6e, not with 0x00 and a schema id"
    ]
    # Schemas are registered by the driver, once a write.
    assert len([each for each in proxy.requests if each.startswith("POST")]) == 2


@pytest.mark.java
@pytest.mark.slow
def test_the_same_on_apache_kafka(spark: SparkSession, tmp_path: Path) -> None:
    if reason := java.missing():
        pytest.skip(reason)
    with (
        ApacheKafka(tmp_path, quick=True) as kafka,
        HeadraceRegistry(kafka.bootstrap, tmp_path) as registry,
    ):
        topic = Topic(kafka.bootstrap, registry.url)
        with SchemaRegistryClient({"url": registry.url}) as client:
            topic.produce(AvroSerializer(client, json.dumps(FLAT))(ORDER, topic.context))
        frame = table(spark, topic, value__format="avro").select("value")
        (row,) = frame.select("value.*").collect()
        assert (row.id, row.customer, row.state) == (7, ORDER["customer"], "SENT")
        target = Topic(kafka.bootstrap, registry.url)
        (
            frame.write.format("headrace")
            .mode("append")
            .option("kafka.bootstrap.servers", kafka.bootstrap)
            .option("topic", target.name)
            .option("schema.registry.url", registry.url)
            .option("value.format", "avro")
            .save()
        )
        (copy,) = table(spark, target, value__format="avro").select("value.*").collect()
        assert copy == row
