"""python -m benchmarks.compaction: Headrace's compaction beside Apache Kafka's cleaner thread.

One log is written once and given to both brokers as several partitions of a topic, which each
compacts one after the other, with one thread or process. How long each takes shows in the file
`cleaner-offset-checkpoint`; the first partition is left out, since Kafka's code is cold then. A
second part measures what producers feel of a compaction in our broker.
"""

import argparse
import json
import random
import shutil
import statistics
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks import frames, report
from benchmarks.blaster import WORK, Load, blast
from benchmarks.processes import TICKS_PER_S, busy_cores
from benchmarks.sides import NAMES, Broker, SideName, temporary_topic
from headrace.clock import SystemClock
from headrace.disk import RealDisk
from headrace.log.directory import LogDirectory
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import read_header
from headrace.wire.compression import CODECS
from headrace.wire.records import Record, encode_batch
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker

TOPIC = "cleaned"
RESULTS = Path(__file__).with_name("compaction.json")
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1"}
CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}
CHECKPOINT = "cleaner-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the log is made of."""

    title: str
    value_bytes: int
    batch_records: int
    codec: str
    megabytes: int
    keys_per_record: float = 0.2


SHAPES = (
    Shape("100 B values, batches of 120", 100, 120, "uncompressed", 120),
    Shape("100 B values, batches of 120, zstd", 100, 120, "zstd", 80),
    Shape("1 KB values, batches of 15", 1000, 15, "uncompressed", 200),
    Shape("100 B values, batches of 8", 100, 8, "uncompressed", 60),
)


@dataclass(frozen=True, slots=True)
class Result:
    """Megabytes and records a second on both sides."""

    shape: Shape
    log_mb: float
    records: int
    kafka_mb_per_s: float
    headrace_mb_per_s: float
    kafka_mb_per_cpu_s: float
    """By the processor time of the one thread or process: what a busy machine distorts less."""
    headrace_mb_per_cpu_s: float

    @property
    def ratio(self) -> float:
        return self.headrace_mb_per_s / self.kafka_mb_per_s

    @property
    def cpu_ratio(self) -> float:
        return self.headrace_mb_per_cpu_s / self.kafka_mb_per_cpu_s


def write_log(folder: Path, shape: Shape) -> tuple[Path, int]:
    """A log of that shape; its folder and how many records it has."""
    shutil.rmtree(folder, ignore_errors=True)
    directory = LogDirectory(str(folder), RealDisk(), SystemClock())
    directory.open()
    partition = TopicPartition(TOPIC, 0)
    settings = LogSettings(segment_bytes=64 << 20)
    log = directory.create(partition, uuid.uuid4(), settings)
    rnd, now_ms = random.Random(1), int(time.time() * 1000)
    total = shape.megabytes * 1_000_000 // (shape.value_bytes + 28)
    keys = int(total * shape.keys_per_record)
    values = [rnd.randbytes(shape.value_bytes // 2).hex().encode() for _ in range(1000)]
    while log.end_offset < total:
        batch = encode_batch(
            [
                Record(0, now_ms + n, b"key-%012d" % rnd.randrange(keys), rnd.choice(values))
                for n in range(shape.batch_records)
            ],
            codec=CODECS[shape.codec],
        )
        header = read_header(batch, 0)
        log.append(batch, memoryview(batch), 0, len(batch), header, 0, now_ms)
    log.roll()
    records = log.end_offset
    directory.close()
    return folder / str(partition), records


def set_ratio(broker: Broker, ratio: float) -> None:
    entry = ConfigEntry(
        "min.cleanable.dirty.ratio", str(ratio), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def give(broker: Broker, log: Path, partitions: int) -> None:
    """Let the broker have that log as every partition of the topic, not yet compacted."""
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {**CONFIG, "min.cleanable.dirty.ratio": "1.0"}
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=config)])[TOPIC].result(30)
    broker.stop()
    for partition in range(partitions):
        folder = broker.partition_folder(TOPIC, partition)
        identity = (folder / "partition.metadata").read_bytes()
        shutil.rmtree(folder)
        shutil.copytree(log, folder)
        (folder / "partition.metadata").write_bytes(identity)
    broker.start()


def new_side(name: SideName) -> Broker:
    folder = WORK / f"compaction-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    if name == "headrace":
        return HeadraceBroker(folder, settings=SETTINGS)
    return ApacheKafka(folder, heap_mb=1024, settings=SETTINGS)


def cleaned(broker: Broker) -> int:
    """How many partitions have been compacted."""
    try:
        text = (broker.data / CHECKPOINT).read_text()
    except FileNotFoundError:
        return 0
    return sum(line.startswith(TOPIC) and line.split()[-1] != "0" for line in text.splitlines())


