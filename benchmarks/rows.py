"""The rows of the comparison: the same work on both brokers, one number each."""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from benchmarks import clients, frames
from benchmarks.blaster import Load, blast, fill
from benchmarks.processes import cpu_seconds, resident_mb
from benchmarks.sides import Broker, SideName, fresh_broker, temporary_topic
from tests.support.java import run_tool

Better = Literal["higher", "lower"]
# JVM options of the measuring tools: both brokers meet the same tool, warm or cold.
TOOL_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how often to measure."""

    seconds: float
    jvm_warm_s: float
    """Load at full speed before the first row: a slow row alone never gets Kafka compiled."""
    max_warm_runs: int
    rounds: int
    records: int
    most_row_s: float = math.inf
    """After so much time a row begins no further round; warm-up gets a quarter of it per side."""


QUICK = Effort(seconds=1.0, jvm_warm_s=10.0, max_warm_runs=6, rounds=3, records=100_000)
FULL = Effort(seconds=2.0, jvm_warm_s=30.0, max_warm_runs=15, rounds=7, records=500_000)


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `measure` works on a running broker, `measure_alone` starts its own."""

    name: str
    title: str
    unit: str
    better: Better
    bar: float | None
    """What the ratio Headrace / Kafka has to reach; for an absolute row, Headrace's own number."""
    measure: Callable[[Broker, Effort], float] | None = None
    measure_alone: Callable[[SideName], float] | None = None
    absolute: bool = False


def _produce_load(topic: str, batch: bytes, connections: int, partitions: int) -> Load:
    return Load(
        frames=tuple(frames.produce(topic, p, batch) for p in range(partitions)),
        connections=connections,
        error_at=frames.produce_error_at(topic),
    )


def _check_stored(broker: Broker, topic: str, partitions: int, expected: int) -> None:
    """An acknowledgement without a record behind it would be fast, and worthless."""
    stored = clients.end_offsets(broker.bootstrap, topic, partitions)
    if stored < expected:
        raise RuntimeError(f"{expected} records were acknowledged but {stored} are in the log")


def warm_jvm(broker: Broker, seconds: float) -> None:
    """Small and large requests at full speed, so that the hot paths are compiled."""
    for batch, share in ((frames.batch(1, 100), 0.8), (frames.batch_of_size(16_384), 0.2)):
        with temporary_topic(broker, 8) as topic:
            blast(broker.port, _produce_load(topic, batch, 50, 8), seconds * share)


def small_produces(connections: int) -> Callable[[Broker, Effort], float]:
    """Requests per second of 100-byte records, acks=1."""

    def measure(broker: Broker, effort: Effort) -> float:
        partitions = min(connections, 8)
        with temporary_topic(broker, partitions) as topic:
            load = _produce_load(topic, frames.batch(1, 100), connections, partitions)
            outcome = blast(broker.port, load, effort.seconds)
            _check_stored(broker, topic, partitions, outcome.all_requests)
            return outcome.requests_per_s

    return measure


def large_produces(size: int, connections: int) -> Callable[[Broker, Effort], float]:
    """Megabytes per second of batches of `size` bytes, acks=1."""

    def measure(broker: Broker, effort: Effort) -> float:
        partitions = min(connections, 4)
        with temporary_topic(broker, partitions) as topic:
            load = _produce_load(topic, frames.batch_of_size(size), connections, partitions)
            # Short, because every second leaves a gigabyte of dirty pages behind.
            outcome = blast(broker.port, load, min(effort.seconds, 1.5), 0.2)
            _check_stored(broker, topic, partitions, outcome.all_requests)
            return outcome.sent_mb_per_s

    return measure


