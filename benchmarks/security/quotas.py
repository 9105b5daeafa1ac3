"""python -m benchmarks.security.quotas: what greedy clients get at a quota, beside Apache Kafka.

Each broker has the default windows (eleven of a second). A client that sends its next request as
soon as the last one is answered is measured over two times eleven seconds after the first eleven;
topics are created one after the other, each again after the throttle time that was answered. Both
brokers are measured at the same time: 200 KB a second keep neither busy.
"""

import argparse
import json
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks import frames, report
from benchmarks.blaster import RawConnection, fill
from benchmarks.security.brokers import cluster_of
from benchmarks.security.report import QUOTAS
from benchmarks.sides import NAMES, Broker, SideName, fresh_broker, temporary_topic
from headrace.client.quotas import alter_quotas
from headrace.errors import ErrorCode
from tests.support.raw import frame

BYTE_RATE = 200_000
WINDOWS_S = 11.0
PARTITIONS = 40
Rows: TypeAlias = list[tuple[str, str, str, str]]
_ANY_CLIENT: dict[str, str | None] = {"client-id": None}


@dataclass
class Greedy:
    """What a client got: bytes a second, and the longest throttle time that it was told."""

    rate: float
    throttle_ms: int


def produced(broker: Broker) -> Greedy:
    """Batches of 16 KB on one connection."""
    batch = frames.batch_of_size(16_384)
    with temporary_topic(broker) as topic, cluster_of(broker) as cluster:
        request = frames.produce(topic, 0, batch)
        alter_quotas(cluster, _ANY_CLIENT, {"producer_byte_rate": BYTE_RATE})
        # The throttle time is the last field before the byte of empty tagged fields.
        return _greedy(broker, lambda _: request, lambda _: len(request), -5)


def fetched(broker: Broker) -> Greedy:
    """Fetches of at most 100 KB on one connection."""
    batch = frames.batch_of_size(16_384)
    records = (16_384 - frames.BATCH_OVERHEAD_BYTES) // (1024 + 9)
    with temporary_topic(broker) as topic, cluster_of(broker) as cluster:
        count = int(BYTE_RATE * WINDOWS_S * 6) // len(batch)
        fill(broker.port, frames.produce(topic, 0, batch), count, frames.produce_error_at(topic))
        alter_quotas(cluster, _ANY_CLIENT, {"consumer_byte_rate": BYTE_RATE})
        offset = 0

        def following(answer: bytes) -> bytes:
            nonlocal offset
            offset += len(answer) // len(batch) * records
            return frames.fetch(topic, 0, offset, 100_000)

        return _greedy(broker, following, len, 4)


def created(broker: Broker) -> float:
    """The seconds for topics with one partition each, at one partition a second."""
    with cluster_of(broker) as cluster:
        alter_quotas(cluster, _ANY_CLIENT, {"controller_mutation_rate": 1.0})
        time.sleep(1)  # until the quota is in force
        connection = RawConnection(broker.port)
        began = time.monotonic()
        try:
            for number in range(PARTITIONS):
                while (throttle_ms := _create(connection, f"made-{number}")) is not None:
                    time.sleep(throttle_ms / 1000)
        finally:
            connection.close()
            alter_quotas(cluster, _ANY_CLIENT, {}, ["controller_mutation_rate"])
    return time.monotonic() - began


def _create(connection: RawConnection, topic: str) -> int | None:
    """Ask with CreateTopics v6; the throttle time if the quota refuses it."""
    name = topic.encode()
    body = b"\x02" + bytes([len(name) + 1]) + name + struct.pack(">ih", 1, 1) + b"\1\1\0"
    body += struct.pack(">i?", 30_000, False) + b"\0"
    answer = connection.ask(frame(19, 6, b"\0" + body))
    throttle_ms = struct.unpack_from(">i", answer, 5)[0]
    code = struct.unpack_from(">h", answer, 5 + 4 + 1 + 1 + len(name))[0]
    if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return int(throttle_ms)
    assert code == 0, f"{topic}: error {code}"
    return None


def _greedy(
    broker: Broker,
    request: Callable[[bytes], bytes],
    counted: Callable[[bytes], int],
    throttle_at: int,
) -> Greedy:
    """Ask for the next request, given the last answer, for three times all windows."""
    connection = RawConnection(broker.port)
    total = longest = 0
    began, answer = time.monotonic(), b""
    try:
        while (now := time.monotonic() - began) < 3 * WINDOWS_S:
            answer = connection.ask(request(answer))
            total += counted(answer) if now >= WINDOWS_S else 0
            longest = max(longest, struct.unpack_from(">i", answer, throttle_at % len(answer))[0])
    finally:
        connection.close()
    return Greedy(total / (2 * WINDOWS_S), longest)


def measure(name: SideName) -> tuple[Greedy, Greedy, float]:
    """All three on one broker."""
    results = []
    for work in (produced, fetched):
        with fresh_broker(name, f"quota-{work.__name__}") as broker:
            broker.start()
            results.append(work(broker))
    with fresh_broker(name, "quota-created") as broker:
        broker.start()
        return results[0], results[1], created(broker)


def rows(kafka: tuple[Greedy, Greedy, float], headrace: tuple[Greedy, Greedy, float]) -> Rows:
    """What is shown: title, unit, Kafka's figure and ours."""
    found: Rows = []
    for title, theirs, ours in (
        ("Produce at 200,000 B/s", kafka[0], headrace[0]),
        ("Fetch at 200,000 B/s", kafka[1], headrace[1]),
    ):
        found.append((title, "B/s", f"{theirs.rate:,.0f}", f"{ours.rate:,.0f}"))
        throttles = f"{theirs.throttle_ms:,}", f"{ours.throttle_ms:,}"
        found.append((f"{title}, longest throttle time", "ms", *throttles))
    title = f"{PARTITIONS} topics at 1 partition/s"
    found.append((title, "s", f"{kafka[2]:.1f}", f"{headrace[2]:.1f}"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security.quotas")
    parser.add_argument("--write", action="store_true", help="write quotas.json and RESULTS.md")
    options = parser.parse_args()
    with ThreadPoolExecutor(len(NAMES)) as pool:
        kafka, headrace = pool.map(measure, NAMES)
    shown = rows(kafka, headrace)
    table = Table("at a quota", "unit", "Apache Kafka", "Headrace")
    for row in shown:
        table.add_row(*row)
    Console().print(table)
    if options.write:
        QUOTAS.write_text(json.dumps(shown, indent=1) + "\n")
        report.write_markdown()


if __name__ == "__main__":
    main()