def cleaner_cpu_s(broker: Broker) -> float:
    """Processor time of Kafka's cleaner thread, or of our process."""
    total = 0
    for task in Path(f"/proc/{broker.pid}/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        if name.startswith("kafka-log-clean"):
            total += sum(map(int, rest.split()[11:13]))
        for child in (task / "children").read_text().split():
            stat = Path(f"/proc/{child}/stat").read_text()
            total += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
    return total / TICKS_PER_S


def seconds_each(broker: Broker, partitions: int) -> list[tuple[float, float]]:
    """How long each partition but the first took, and in processor time.

    They are compacted one after the other, without a pause.
    """
    ends: list[tuple[float, float]] = []
    deadline = time.monotonic() + 120
    last_cpu_s = 0.0
    while len(ends) < partitions:
        with suppress(FileNotFoundError):  # a task that has just ended
            last_cpu_s = max(last_cpu_s, cleaner_cpu_s(broker))
        if cleaned(broker) > len(ends):
            ends.append((time.monotonic(), last_cpu_s))
        if time.monotonic() > deadline:
            raise TimeoutError("the compaction does not end")
        time.sleep(0.003)
    return [(end[0] - begin[0], end[1] - begin[1]) for begin, end in pairwise(ends)]


def compare(shape: Shape, partitions: int) -> Result:
    """Both compact the same log."""
    log, records = write_log(WORK / "compaction-log", shape)
    size = sum(path.stat().st_size for path in log.glob("*.log"))
    log_mb = size / (1 << 20)
    measured: dict[SideName, tuple[float, float]] = {}
    for name in NAMES:
        broker = new_side(name)
        try:
            give(broker, log, partitions)
            set_ratio(broker, 0.0)
            took = seconds_each(broker, partitions)
            measured[name] = (
                log_mb / statistics.median(wall_s for wall_s, _ in took),
                log_mb / statistics.median(cpu_s for _, cpu_s in took),
            )
        finally:
            broker.stop()
            shutil.rmtree(broker.folder, ignore_errors=True)
    shutil.rmtree(WORK / "compaction-log")
    kafka, headrace = measured["kafka"], measured["headrace"]
    return Result(shape, log_mb, records, kafka[0], headrace[0], kafka[1], headrace[1])


def felt_by_producers(shape: Shape, partitions: int, seconds: float) -> dict[str, float]:
    """The p99 of 100-byte produces without and during a compaction, in microseconds."""
    log, _ = write_log(WORK / "compaction-log", shape)
    broker = new_side("headrace")
    found: dict[str, float] = {}
    try:
        give(broker, log, partitions)
        for connections, title in ((1, "1 connection"), (10, "10 connections")):
            with temporary_topic(broker) as topic:
                load = Load(
                    frames=(frames.produce(topic, 0, frames.batch(1, 100)),),
                    connections=connections,
                    error_at=frames.produce_error_at(topic),
                )
                quiet = [blast(broker.port, load, seconds).p99_us for _ in range(3)]
                set_ratio(broker, 0.0)
                busy = []
                for _ in range(3):
                    busy.append(blast(broker.port, load, seconds).p99_us)
                    if cleaned(broker) >= partitions:
                        raise RuntimeError("the compaction ended before the measurement")
                found[f"{title}: p99 without, us"] = statistics.median(quiet)
                found[f"{title}: p99 meanwhile, us"] = statistics.median(busy)
            broker.stop()
            (broker.data / CHECKPOINT).unlink(missing_ok=True)
            for partition in range(partitions):
                folder = broker.partition_folder(TOPIC, partition)
                identity = (folder / "partition.metadata").read_bytes()
                shutil.rmtree(folder)
                shutil.copytree(log, folder)
                (folder / "partition.metadata").write_bytes(identity)
            broker.start()
    finally:
        broker.stop()
        shutil.rmtree(broker.folder, ignore_errors=True)
        shutil.rmtree(WORK / "compaction-log", ignore_errors=True)
    return found


def markdown() -> list[str]:
    """A section of RESULTS.md, from what the last run with `--write` measured."""
    results = json.loads(RESULTS.read_text())
    cores: float | None = results["busy_cores"]
    busy = (
        "other work ran, how much is not known" if cores is None else f"{cores:.1f} cores were busy"
    )
    lines = [
        "",
        "## Compaction beside Kafka's cleaner thread",
        "",
        "The same log compacted by both, one thread or process each; the goal is half of Kafka's",
        "speed. The logs are small, so that Kafka's code is hardly warm, which flatters us, and",
        "processor time tells more than the clock where others use the machine. When the speed was",
        f"measured, {busy}. Repeat with `python -m benchmarks.compaction`.",
        "",
        "| log | Kafka, MB/s | Headrace, MB/s | records/s | by the clock | by processor time |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['shape']['title']} | {row['kafka_mb_per_s']:.0f} | {row['headrace_mb_per_s']:.0f} "
        f"| {row['headrace_records_per_s'] / 1000:.0f} k | {row['ratio']:.2f} "
        f"| **{row['cpu_ratio']:.2f}** |"
        for row in results["speed"]
    ]
    lines += ["", "What producers of 100 B feel of it:", "", "| | |", "|---|---|"]
    lines += [f"| {title} | {value:.0f} |" for title, value in results["latency"].items()]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description=__doc__)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the logs' sizes")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="only the first ones")
    parser.add_argument("--part", choices=("speed", "latency", "both"), default="both")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    results: dict[str, object] = json.loads(RESULTS.read_text())
    if options.part != "latency":
        results["busy_cores"] = busy_cores()
        rows = []
        for shape in SHAPES[: options.shapes]:
            scaled = Shape(**{**asdict(shape), "megabytes": int(shape.megabytes * options.scale)})
            row = compare(scaled, options.partitions)
            rate = row.headrace_mb_per_s / row.log_mb * row.records
            print(
                f"{shape.title:38} Kafka {row.kafka_mb_per_s:7.1f} MB/s   Headrace "
                f"{row.headrace_mb_per_s:7.1f} MB/s ({rate / 1000:.0f} k records/s)   "
                f"ratio {row.ratio:.2f}, by processor time {row.cpu_ratio:.2f}",
                flush=True,
            )
            rows.append(
                {
                    **asdict(row),
                    "ratio": row.ratio,
                    "cpu_ratio": row.cpu_ratio,
                    "headrace_records_per_s": rate,
                }
            )
        results["speed"] = rows
    if options.part != "speed":
        latency = felt_by_producers(SHAPES[0], options.partitions, options.seconds)
        for title, value in latency.items():
            print(f"{title:38} {value:.0f}")
        results["latency"] = latency
    if options.write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        report.write_markdown()


if __name__ == "__main__":
    main()
