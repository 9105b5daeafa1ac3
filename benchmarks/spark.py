"""python -m benchmarks.spark: our source and sink beside Spark's own Kafka connector, in turns.

The same session, broker and topics for both; each row is warmed with both before the first round,
and the ratio is the median over the rounds. Results go into RESULTS.md with `--write`.
"""

import argparse
import json
import shutil
import statistics
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from benchmarks.processes import BUSY_CORES, busy_cores
from benchmarks.sides import Broker, SideName, new_broker
from benchmarks.spark_latency import Latency, measure_in_turns
from benchmarks.typed import AVRO, NESTED, typed_read
from benchmarks.typed import JSON as TYPED_JSON
from tests.support import java
from tests.support import spark as support
from tests.support.topics import create_topic

HERE = Path(__file__).resolve().parent
JSON = HERE / "spark.json"
PICTURE = HERE / "spark.svg"
WORK = HERE / ".work" / "spark"
SOURCES = ("kafka", "headrace")
PARTITIONS = 4
EPOCH_ROWS = 500_000
LATENCY_RUN_S = 14.0


Unit = Literal["rows/s", "ms"]


@dataclass(frozen=True, slots=True)
class Bench:
    """What a row measures with: the session, the broker, how often."""

    spark: SparkSession
    bootstrap: str
    rounds: int
    scale: float


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: rows a second or milliseconds, and how many times better than the connector
    we have to be."""

    name: str
    title: str
    bar: float
    measure: Callable[[Bench], dict[str, list[float]]]
    unit: Unit = "rows/s"


def fill(bootstrap: str, records: int, value_bytes: int, codec: str) -> str:
    """A topic of records whose values differ from one another, as a usual producer writes it."""
    topic = create_topic(bootstrap, f"bench-{uuid.uuid4().hex[:8]}", PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    tail = b"the quick brown fox jumps over the lazy dog; " * (value_bytes // 45 + 1)
    for number in range(records):
        value = (b"%010d " % (number * 7919 % 1_000_000_007) + tail)[:value_bytes]
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return topic


def batch_read(
    records: int, value_bytes: int, codec: str
) -> Callable[[Bench], dict[str, list[float]]]:
    """A whole topic into nothing."""

    def measure(bench: Bench) -> dict[str, list[float]]:
        count = int(records * bench.scale)
        topic = fill(bench.bootstrap, count, value_bytes, codec)

        def once(source: str) -> float:
            began = time.monotonic()
            frame = (
                bench.spark.read.format(source)
                .option("kafka.bootstrap.servers", bench.bootstrap)
                .option("subscribe", topic)
                .load()
            )
            frame.write.format("noop").mode("overwrite").save()
            return count / (time.monotonic() - began)

        for source in SOURCES:
            seen = (
                bench.spark.read.format(source)
                .option("kafka.bootstrap.servers", bench.bootstrap)
                .option("subscribe", topic)
                .load()
                .selectExpr("count(*) as n", "sum(length(value)) as bytes")
                .first()
            )
            assert (seen.n, seen.bytes) == (count, count * value_bytes), (source, seen)
        return in_turns(once, bench.rounds, warm=2)

    return measure


def stream_epochs(bench: Bench) -> dict[str, list[float]]:
    """Epochs of half a million rows, from the trigger to the commit; the first two are cold."""
    epochs = 8
    size = int(EPOCH_ROWS * bench.scale)
    topic = fill(bench.bootstrap, size * epochs, 100, "none")

    def once(source: str) -> float:
        checkpoint = WORK / f"checkpoint-{uuid.uuid4().hex[:8]}"
        query = (
            bench.spark.readStream.format(source)
            .option("kafka.bootstrap.servers", bench.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(size))
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        done: list[Any] = [each for each in query.recentProgress if each["numInputRows"]]
        assert sum(each["numInputRows"] for each in done) == size * epochs, done
        took_ms = [each["durationMs"]["triggerExecution"] for each in done[2:]]
        return size / statistics.median(took_ms) * 1000

    return in_turns(once, max(bench.rounds // 2, 2), warm=1)


def copy_epochs(bench: Bench) -> dict[str, list[float]]:
    """Topic to topic: Spark's own sink, at least once, beside ours, exactly once.

    Both read with our source, so that only the sinks differ; the first two epochs are cold.
    """
    epochs = 6
    size = int(EPOCH_ROWS * bench.scale)
    topic = fill(bench.bootstrap, size * epochs, 100, "none")

    def once(sink: str) -> float:
        name = uuid.uuid4().hex[:8]
        target = create_topic(bench.bootstrap, f"copy-{name}", PARTITIONS)
        writer = (
            bench.spark.readStream.format("headrace")
            .option("kafka.bootstrap.servers", bench.bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(size))
            .load()
            .select("key", "value")
            .writeStream.format(sink)
            .option("kafka.bootstrap.servers", bench.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(WORK / f"checkpoint-{name}"))
        )
        if sink == "headrace":
            writer = writer.option("delivery", "exactly-once")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        done: list[Any] = [each for each in query.recentProgress if each["numInputRows"]]
        assert sum(each["numInputRows"] for each in done) == size * epochs, done
        AdminClient({"bootstrap.servers": bench.bootstrap}).delete_topics([target])
        took_ms = [each["durationMs"]["triggerExecution"] for each in done[2:]]
        return size / statistics.median(took_ms) * 1000

    return in_turns(once, max(bench.rounds // 2, 2), warm=1)


@cache
def latencies(bench: Bench) -> dict[str, list[Latency]]:
    """Runs at 1,000 records a second; both rows come from the same runs."""
    rounds = max(bench.rounds - 1, 2)
    return measure_in_turns(
        bench.spark, bench.bootstrap, WORK, SOURCES, rounds, LATENCY_RUN_S * bench.scale
    )


def latency(which: Literal["p50_ms", "p99_ms"]) -> Callable[[Bench], dict[str, list[float]]]:
    """One percentile of a record's way through a query."""

    def measure(bench: Bench) -> dict[str, list[float]]:
        found = latencies(bench)
        return {source: [getattr(each, which) for each in found[source]] for source in SOURCES}

    return measure