def fetches(size: int, connections: int, log_mb: int) -> Callable[[Broker, Effort], float]:
    """Megabytes per second of fetches that answer one batch of `size` bytes each."""

    def measure(broker: Broker, effort: Effort) -> float:
        batch = frames.batch_of_size(size)
        records = (size - frames.BATCH_OVERHEAD_BYTES) // (1024 + 9)
        count = log_mb * 1_000_000 // len(batch)
        with temporary_topic(broker) as topic:
            produce = frames.produce(topic, 0, batch)
            fill(broker.port, produce, count, frames.produce_error_at(topic))
            asks = tuple(
                frames.fetch(topic, 0, number * records, len(batch)) for number in range(count)
            )
            load = Load(
                frames=asks,
                connections=connections,
                error_at=frames.fetch_error_at(topic),
                min_answer_bytes=len(batch),
            )
            return blast(broker.port, load, effort.seconds).received_mb_per_s

    return measure


def cpu_of_small_produces(broker: Broker, effort: Effort) -> float:
    """Microseconds of the broker's CPU for one 100-byte Produce over ten connections."""
    with temporary_topic(broker, 8) as topic:
        load = _produce_load(topic, frames.batch(1, 100), 10, 8)
        before = cpu_seconds(broker.pid)
        outcome = blast(broker.port, load, effort.seconds)
        return (cpu_seconds(broker.pid) - before) / outcome.all_requests * 1e6


