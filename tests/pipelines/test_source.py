"""The source beside Spark's own, against our broker and against Apache Kafka: row for row."""

import json
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.fetching import FetchPlan, fetch_range
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from headrace.types import TopicPartition
from headrace.wire.batch_columns import decode
from tests.support import spark as support
from tests.support.apache_kafka import ApacheKafka
from tests.support.topics import create_topic

pytestmark = pytest.mark.spark

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUICK_COMPACTION = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "100",
}


@pytest.fixture(scope="session", params=["headrace", pytest.param("kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == "headrace":
        broker: RunningBroker = request.getfixturevalue("headrace")
        return broker.bootstrap_servers
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap


def new_name() -> str:
    return f"s-{uuid.uuid4().hex[:12]}"


def producer(bootstrap: str, **config: Any) -> Producer:
    names = {name.replace("_", "."): value for name, value in config.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **names})


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1, **config: Any) -> None:
    made = producer(bootstrap, **config)
    for number in range(count):
        made.produce(topic, b"%d" % number * (number % 40), partition=number % partitions)
    assert made.flush(60) == 0


def fill_with_everything(bootstrap: str, topic: str) -> None:
    """All codecs, null and empty keys and values, headers of all kinds, open and ended
    transactions."""
    for number, codec in enumerate(CODECS):
        made = producer(bootstrap, compression_type=codec)
        for n in range(300):
            made.produce(
                topic,
                key=(None, b"", b"key-%d" % n)[n % 3],
                value=(None, b"", b"v" * n, b"\x00\xff" * 500)[n % 4],
                headers=(
                    None,
                    [("one", b"1")],
                    [("two", b""), ("two", None), ("größe", b"\xff" * n)],
                )[n % 3 if n > 50 else 0],
                timestamp=1_700_000_000_000 + n * 1000,
                partition=number % 3,
            )
        assert made.flush(60) == 0
    for partition in range(2):
        writer = producer(bootstrap, transactional_id=new_name())
        writer.init_transactions(60)
        for text, commit in ((b"kept", True), (b"undone", False), (b"kept too", True)):
            writer.begin_transaction()
            for _ in range(20):
                writer.produce(topic, text, partition=partition)
            writer.flush(60)
            if commit:
                writer.commit_transaction(60)
            else:
                writer.abort_transaction(60)


def read(spark: SparkSession, source: str, bootstrap: str, **options: str) -> DataFrame:
    reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def assert_as_sparks_own(spark: SparkSession, bootstrap: str, **options: str) -> list[Any]:
    if not support.connector_jars():
        pytest.skip("no jars of Spark's own connector: run `make tools`")
    theirs = rows(read(spark, "kafka", bootstrap, **options))
    ours = rows(read(spark, "headrace", bootstrap, **options))
    assert ours == theirs
    return ours


@pytest.fixture(scope="session")
def full_topic(bootstrap: str) -> str:
    # The records have old times; retention would delete them.
    topic = create_topic(bootstrap, new_name(), 3, {"retention.ms": "-1"})
    fill_with_everything(bootstrap, topic)
    return topic


def test_the_format_is_found_without_registering_and_has_sparks_columns(
    spark: SparkSession, bootstrap: str, full_topic: str
) -> None:
    frame = read(spark, "headrace", bootstrap, subscribe=full_topic, includeHeaders="true")
    if support.connector_jars():
        theirs = read(spark, "kafka", bootstrap, subscribe=full_topic, includeHeaders="true")
        assert frame.schema == theirs.schema
    assert frame.columns[:3] == ["key", "value", "topic"]
    some = read(spark, "headrace", bootstrap, subscribe=full_topic, columns="offset,value")
    assert some.columns == ["offset", "value"]
    assert some.count() == frame.count()


def test_every_codec_header_null_and_transaction_reads_as_in_sparks_own(
    spark: SparkSession, bootstrap: str, full_topic: str
) -> None:
    everything = assert_as_sparks_own(
        spark, bootstrap, subscribe=full_topic, includeHeaders="true", minPartitions="5"
    )
    assert len(everything) == 5 * 300 + 2 * 60
    committed = assert_as_sparks_own(
        spark,
        bootstrap,
        subscribePattern=full_topic[:-1] + ".",
        includeHeaders="true",
        kafka__isolation__level="read_committed",
    )
    assert len(committed) == 5 * 300 + 2 * 40
    assert not [row for row in committed if row.value == b"undone"]


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"T":{"0":10,"1":-2,"2":299}}', "endingOffsets": "latest"},
        {"endingOffsets": '{"T":{"0":10,"1":-1,"2":0}}'},
        {"startingTimestamp": "1700000100000", "endingTimestamp": "1700000200000"},
        {
            "startingOffsetsByTimestamp": '{"T":{"0":1700000299000,"1":0,"2":9900000000000}}',
            "startingOffsetsByTimestampStrategy": "latest",
            "endingOffsetsByTimestamp": json.dumps(
                {"T": {"0": 9_900_000_000_000, "1": 1_700_000_005_000, "2": 9_990_000_000_000}}
            ),
        },
    ],
)
def test_offsets_and_times_mean_what_they_mean_in_sparks_own(
    spark: SparkSession, bootstrap: str, full_topic: str, options: dict[str, str]
) -> None:
    named = {name: value.replace("T", full_topic) for name, value in options.items()}
    assign = f'{{"{full_topic}":[0,1,2]}}'
    assert len(assert_as_sparks_own(spark, bootstrap, assign=assign, **named)) > 0


