"""How long a record takes through a streaming query: from the producer to a reader of the sink.

A producer writes 1,000 records a second, each with the time at which it was produced. A query with
our source or with Spark's own copies them to another topic as fast as it can, with Spark's own sink
in both cases, and a consumer there notes when each arrives. The sources take turns, and every other
round the other one is first. For `benchmarks.spark`.
"""

import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.topics import create_topic

RECORDS_PER_S = 1000
SLICE_S = 0.01
PARTITIONS = 4
COLD_S = 4.0
"""How long a query runs before its records count."""


@dataclass(frozen=True, slots=True)
class Latency:
    """What the records of one run took, in milliseconds."""

    p50_ms: float
    p99_ms: float
    records: int


def measure_in_turns(
    spark: SparkSession,
    bootstrap: str,
    work: Path,
    sources: tuple[str, str],
    rounds: int,
    run_s: float,
) -> dict[str, list[Latency]]:
    """The runs of each source; a warming run of both comes first."""
    measured: dict[str, list[Latency]] = {source: [] for source in sources}
    for source in sources:
        run(spark, bootstrap, work, source, run_s / 2)
    for number in range(rounds):
        for source in sources if number % 2 == 0 else reversed(sources):
            measured[source].append(run(spark, bootstrap, work, source, run_s))
    return measured


def run(spark: SparkSession, bootstrap: str, work: Path, source: str, run_s: float) -> Latency:
    """One query, from its start to its stop."""
    name = uuid.uuid4().hex[:8]
    topic = create_topic(bootstrap, f"latency-in-{name}", PARTITIONS)
    target = create_topic(bootstrap, f"latency-out-{name}", PARTITIONS)
    query = (
        spark.readStream.format(source)
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(work / f"checkpoint-{name}"))
        .start()
    )
    stop = threading.Event()
    producing = threading.Thread(target=_produce, args=(bootstrap, topic, stop))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"latency-{name}"})
    try:
        consumer.assign([TopicPartition(target, number, 0) for number in range(PARTITIONS)])
        producing.start()
        while not _ages_ms(consumer, 1.0):
            if (failure := query.exception()) is not None:
                raise failure
        _ages_ms(consumer, COLD_S)
        ages_ms = _ages_ms(consumer, run_s)
    finally:
        stop.set()
        producing.join()
        _stop_when_idle(query)
        consumer.close()
    p50_ms, p99_ms = np.percentile(ages_ms, [50, 99])
    return Latency(float(p50_ms), float(p99_ms), len(ages_ms))


def _stop_when_idle(query: StreamingQuery) -> None:
    """Stop a query between two epochs: a task that is cut off takes its Python worker with it, and
    the next run would begin with another one."""
    if query.exception() is None:
        query.processAllAvailable()
    query.stop()


def _produce(bootstrap: str, topic: str, stop: threading.Event) -> None:
    """Records at an even rate; one that is late does not delay the next."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    began, sent = time.monotonic(), 0
    while not stop.wait(SLICE_S):
        due = int((time.monotonic() - began) * RECORDS_PER_S)
        for number in range(sent, due):
            producer.produce(topic, b"%d" % time.time_ns(), partition=number % PARTITIONS)
        sent = due
        producer.poll(0)
    producer.flush(30)


def _ages_ms(consumer: Consumer, seconds: float) -> list[float]:
    """How old each record is that arrives within this time."""
    ages: list[float] = []
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        message = consumer.poll(left)
        if message is not None and message.error() is None:
            ages.append((time.time_ns() - int(message.value() or 0)) / 1e6)
    return ages
