"""python -m benchmarks.second_broker: `serve --brokers 2` beside one process and Apache Kafka.

One broker of Headrace is one event loop on one core; Apache Kafka uses all cores. What a second
process brings is measured with the raw requests of the main comparison, spread over four
partitions, each sent to the broker that leads it: a blaster for each broker, all at once.
"""

import argparse
import json
import shutil
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks import frames
from benchmarks.blaster import WORK, Load, Outcome, RawConnection, blast, build, fill
from benchmarks.processes import busy_cores
from benchmarks.rows import FULL, warm_jvm
from benchmarks.sides import TOPIC_SETTINGS, new_broker, warm_memory
from tests.support.headrace_broker import HEADRACE

RESULTS = Path(__file__).with_name("second_broker.json")
KAFKA, ONE, TWO = "kafka", "one", "two"
NAMES = (KAFKA, ONE, TWO)
PARTITIONS = 4
PATIENCE_S = 60

Leaders = dict[int, int]
"""The port of each partition's leader."""


@dataclass(frozen=True, slots=True)
class Row:
    """The same work on all three."""

    title: str
    unit: str
    measure: Callable[[Leaders, str, float], float]


@dataclass
class Measured:
    """Rates by title of the row, a value for each round."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    busy_cores: list[float] = field(default_factory=list)


@contextmanager
def two_brokers(folder: Path) -> Iterator[str]:
    """Their bootstrap address."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [str(HEADRACE), "serve", "--brokers", "2", "--data-dir", str(folder)]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("Headrace is ready on ").split(",")[0]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def topic_on(bootstrap: str, name: str) -> Iterator[Leaders]:
    """A topic that every leader serves; deleted at the end."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=TOPIC_SETTINGS)])[name].result(60)
    deadline = time.monotonic() + PATIENCE_S
    while not (leaders := _leaders(admin, name)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} is not served by its leaders")
        time.sleep(0.05)
    try:
        yield leaders
    finally:
        admin.delete_topics([name])[name].result(60)
        time.sleep(1)  # its files go, and their memory with them


def _leaders(admin: AdminClient, name: str) -> Leaders:
    """Empty until all are there and serve."""
    found = admin.list_topics(name, timeout=10)
    topic = found.topics[name]
    ports = {broker.id: broker.port for broker in found.brokers.values()}
    if topic.error is not None or any(p.leader not in ports for p in topic.partitions.values()):
        return {}
    leaders = {number: ports[part.leader] for number, part in topic.partitions.items()}
    for number, port in leaders.items():
        connection = RawConnection(port)
        try:
            answer = connection.ask(frames.fetch(name, number, 0, 1, max_wait_ms=0))
        finally:
            connection.close()
        if struct.unpack_from(">h", answer, frames.fetch_error_at(name)) != (0,):
            return {}
    return leaders


def blast_all(leaders: Leaders, load: Callable[[list[int], int], Load], seconds: float,
              connections: int) -> list[Outcome]:  # fmt: skip
    """A blaster for each broker, with its share of the connections; all at the same time."""
    build()
    shares: dict[int, list[int]] = {}
    for partition, port in leaders.items():
        shares.setdefault(port, []).append(partition)
    with ThreadPoolExecutor(len(shares)) as pool:
        return list(pool.map(
            lambda share: blast(
                share[0], load(share[1], connections // len(shares)), seconds, 0.3
            ),
            shares.items(),
        ))  # fmt: skip


def produces(size: int | None, connections: int) -> Callable[[Leaders, str, float], float]:
    """Requests a second of 100 bytes without a `size`, else megabytes a second."""
    batch = frames.batch(1, 100) if size is None else frames.batch_of_size(size)

    def measure(leaders: Leaders, topic: str, seconds: float) -> float:
        def load(partitions: list[int], share: int) -> Load:
            return Load(
                frames=tuple(frames.produce(topic, number, batch) for number in partitions),
                connections=share,
                error_at=frames.produce_error_at(topic),
            )

        done = blast_all(leaders, load, seconds, connections)
        return sum(one.requests_per_s if size is None else one.sent_mb_per_s for one in done)

    return measure


def fetches(size: int, connections: int, log_mb: int) -> Callable[[Leaders, str, float], float]:
    """Megabytes a second of fetches that answer one batch of `size` bytes each."""
    batch = frames.batch_of_size(size)
    records = (size - frames.BATCH_OVERHEAD_BYTES) // (1024 + 9)
    count = log_mb * 1_000_000 // len(batch) // PARTITIONS

    def measure(leaders: Leaders, topic: str, seconds: float) -> float:
        for number, port in leaders.items():
            produce = frames.produce(topic, number, batch)
            fill(port, produce, count, frames.produce_error_at(topic))

        def load(partitions: list[int], share: int) -> Load:
            asks = tuple(
                frames.fetch(topic, number, place * records, len(batch))
                for place in range(count)
                for number in partitions
            )
            return Load(
                frames=asks,
                connections=share,
                error_at=frames.fetch_error_at(topic),
                min_answer_bytes=len(batch),
            )

        done = blast_all(leaders, load, seconds, connections)
        return sum(one.received_mb_per_s for one in done)

    return measure


ROWS = (
    Row("Produce 100 B, 10 connections", "req/s", produces(None, 10)),
    Row("Produce 100 B, 100 connections", "req/s", produces(None, 100)),
    Row("Produce 16 KB batches", "MB/s", produces(16_384, 10)),
    Row("Produce 64 KB batches", "MB/s", produces(65_536, 10)),
    Row("Produce 1 MB batches", "MB/s", produces(1_048_576, 4)),
    Row("Fetch 16 KB", "MB/s", fetches(16_384, 10, 64)),
    Row("Fetch 1 MB", "MB/s", fetches(1_048_576, 4, 256)),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.second_broker", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-rounds", type=int, default=3, help="rounds before that, not kept")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    console = Console()
    found = {name: Measured() for name in NAMES}
    warm_memory(4000)
    with ExitStack() as stack:
        addresses = {}
        for name, kind in ((KAFKA, "kafka"), (ONE, "headrace")):
            broker = new_broker(kind, "second-broker")  # type: ignore[arg-type]
            stack.callback(shutil.rmtree, broker.folder, ignore_errors=True)
            addresses[name] = broker.bootstrap
            broker.start()
            stack.callback(broker.stop)
            if name == KAFKA:
                warm_jvm(broker, FULL.jvm_warm_s)
        addresses[TWO] = stack.enter_context(two_brokers(WORK / "second-broker-two"))
        for row in ROWS:
            for number in range(-options.warm_rounds, options.rounds):
                busy = busy_cores(1.0)
                # Whoever comes first finds memory that the kernel has given away meanwhile.
                for name in NAMES[number % 3 :] + NAMES[: number % 3]:
                    topic = f"second-broker-{time.monotonic_ns()}"
                    with topic_on(addresses[name], topic) as leaders:
                        rate = row.measure(leaders, topic, options.seconds)
                    if number >= 0:
                        found[name].rates.setdefault(row.title, []).append(rate)
                        found[name].busy_cores.append(busy)
            console.print(line_of(row, found))
    show(console, found)
    if options.write:
        document = {name: asdict(measured) for name, measured in found.items()}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")


def _ratio(found: dict[str, Measured], row: Row, name: str, to: str) -> float:
    """The median of the ratios of neighbouring rounds."""
    pairs = zip(found[name].rates[row.title], found[to].rates[row.title], strict=True)
    return statistics.median(one / other for one, other in pairs)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def _cells(row: Row, found: dict[str, Measured]) -> list[str]:
    return [
        row.title,
        row.unit,
        *(_spread(found[name].rates[row.title]) for name in NAMES),
        f"{_ratio(found, row, ONE, KAFKA):.2f}",
        f"{_ratio(found, row, TWO, KAFKA):.2f}",
        f"{_ratio(found, row, TWO, ONE):.2f}",
    ]


_TITLES = (
    "work", "unit", "Apache Kafka", "one process", "`--brokers 2`", "one / Kafka", "two / Kafka",
    "two / one",
)  # fmt: skip


def line_of(row: Row, found: dict[str, Measured]) -> str:
    return ", ".join(_cells(row, found))


def show(console: Console, found: dict[str, Measured]) -> None:
    table = Table(*_TITLES)
    for row in ROWS:
        table.add_row(*_cells(row, found))
    console.print(table)


def markdown() -> list[str]:
    """The section of RESULTS.md; nothing while nothing was measured."""
    if not RESULTS.exists():
        return []
    found = {name: Measured(**values) for name, values in json.loads(RESULTS.read_text()).items()}
    busy = statistics.median(found[KAFKA].busy_cores)
    rounds = len(found[KAFKA].rates[ROWS[0].title])
    return [
        "",
        "## What a second process brings",
        "",
        "`headrace serve --brokers 2` beside one process and Apache Kafka, all three with the",
        "client on the same two cores, in turns, four partitions; medians with the range over",
        f"{rounds} rounds. Kafka is warmed by half a minute of load and a few rounds that do not",
        "count, less than above, which flatters us. Other work kept",
        f"{busy:.2f} cores busy. Repeat with `python -m benchmarks.second_broker --write`.",
        "",
        f"| {' | '.join(_TITLES)} |",
        "|---|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(_cells(row, found))} |" for row in ROWS),
    ]


if __name__ == "__main__":
    main()