def in_turns(once: Callable[[str], float], rounds: int, warm: int) -> dict[str, list[float]]:
    for _ in range(warm):
        for source in SOURCES:
            once(source)
    measured: dict[str, list[float]] = {source: [] for source in SOURCES}
    for _ in range(rounds):
        for source in SOURCES:
            measured[source].append(once(source))
    return measured


ROWS = (
    Row("spark-read-100", "Batch read, 2 M x 100 B", 2.0, batch_read(2_000_000, 100, "none")),
    Row("spark-read-1k", "Batch read, 1 M x 1 KB", 1.5, batch_read(1_000_000, 1000, "none")),
    Row("spark-read-lz4", "Batch read, 2 M x 100 B, lz4", 1.8, batch_read(2_000_000, 100, "lz4")),
    Row("spark-stream", "Streaming epochs of 500 k x 100 B", 1.2, stream_epochs),
    Row("spark-sink", "Sink: exactly once beside at least once", 0.9, copy_epochs),
    Row(
        "spark-avro", "Typed: flat Avro beside from_avro", 1.0, typed_read(2_000_000, "avro", AVRO)
    ),
    Row(
        "spark-nested",
        "Typed: Avro with an array, from_avro",
        1.0,
        typed_read(500_000, "avro", NESTED),
    ),
    Row(
        "spark-json", "Typed: JSON beside from_json", 1.0, typed_read(1_000_000, "json", TYPED_JSON)
    ),
    Row("spark-latency-p50", "Latency at 1,000 records/s, p50", 1.0, latency("p50_ms"), "ms"),
    Row("spark-latency-p99", "Latency at 1,000 records/s, p99", 1.0, latency("p99_ms"), "ms"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """All rounds of one row."""

    name: str
    broker: str
    connector: list[float]
    headrace: list[float]
    busy_cores: float | None = None
    """How much other work ran when the row began; None where nobody looked."""
    unit: Unit = "rows/s"

    @property
    def ratio(self) -> float:
        """How many times better than the connector: the median over neighbouring rounds."""
        pairs = zip(self.headrace, self.connector, strict=True)
        ratios = [ours / theirs for ours, theirs in pairs]
        return statistics.median(ratios if self.unit == "rows/s" else [1 / each for each in ratios])

    def spread(self, values: list[float]) -> str:
        unit = "" if self.unit == "rows/s" else f" {self.unit}"
        return f"{spread(values)}{unit}"


def load() -> dict[str, Measured]:
    """What was measured last, row by row."""
    if not JSON.exists():
        return {}
    return {name: Measured(**row) for name, row in json.loads(JSON.read_text()).items()}


def markdown() -> list[str]:
    """The section of RESULTS.md; nothing when nothing was measured."""
    stored = load()
    if not stored:
        return []
    lines = [
        "",
        "## Pipelines on Spark beside Spark's own Kafka connector",
        "",
        "The same session (`local[2]`), broker and topics, the two sources in turns, into Spark's",
        "`noop` sink; for the sink a topic is copied in epochs of 500 k x 100 B by our source, and",
        "Spark's own sink writes at least once, ours exactly once. Typed topics are records of",
        "eight fields; ours become columns in the source, the others' with Spark's functions.",
        "Latency is a record's way from the producer through a query to a consumer of its sink,",
        "which is Spark's own for both. Rows a second or milliseconds, medians with the range of",
        "all rounds; a ratio above 1 is better than the connector. Repeat with",
        "`python -m benchmarks.spark`.",
        "",
        "![Ratios to Spark's own connector](spark.svg)",
        "",
        "| work | broker | Spark's connector | Headrace | ratio | bar | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        if (found := stored.get(row.name)) is not None:
            verdict = "holds" if found.ratio >= row.bar else "**missed**"
            if found.busy_cores is None:
                verdict += "; other work was not looked for"
            elif found.busy_cores > BUSY_CORES:
                verdict = f"{found.busy_cores:.1f} cores were busy"
            lines.append(
                f"| {row.title} | {found.broker} | {found.spread(found.connector)} "
                f"| {found.spread(found.headrace)} | **{found.ratio:.2f}** | ≥ {row.bar:g} "
                f"| {verdict} |"
            )
    return lines


def spread(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle:,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def picture() -> None:
    """How many times faster than Spark's own connector, with a mark where the bar is set."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    stored = load()
    rows = [row for row in reversed(ROWS) if row.name in stored]
    ratios = [stored[row.name].ratio for row in rows]
    figure, axes = pyplot.subplots(figsize=(9, 0.5 * len(rows) + 1.4))
    axes.barh([row.title for row in rows], ratios, color="#1f6f8b", height=0.6)
    for place, (row, ratio) in enumerate(zip(rows, ratios, strict=True)):
        axes.plot([row.bar, row.bar], [place - 0.4, place + 0.4], color="black", linewidth=2)
        axes.text(ratio + 0.03, place, f"{ratio:.2f}x", va="center", fontsize=9)
    axes.axvline(1, color="grey", linewidth=1, linestyle="--")
    axes.set_xlim(0, max(ratios) * 1.2)
    axes.set_title("Headrace's Spark source beside Spark's own connector: times faster")
    axes.set_xlabel("dashed: as Spark's own; black mark: the bar")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})
    pyplot.close(figure)


def arguments() -> argparse.Namespace:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, two rounds")
    parser.add_argument("--only", action="append", metavar="ROW", choices=names, help="repeatable")
    parser.add_argument("--rounds", type=int, default=5, help="how often the two take turns")
    parser.add_argument("--broker", choices=("headrace", "kafka"), default="headrace")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md and the picture")
    return parser.parse_args()


def measure_rows(options: argparse.Namespace, broker: Broker, name: SideName) -> None:
    rounds, scale = (2, 0.1) if options.quick else (options.rounds, 1.0)
    settings = {"spark.driver.memory": "2g", "spark.ui.showConsoleProgress": "false"}
    spark = support.local_spark(WORK, settings, support.avro_jars())
    bench = Bench(spark, broker.bootstrap, rounds, scale)
    stored = load()
    try:
        for row in ROWS:
            if options.only and row.name not in options.only:
                continue
            busy = busy_cores()
            done = row.measure(bench)
            measured = Measured(row.name, name, done["kafka"], done["headrace"], busy, row.unit)
            print(
                f"{row.title}: connector {spread(measured.connector)}, headrace "
                f"{spread(measured.headrace)} {row.unit}; "
                f"ratio {measured.ratio:.2f} (bar {row.bar})",
                flush=True,
            )
            stored[row.name] = measured
    finally:
        spark.stop()
    if options.write:
        from benchmarks.report import write_markdown

        rows = {each.name: asdict(each) for each in stored.values()}
        JSON.write_text(json.dumps(rows, indent=1) + "\n")
        picture()
        write_markdown()


def main() -> None:
    options = arguments()
    if reason := support.missing() or java.missing():
        raise SystemExit(f"this comparison needs Java: {reason}")
    if not support.connector_jars() or not support.avro_jars():
        raise SystemExit("no jars of Spark's own connector: run `make tools`")
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    broker = new_broker(options.broker, "spark")
    broker.start()
    try:
        measure_rows(options, broker, options.broker)
    finally:
        broker.stop()
        shutil.rmtree(broker.folder, ignore_errors=True)
        shutil.rmtree(WORK, ignore_errors=True)


if __name__ == "__main__":
    main()