def end_to_end_latency(broker: Broker, effort: Effort) -> float:
    """Mean milliseconds from send to receive, by Kafka's EndToEndLatency with acks=1."""
    messages = max(2000, effort.records // 50)
    with temporary_topic(broker) as topic:
        done = run_tool(
            "kafka-e2e-latency",
            *("--bootstrap-server", broker.bootstrap, "--topic", topic),
            *("--num-records", str(messages), "--producer-acks", "1", "--record-size", "100"),
            options=TOOL_OPTIONS,
            timeout_s=120,
            check=False,  # after its last line it commits offsets, which needs consumer groups
        )
    found = re.search(r"Avg latency: ([\d.]+) ms", done.stdout)
    assert found, done.text
    return float(found[1])


def producer_performance(broker: Broker, effort: Effort) -> float:
    """Records per second of Kafka's own ProducerPerformance, 100 bytes each, acks=1."""
    with temporary_topic(broker) as topic:
        return _producer_performance(broker, topic, effort.records * 2, acks="1")


def _producer_performance(
    broker: Broker, topic: str, records: int, *options: str, acks: str = "all"
) -> float:
    done = run_tool(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", str(records)),
        *("--record-size", "100", "--throughput", "-1", *options),
        *("--command-property", f"bootstrap.servers={broker.bootstrap}", f"acks={acks}"),
        *("linger.ms=5", "batch.size=65536"),
        options=TOOL_OPTIONS,
        timeout_s=120,
    )
    found = re.findall(r"records sent, ([\d.]+) records/sec", done.stdout)
    assert found, done.text
    return float(found[-1])


def transactional_performance(commit_every_ms: int) -> Callable[[Broker, Effort], float]:
    """Records per second of Kafka's own ProducerPerformance in transactions of that length."""

    def measure(broker: Broker, effort: Effort) -> float:
        with temporary_topic(broker) as topic:
            return _producer_performance(
                broker, topic, effort.records * 4,
                *("--transaction-duration-ms", str(commit_every_ms)),
                *("--transactional-id", topic),
            )  # fmt: skip

    return measure


def librdkafka_transactions(commit_every_ms: int) -> Callable[[Broker, Effort], float]:
    """Committed records per second of librdkafka's producer in transactions of that length."""

    def measure(broker: Broker, effort: Effort) -> float:
        seconds = max(effort.seconds, 3 * commit_every_ms / 1000)
        with temporary_topic(broker) as topic:
            done = clients.commit_often(broker.bootstrap, topic, seconds, commit_every_ms)
            _check_stored(broker, topic, 1, int(done * seconds))
            return done

    return measure


def librdkafka_consume_committed(broker: Broker, effort: Effort) -> float:
    """Records per second of librdkafka's consumer, of transactions of which a tenth was aborted."""
    with temporary_topic(broker) as topic:
        left = clients.produce_in_transactions(broker.bootstrap, topic, effort.records * 4, 2000)
        return clients.consume(broker.bootstrap, topic, left)


def librdkafka_produce(broker: Broker, effort: Effort) -> float:
    """Records per second of librdkafka's producer, 100 bytes each, acks=1."""
    with temporary_topic(broker) as topic:
        return clients.produce(broker.bootstrap, topic, effort.records)


def librdkafka_consume(broker: Broker, effort: Effort) -> float:
    """Records per second of librdkafka's consumer on an assigned partition."""
    with temporary_topic(broker) as topic:
        clients.produce(broker.bootstrap, topic, effort.records)
        return clients.consume(broker.bootstrap, topic, effort.records)


def seconds_to_start(name: SideName) -> float:
    """Milliseconds from exec to the first Metadata answer, on a folder that is prepared."""
    with fresh_broker(name, "start") as broker:
        broker.start()
        broker.stop()
        return broker.start() * 1000


def idle_memory(name: SideName) -> float:
    """Resident megabytes three seconds after the start."""
    with fresh_broker(name, "idle") as broker:
        broker.start()
        time.sleep(3)
        return resident_mb(broker.pid)


ROWS = (
    Row("produce-1", "Produce 100 B, 1 connection", "req/s", "higher", 1.3, small_produces(1)),
    Row("produce-10", "Produce 100 B, 10 connections", "req/s", "higher", 1.6, small_produces(10)),
    Row(
        "produce-100", "Produce 100 B, 100 connections", "req/s", "higher", 1.2, small_produces(100)
    ),
    Row(
        "produce-1000",
        "Produce 100 B, 1,000 connections",
        "req/s",
        "higher",
        1.1,
        small_produces(1000),
    ),
    Row("produce-16k", "Produce 16 KB batches", "MB/s", "higher", 2.0, large_produces(16_384, 10)),
    Row("produce-64k", "Produce 64 KB batches", "MB/s", "higher", 1.5, large_produces(65_536, 10)),
    Row("produce-1m", "Produce 1 MB batches", "MB/s", "higher", 1.0, large_produces(1_048_576, 4)),
    Row("fetch-16k", "Fetch 16 KB", "MB/s", "higher", 1.7, fetches(16_384, 10, 64)),
    Row("fetch-1m", "Fetch 1 MB", "MB/s", "higher", 1.0, fetches(1_048_576, 4, 256)),
    Row("latency", "EndToEndLatency, mean", "ms", "lower", 0.65, end_to_end_latency),
    Row(
        "start",
        "Start to first Metadata answer",
        "ms",
        "lower",
        0.1,
        measure_alone=seconds_to_start,
    ),
    Row(
        "memory",
        "Idle memory",
        "MB",
        "lower",
        60,
        measure_alone=idle_memory,
        absolute=True,
    ),
    Row("cpu", "Broker CPU per small Produce", "us", "lower", 0.6, cpu_of_small_produces),
    Row(
        "java-produce", "ProducerPerformance, 100 B", "rec/s", "higher", None, producer_performance
    ),
    Row("rd-produce", "librdkafka produce, 100 B", "rec/s", "higher", None, librdkafka_produce),
    Row("rd-consume", "librdkafka consume, 100 B", "rec/s", "higher", None, librdkafka_consume),
    *(
        Row(
            f"{name}-{often}",
            f"{title}, a commit every {often}",
            "rec/s",
            "higher",
            bar,
            measure(commit_every_ms),
        )
        for name, title, bar, measure in (
            ("rd-txn", "librdkafka produce", 1.2, librdkafka_transactions),
            ("java-txn", "ProducerPerformance", None, transactional_performance),
        )
        for often, commit_every_ms in (("10ms", 10), ("100ms", 100), ("1s", 1000))
    ),
    Row(
        "rd-committed",
        "librdkafka consume, read_committed",
        "rec/s",
        "higher",
        1.2,
        librdkafka_consume_committed,
    ),
)
