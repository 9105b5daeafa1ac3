"""Traces pass through Spark: the headers of records, and spans of epochs where they are wanted."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.client.errors import ClientError
from headrace.pipelines import tracing
from headrace.pipelines.sink import options as sink_options
from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.sink.ledger import LedgerError
from headrace.pipelines.sink.sink import TopicSink
from headrace.pipelines.source import options as source_options
from headrace.pipelines.source.readers import StreamReader
from headrace.testing.running import RunningBroker
from tests.support.topics import create_topic

TRACEPARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture
def topic(headrace: RunningBroker) -> str:
    return create_topic(headrace.bootstrap_servers, f"trace-{uuid.uuid4().hex[:12]}")


def produce(broker: RunningBroker, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, b"%d" % number, headers=[("traceparent", TRACEPARENT)])
    assert producer.flush(60) == 0


def read_epoch(broker: RunningBroker, topic: str, **more: str) -> None:
    """Let a stream read what is in the topic."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    given |= {"startingOffsets": "earliest", "group.id": "traced", **more}
    reader = StreamReader(source_options.parse_options(given, streaming=True))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    for task in reader.partitions(start, end):
        for _ in reader.read(task):
            pass
    reader.latestOffset(end, ReadAllAvailable())
    reader.stop()


def write_epoch(broker: RunningBroker, topic: str, number: int = 0, **more: str) -> None:
    """Write an epoch of three rows with the sink."""
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, **more}
    sink = TopicSink(sink_options.parse_options(given), SCHEMA)
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"b", b"c"], pa.binary())})
    done = sink.write(Epoch("query", number), 0, iter([rows]), ledger=True)
    sink.commit([done], ledger=True)


@pytest.mark.spark
def test_the_traceparent_of_a_record_passes_through_source_and_sink(
    spark: SparkSession, headrace: RunningBroker, topic: str, tmp_path: Path
) -> None:
    produce(headrace, topic, 2)
    copies = create_topic(headrace.bootstrap_servers, f"{topic}-copies")
    where = {"kafka.bootstrap.servers": headrace.bootstrap_servers}
    records = (
        spark.readStream.format("headrace")
        .options(**where, subscribe=topic, startingOffsets="earliest", includeHeaders="true")
        .load()
    )
    query = (
        records.selectExpr("key", "value", "headers")
        .writeStream.format("headrace")
        .options(**where, topic=copies, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    consumer = Consumer(
        {
            "bootstrap.servers": headrace.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([copies])
    found = [message for message in consumer.consume(2, 60) if message.error() is None]
    consumer.close()
    assert [message.headers() for message in found] == [[("traceparent", TRACEPARENT)]] * 2


class _Refusing:
    """Fails the test if OpenTelemetry is imported."""

    def find_spec(self, name: str, *_: object) -> None:
        assert not name.startswith("opentelemetry")


def test_without_the_option_opentelemetry_is_not_imported(
    headrace: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Refusing(), *sys.meta_path])
    produce(headrace, topic, 1)
    read_epoch(headrace, topic)
    write_epoch(headrace, topic)
    assert not [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]


def test_the_option_without_opentelemetry_is_an_error_that_names_the_packages(
    headrace: RunningBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ClientError, match="install opentelemetry-sdk"):
        write_epoch(headrace, topic, tracing="true")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The exporter that gets the spans of this process."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def test_an_epoch_of_the_source_is_a_span(headrace: RunningBroker, topic: str, spans: Any) -> None:
    produce(headrace, topic, 5)
    read_epoch(headrace, topic, tracing="true")
    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind.name) == (f"poll {topic}", "CONSUMER")
    assert dict(span.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": topic,
        "messaging.batch.message_count": 5,
        "messaging.consumer.group.name": "traced",
    }


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_an_epoch_of_the_sink_is_a_span_from_its_first_task_to_its_commit(
    headrace: RunningBroker, topic: str, spans: Any, delivery: str
) -> None:
    write_epoch(headrace, topic, tracing="true", delivery=delivery)
    (span,) = spans.get_finished_spans()
    assert (span.name, span.kind.name) == (f"send {topic}", "PRODUCER")
    assert span.start_time < span.end_time
    assert span.attributes["messaging.batch.message_count"] == 3
    assert span.attributes["messaging.operation.type"] == "send"
    assert (span.attributes["headrace.query"], span.attributes["headrace.epoch"]) == ("query", 0)


def test_an_epoch_that_fails_is_a_span_with_the_error(
    headrace: RunningBroker, topic: str, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LedgerError("the ledger is gone")

    monkeypatch.setattr(TopicSink, "_decide", fail)
    with pytest.raises(LedgerError):
        write_epoch(headrace, topic, tracing="true", delivery="exactly-once")
    (span,) = spans.get_finished_spans()
    assert (span.status.status_code.name, span.status.description) == (
        "ERROR",
        "the ledger is gone",
    )
    assert span.attributes["error.type"] == "LedgerError"


def test_the_exporter_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.sdk.trace")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    tracing._provider().shutdown()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nonsense")
    with pytest.raises(ClientError, match="'nonsense'"):
        tracing._provider()
