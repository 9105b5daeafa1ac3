"""python -m benchmarks.cluster: three Headrace brokers beside three of Apache Kafka, in turns.

Both have replication factor 3 and `min.insync.replicas=2`, on the same cores, one at a time. What
is measured: records a second with acks=all (Kafka's ProducerPerformance, 1 KB records, batches of
16 KB, six partitions), the longest gap in acknowledgements after kill -9 of a leader with each
one's defaults, the memory of three idle brokers, and how fast one that was away catches up.
Headrace runs twice: with a ZooKeeper, and with a shared SQLite file as `serve --brokers 3` does.
"""

import argparse
import json
import re
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.processes import busy_cores, resident_mb
from tests.support.apache_kafka_cluster import ApacheKafkaCluster
from tests.support.cluster import RunningCluster
from tests.support.java import run_tool
from tests.support.zookeeper import ZooKeeper

RESULTS = Path(__file__).with_name("cluster.json")
KAFKA, ZOOKEEPER, SQLITE = "kafka", "headrace-zookeeper", "headrace-sqlite"
PATIENCE_S = 120
CONFIG = {"min.insync.replicas": "2"}


@dataclass
class Side:
    """A cluster of three, as the measurements need it."""

    name: str
    bootstrap: str
    pids: Callable[[], list[int]]
    kill: Callable[[int], None]
    start: Callable[[int], None]


@dataclass
class Measured:
    """What was measured on one side, a value for each round."""

    records_per_s: list[float] = field(default_factory=list)
    gap_s: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    catch_up_mb_per_s: list[float] = field(default_factory=list)
    busy_cores: list[float] = field(default_factory=list)


ROWS: tuple[tuple[str, str, Callable[[Measured], list[float]]], ...] = (
    ("records of 1 KB a second, acks=all, batches of 16 KB", "≥ 3", lambda one: one.records_per_s),
    ("gap in acknowledgements after kill -9 of a leader, s", "≤ 0.3", lambda one: one.gap_s),
    ("memory of three idle brokers, MB", "≤ 0.17", lambda one: one.memory_mb),
    ("catching up 1 GB, MB/s", "≥ 1", lambda one: one.catch_up_mb_per_s),
)


@contextmanager
def side(name: str, folder: Path) -> Iterator[Side]:
    """The cluster, running."""
    if name == KAFKA:
        with ApacheKafkaCluster(folder) as kafka:
            yield Side(
                name,
                kafka.bootstrap,
                lambda: [node.pid for node in kafka.nodes.values()],
                lambda node: kafka.nodes[node].kill(),
                lambda node: (kafka.nodes[node].start(), None)[1],
            )
        return
    with ExitStack() as stack:
        metadata = None
        if name == ZOOKEEPER:
            metadata = stack.enter_context(ZooKeeper(folder / "zookeeper")).address("/bench")
        ours = stack.enter_context(
            RunningCluster(folder / "metadata", metadata=metadata, quick=False)
        )
        yield Side(
            name,
            ours.bootstrap_servers,
            lambda: [broker.pid for broker in ours.brokers.values()],
            lambda node: ours.brokers[node].kill(),
            lambda node: ours.brokers[node].start(),
        )


def create(cluster: Side, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, partitions, 3, config=CONFIG)
    admin.create_topics([new])[topic].result(PATIENCE_S)
    wait_in_sync(cluster, topic)


