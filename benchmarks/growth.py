"""Cost growth: what Headrace costs with many partitions, connections and segments, a large log."""

import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks import frames, restarts
from benchmarks.blaster import Load, RawConnection, blast, fill
from benchmarks.frames import produce_error_at
from benchmarks.processes import cpu_seconds, resident_mb
from benchmarks.sides import Broker, fresh_broker, temporary_topic
from tests.support.ports import free_port

IDLE_SECONDS = 5.0
API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a growth row."""

    title: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Size:
    """How far to grow."""

    partitions: int = 10_000
    connections: int = 5_000
    log_gb: float = 20.0
    segments: int = 10_000


QUICK_SIZE = Size(partitions=2_000, connections=1_000, log_gb=1.0, segments=1_000)


def idle_cpu_percent(pid: int, seconds: float = IDLE_SECONDS) -> float:
    """Share of one core that a process uses while nothing is asked of it."""
    before = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - before) / seconds * 100


def small_produce_p50_us(broker: Broker) -> float:
    """Median latency of a 100-byte Produce on one connection."""
    with temporary_topic(broker) as topic:
        load = Load(
            frames=(frames.produce(topic, 0, frames.batch(1, 100)),),
            connections=1,
            error_at=frames.produce_error_at(topic),
        )
        return float(blast(broker.port, load, 1.0).p50_us)


def partitions(size: Size) -> list[Figure]:
    """Topics of 1,000 partitions each: creation, start, Metadata, idle cost."""
    topics = [f"wide-{n}" for n in range(max(1, size.partitions // 1000))]
    each = size.partitions // len(topics)
    with fresh_broker("headrace", "partitions") as broker:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        began = time.monotonic()
        for name in topics:
            admin.create_topics([NewTopic(name, each, 1)])[name].result(120)
        creation_s = time.monotonic() - began
        began = time.monotonic()
        broker.stop()
        stop_s = time.monotonic() - began
        start_s = broker.start()
        connection = RawConnection(broker.port)
        times = []
        for _ in range(11):
            began = time.monotonic()
            connection.ask(frames.metadata_of_all_topics())
            times.append((time.monotonic() - began) * 1000)
        connection.close()
        time.sleep(1)
        return [
            Figure("creation", creation_s, "s"),
            Figure("clean stop", stop_s, "s"),
            Figure("start to first Metadata answer", start_s * 1000, "ms"),
            Figure("Metadata of everything, first", times[0], "ms"),
            Figure("Metadata of everything, then", statistics.median(times[1:]), "ms"),
            Figure("idle CPU", idle_cpu_percent(broker.pid), "% of a core"),
            Figure("memory", resident_mb(broker.pid), "MB"),
        ]


def restarted(size: Size) -> list[Figure]:
    """Partitions that all hold records: stopping, starting, opening, recovering."""
    return [Figure(*figure) for figure in restarts.measure(size.partitions)]


def connections(size: Size) -> list[Figure]:
    """Idle connections that have each asked once: memory, idle CPU, what others notice."""
    with fresh_broker("headrace", "connections") as broker:
        broker.start()
        # Ours is raised after the broker's start: its own limit is the broker's business.
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        alone_us = small_produce_p50_us(broker)
        memory_before = resident_mb(broker.pid)
        idle: list[RawConnection] = []
        try:
            for _ in range(size.connections):
                connection = RawConnection(broker.port)
                connection.ask(API_VERSIONS)
                idle.append(connection)
            memory = resident_mb(broker.pid)
            cpu = idle_cpu_percent(broker.pid)
            crowded_us = small_produce_p50_us(broker)
        finally:
            for connection in idle:
                connection.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        return [
            Figure("memory before", memory_before, "MB"),
            Figure("memory with all of them", memory, "MB"),
            Figure("per connection", (memory - memory_before) * 1000 / size.connections, "KB"),
            Figure("idle CPU", cpu, "% of a core"),
            Figure("small Produce, p50, before", alone_us, "us"),
            Figure("small Produce, p50, beside them", crowded_us, "us"),
        ]


def large_log(size: Size) -> list[Figure]:
    """One partition of many gigabytes: restart, and fetches at both ends."""
    with fresh_broker("headrace", "log") as broker:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        new = NewTopic("large", 1, 1, config={"max.message.bytes": "2000000"})
        admin.create_topics([new])["large"].result(60)
        batch = frames.batch_of_size(1_048_576)
        small = frames.batch_of_size(16_384)
        _grow(broker, small, 16_000_000)
        _grow(broker, batch, int(size.log_gb * 1e9))
        last_large = _end_offset(broker)
        _grow(broker, small, _log_bytes(broker.data) + 16_000_000)
        end = _end_offset(broker)
        began = time.monotonic()
        broker.stop()
        stop_s = time.monotonic() - began
        start_s = broker.start()
        return [
            Figure("size", _log_bytes(broker.data) / 1e9, "GB"),
            Figure("clean stop", stop_s, "s"),
            Figure("restart to first Metadata answer", start_s * 1000, "ms"),
            Figure("first fetch of 16 KB at the beginning", _fetch_ms(broker, [0])[0], "ms"),
            Figure("then, median", _median_fetch_ms(broker, 0, 1500), "ms"),
            Figure("first fetch of 16 KB at the end", _fetch_ms(broker, [end - 15])[0], "ms"),
            Figure("then, median", _median_fetch_ms(broker, last_large, end - 15), "ms"),
            Figure("memory", resident_mb(broker.pid), "MB"),
        ]


def _grow(broker: Broker, batch: bytes, until_bytes: int) -> None:
    """Appends until the log has this size, a second at a time."""
    load = Load(
        frames=(frames.produce("large", 0, batch),),
        connections=4,
        error_at=frames.produce_error_at("large"),
    )
    while (there := _log_bytes(broker.data)) < until_bytes:
        blast(broker.port, load, min(2.0, max(0.05, (until_bytes - there) / 1e9)), warm_s=0)


def _log_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in data.glob("large-0/*.log"))


def _end_offset(broker: Broker) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition("large", 0), 20)
        return int(high)
    finally:
        consumer.close()


def _fetch_ms(broker: Broker, offsets: list[int]) -> list[float]:
    connection = RawConnection(broker.port)
    times = []
    try:
        for offset in offsets:
            frame = frames.fetch("large", 0, offset, 16_384)
            began = time.monotonic()
            answer = connection.ask(frame)
            times.append((time.monotonic() - began) * 1000)
            assert len(answer) > 10_000, f"fetch at {offset} answered {len(answer)} bytes"
    finally:
        connection.close()
    return times


def _median_fetch_ms(broker: Broker, first: int, last: int) -> float:
    step = max(1, (last - first) // 200)
    return statistics.median(_fetch_ms(broker, list(range(first, last, step))[:200]))


def old_segments(size: Size) -> list[Figure]:
    """Retention of a partition of many segments: a pass, and what other clients notice of it."""
    metrics = f"127.0.0.1:{free_port()}"
    settings = {
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "0",
        "headrace.metrics.address": metrics,
    }
    batch = frames.batch(1, 100)
    with fresh_broker("headrace", "segments", settings) as broker:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        # A segment for each batch, and a topic that others use meanwhile.
        old = NewTopic("old", 1, 1, config={"internal.segment.bytes": str(len(batch))})
        admin.create_topics([old])["old"].result(60)
        admin.create_topics([NewTopic("busy", 1, 1)])["busy"].result(60)
        fill(broker.port, frames.produce("old", 0, batch), size.segments, produce_error_at("old"))
        idle_ms = _last_pass_ms(metrics)
        quiet = _produce_ms(broker.port, lambda: False, at_least_s=2)
        cpu = cpu_seconds(broker.pid)
        began = time.monotonic()
        entry = ConfigEntry("retention.bytes", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "old", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)
        folder = broker.data / "old-0"
        crowded = _produce_ms(broker.port, lambda: len(os.listdir(folder)) < 100)
        gone_s = time.monotonic() - began
        return [
            Figure("a pass that finds nothing", idle_ms, "ms"),
            Figure("all but the last deleted, with their files, within", gone_s, "s"),
            Figure("CPU for that, and for the produces", cpu_seconds(broker.pid) - cpu, "s"),
            Figure("small Produce, p50, before", statistics.median(quiet), "ms"),
            Figure("small Produce, p50, meanwhile", statistics.median(crowded), "ms"),
            Figure("small Produce, worst, before", max(quiet), "ms"),
            Figure("small Produce, worst, meanwhile", max(crowded), "ms"),
        ]


def _last_pass_ms(address: str) -> float:
    """How long the last look for something to delete took, when a new one has been made."""
    seen = _metric(address, "headrace_retention_passes_total")
    while _metric(address, "headrace_retention_passes_total") < seen + 2:
        time.sleep(0.05)
    return _metric(address, "headrace_retention_pass_seconds") * 1000


def _metric(address: str, name: str) -> float:
    with urlopen(f"http://{address}/metrics", timeout=30) as page:
        for line in page.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise RuntimeError(f"{address} has no metric {name}")


def _produce_ms(port: int, done: Callable[[], bool], at_least_s: float = 0) -> list[float]:
    """Latencies of one small Produce after the other, until `done` (looked at now and then)."""
    connection = RawConnection(port)
    frame = frames.produce("busy", 0, frames.batch(1, 100))
    times = []
    began = looked = time.monotonic()
    try:
        while True:
            asked = time.monotonic()
            connection.ask(frame)
            answered = time.monotonic()
            times.append((answered - asked) * 1000)
            if answered - looked > 0.1:
                looked = answered
                if done() or (at_least_s and answered - began > at_least_s):
                    return times
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class GrowthRow:
    """One situation and the figures measured in it."""

    name: str
    title: Callable[[Size], str]
    measure: Callable[[Size], list[Figure]]


GROWTH_ROWS = (
    GrowthRow("many-partitions", lambda size: f"{size.partitions:,} partitions", partitions),
    GrowthRow(
        "restarts", lambda size: f"Restarts with {size.partitions:,} partitions in use", restarted
    ),
    GrowthRow(
        "many-connections", lambda size: f"{size.connections:,} idle connections", connections
    ),
    GrowthRow(
        "old-segments", lambda size: f"Retention of {size.segments:,} segments", old_segments
    ),
    GrowthRow("large-log", lambda size: f"A log of {size.log_gb:g} GB", large_log),
)