@pytest.mark.parametrize("records", [0, 7])
def test_a_batch_read_with_nothing_to_read_has_no_rows(
    spark: SparkSession, bootstrap: str, records: int
) -> None:
    topic = create_topic(bootstrap, new_name(), 2)
    fill(bootstrap, topic, records)
    here = json.dumps({topic: {"0": records, "1": 0}})
    for more in ({}, {"minPartitions": "4"}, {"columns": "offset,value"}):
        options = {"subscribe": topic, "startingOffsets": here, "endingOffsets": here, **more}
        frame = read(spark, "headrace", bootstrap, **options)
        assert frame.collect() == []
        assert frame.groupBy("value").count().count() == 0
    assert read(spark, "headrace", bootstrap, subscribe=topic).count() == records
    assert read(spark, "headrace", bootstrap, subscribePattern="no-such-topic.*").count() == 0


def test_times_of_the_broker_are_read_as_such(spark: SparkSession, bootstrap: str) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    topic = create_topic(bootstrap, new_name(), 1, config)
    fill(bootstrap, topic, 20)
    found = assert_as_sparks_own(spark, bootstrap, subscribe=topic)
    assert {row.timestampType for row in found} == {1}


@pytest.fixture(params=["headrace", pytest.param("kafka", marks=pytest.mark.java)])
def compacting(request: pytest.FixtureRequest, headrace_factory: BrokerFactory) -> str:
    if request.param == "headrace":
        return headrace_factory({"log.cleaner.backoff.ms": "200"}).bootstrap_servers
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap


def test_a_compacted_topic_reads_as_in_sparks_own(spark: SparkSession, compacting: str) -> None:
    topic = create_topic(compacting, new_name(), 1, QUICK_COMPACTION)
    made = producer(compacting)
    deadline = time.monotonic() + 60
    sent, kept = 0, 0
    client = Cluster(ClientConfig(parse_bootstrap(compacting)))
    while kept >= sent:
        assert time.monotonic() < deadline, "the cleaner never came"
        for n in range(200):
            made.produce(topic, b"%d" % sent, key=b"%d" % (n % 7))
            sent += 1
        assert made.flush(60) == 0
        plan = FetchPlan(TopicPartition(topic, 0))
        kept = sum(
            len(columns)
            for fetched in fetch_range(client, plan, 0, sent)
            for columns in decode(fetched.data, fetched.positions, 0, sent)
        )
    client.close()
    if not support.connector_jars():
        pytest.skip("no jars of Spark's own connector: run `make tools`")
    before: list[Any] = []
    found: list[Any] = rows(read(spark, "headrace", compacting, subscribe=topic))
    while before != found:  # the cleaner may still be at work
        assert time.monotonic() < deadline, "the cleaner never rests"
        before = found
        theirs = rows(read(spark, "kafka", compacting, subscribe=topic))
        found = rows(read(spark, "headrace", compacting, subscribe=topic))
    assert theirs == found
    assert len(found) < sent
    # A range that lies in a gap.
    gap = json.dumps({topic: {"0": found[0].offset}})
    assert assert_as_sparks_own(spark, compacting, subscribe=topic, endingOffsets=gap) == []


def test_a_wrong_option_is_answered_with_a_sentence(spark: SparkSession, bootstrap: str) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        read(spark, "headrace", bootstrap, subscribe="t", startingOffset="earliest").count()
    with pytest.raises(Exception, match="it does not exist"):
        read(spark, "headrace", bootstrap, subscribe="nowhere-at-all").count()