def wait_in_sync(cluster: Side, topic: str) -> int:
    """Until all replicas are in sync; the leader of the first partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        if found and all(len(part.isrs) == 3 and part.leader > 0 for part in found.values()):
            leader: int = found[0].leader
            return leader
        assert time.monotonic() < deadline, "the replicas do not get in sync"
        time.sleep(0.05)


def throughput(cluster: Side, topic: str, records: int) -> float:
    """Records a second, after the first fifth."""
    create(cluster, topic, 6)
    options = ["--topic", topic, "--record-size", "1000", "--throughput", "-1"]
    given = [f"bootstrap.servers={cluster.bootstrap}", "acks=all", "batch.size=16384"]
    for count in (records // 5, records):
        done = run_tool(
            "kafka-producer-perf-test", *options, "--num-records", str(count),
            "--command-property", *given, timeout_s=600,
        )  # fmt: skip
    found = re.findall(r"([0-9.]+) records/sec", done.stdout)
    return float(found[-1])


def gap(cluster: Side, topic: str) -> float:
    """The longest time without an acknowledgement, around kill -9 of the leader."""
    create(cluster, topic, 1)
    leader = wait_in_sync(cluster, topic)
    times: list[float] = []
    stop = threading.Event()

    def write() -> None:
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0,
             "retry.backoff.ms": 10, "retry.backoff.max.ms": 50}
        )  # fmt: skip
        while not stop.is_set():
            producer.produce(
                topic, b"x" * 100,
                on_delivery=lambda error, _: times.append(time.monotonic()) if not error else None,
            )  # fmt: skip
            producer.poll(0.005)
        producer.flush(PATIENCE_S)

    writer = threading.Thread(target=write)
    writer.start()
    time.sleep(2)
    killed = time.monotonic()
    cluster.kill(leader)
    deadline = killed + PATIENCE_S
    while not times or times[-1] < killed + 0.5 or time.monotonic() - killed < 3:
        assert time.monotonic() < deadline, "no acknowledgement after the kill"
        time.sleep(0.05)
    stop.set()
    writer.join()
    cluster.start(leader)
    wait_in_sync(cluster, topic)
    return max(after - before for before, after in pairwise(times))


def catch_up(cluster: Side, topic: str, megabytes: int) -> float:
    """Megabytes a second that a broker takes in which was away."""
    create(cluster, topic, 1)
    leader = wait_in_sync(cluster, topic)
    away = next(node for node in (1, 2, 3) if node != leader)
    cluster.kill(away)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.size": 1_000_000,
         "linger.ms": 20, "queue.buffering.max.kbytes": 200_000}
    )  # fmt: skip
    for _ in range(megabytes * 10):
        while True:
            try:
                producer.produce(topic, b"x" * 100_000)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE_S) == 0
    cluster.start(away)
    began = time.monotonic()
    wait_in_sync(cluster, topic)
    return megabytes / (time.monotonic() - began)


def measure(name: str, options: argparse.Namespace, into: Measured) -> None:
    folder = Path(tempfile.mkdtemp(prefix="headrace-cluster-"))
    try:
        into.busy_cores.append(busy_cores())
        with side(name, folder) as cluster:
            create(cluster, "idle", 1)
            time.sleep(3)
            into.memory_mb.append(sum(resident_mb(pid) for pid in cluster.pids()))
            into.records_per_s.append(throughput(cluster, "speed", options.records))
            into.gap_s.append(gap(cluster, "gap"))
            into.catch_up_mb_per_s.append(catch_up(cluster, "away", options.megabytes))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--side", action="append", choices=[KAFKA, ZOOKEEPER, SQLITE])
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    names = options.side or [KAFKA, ZOOKEEPER, SQLITE]
    found = {name: Measured() for name in names}
    console = Console()
    for number in range(1, options.rounds + 1):
        for name in names:
            console.print(f"round {number} of {options.rounds}: {name}")
            measure(name, options, found[name])
    show(console, found)
    if options.write:
        document = {name: asdict(measured) for name, measured in found.items()}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")


def markdown() -> list[str]:
    """The section of RESULTS.md; nothing while nothing was measured."""
    if not RESULTS.exists():
        return []
    found = {name: Measured(**values) for name, values in json.loads(RESULTS.read_text()).items()}
    kafka = found[KAFKA]
    busy = max(max(one.busy_cores) for one in found.values())
    lines = [
        "",
        "## Three brokers beside three of Apache Kafka",
        "",
        "Replication factor 3, `min.insync.replicas=2`, all on the same two cores, one cluster at",
        "a time, in turns; medians with the range. Other work kept at most",
        f"{busy:.2f} cores busy. Repeat with `python -m benchmarks.cluster --write`.",
        "",
        "| work | Apache Kafka | Headrace, ZooKeeper | ratio | Headrace, SQLite | ratio | bar |",
        "|---|---|---|---|---|---|---|",
    ]
    for title, bar, take in ROWS:
        cells = [title, _spread(take(kafka))]
        for name in (ZOOKEEPER, SQLITE):
            ratio = statistics.median(take(found[name])) / statistics.median(take(kafka))
            cells += [_spread(take(found[name])), f"**{ratio:.2f}**"]
        lines.append(f"| {' | '.join([*cells, bar])} |")
    return lines


def show(console: Console, found: dict[str, Measured]) -> None:
    table = Table("", *found)
    for title, _, take in (*ROWS, ("cores busy before", "", lambda one: one.busy_cores)):
        table.add_row(title, *(_spread(take(one)) for one in found.values()))
    console.print(table)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


if __name__ == "__main__":
    main()
