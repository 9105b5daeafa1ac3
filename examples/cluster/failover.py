"""Three brokers and a ZooKeeper on this machine; leaders are killed while clients run.

A producer writes numbers with acks=all, a consumer reads them, and every few seconds the leader of
the topic is killed (kill -9) and started again. At the end every acknowledged record has to be
there, once and in order. `make cluster-up` runs it.
"""

import argparse
import itertools
import json
import random
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from brokers import Brokers
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.live import Live
from rich.table import Table
from zookeeper import ZooKeeper

TOPIC = "numbers"
PATIENCE_S = 60
PER_S = 500


@dataclass
class Summary:
    """The result of a run."""

    seconds: float = 0.0
    kills: int = 0
    acknowledged: int = 0
    read: int = 0
    lost: int = 0
    doubled: int = 0
    longest_gap_s: float = 0.0
    failed_sends: int = 0


class Clients:
    """A producer and a consumer, each in a thread."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self.acknowledged: list[tuple[float, int]] = []
        self.read: list[int] = []
        self.failed = 0
        self._writer = threading.Thread(target=self._write)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._writer.start()

    def finish(self) -> None:
        """Stop writing; the reader ends when it has read all acknowledged records."""
        self._stop.set()
        self._writer.join()
        self._reader.join()

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        began = time.monotonic()
        for number in itertools.count():
            if self._stop.is_set():
                break
            producer.produce(TOPIC, b"%d" % number, on_delivery=self._delivered)
            producer.poll(0)
            time.sleep(max(0.0, began + number / PER_S - time.monotonic()))
        producer.flush(PATIENCE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append((time.monotonic(), int(message.value() or b"-1")))
        else:
            self.failed += 1

    def _read(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC])
        quiet_since = time.monotonic()
        while True:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.read.append(int(message.value() or b"-1"))
                quiet_since = time.monotonic()
                continue
            done = len(set(self.read)) >= len(self.acknowledged)
            patience_s = 1 if done else PATIENCE_S
            if not self._writer.is_alive() and time.monotonic() - quiet_since > patience_s:
                break
        consumer.close()


def leader_of(bootstrap: str) -> tuple[int, list[int]]:
    """The leader of the topic and its in-sync replicas; -1 while the leader is unknown."""
    try:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        parts = admin.list_topics(TOPIC, timeout=2).topics[TOPIC].partitions
        return parts[0].leader, sorted(parts[0].isrs)
    except Exception:  # no broker may respond during an election; the next call will
        return -1, []


def screen(brokers: Brokers, clients: Clients, summary: Summary, said: str) -> Table:
    leader, in_sync = leader_of(brokers.bootstrap)
    table = Table(title="three brokers, one topic, replication factor 3", caption=said)
    for title in ("broker", "process", "role"):
        table.add_column(title)
    for number in brokers.numbers:
        up = "[green]up[/]" if brokers.is_up(number) else "[red]killed[/]"
        role = "leader" if number == leader else "in sync" if number in in_sync else "catching up"
        table.add_row(str(number), up, role if brokers.is_up(number) else "-")
    table.add_section()
    table.add_row("acknowledged", str(len(clients.acknowledged)), f"{clients.failed} failed")
    table.add_row("read", str(len(clients.read)), f"{summary.kills} kills so far")
    return table


def run(brokers: Brokers, clients: Clients, seconds: float, console: Console) -> Summary:
    summary = Summary()
    began = time.monotonic()
    next_kill = began + 3
    killed: int | None = None
    said = "waiting for the first kill"
    with Live(console=console, refresh_per_second=4) as live:
        while time.monotonic() - began < seconds:
            now = time.monotonic()
            if now >= next_kill and killed is None:
                leader, in_sync = leader_of(brokers.bootstrap)
                if leader > 0 and len(in_sync) == len(brokers.numbers):
                    brokers.kill(leader)
                    summary.kills += 1
                    killed, next_kill = leader, now + random.uniform(3, 5)
                    said = f"kill -9 of broker {leader}, the leader"
            elif now >= next_kill and killed is not None:
                brokers.start(killed)
                said = f"broker {killed} is back and has to catch up"
                killed, next_kill = None, now + random.uniform(2, 4)
            live.update(screen(brokers, clients, summary, said))
            time.sleep(0.1)
    if killed is not None:
        brokers.start(killed)
    clients.finish()
    times = [at for at, _ in clients.acknowledged]
    numbers = {number for _, number in clients.acknowledged}
    summary.seconds = round(time.monotonic() - began, 1)
    summary.acknowledged = len(numbers)
    summary.read = len(clients.read)
    summary.lost = len(numbers - set(clients.read))
    summary.doubled = len(clients.read) - len(set(clients.read))
    summary.failed_sends = clients.failed
    summary.longest_gap_s = round(max(b - a for a, b in itertools.pairwise(times)), 2)
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long the clients run")
    parser.add_argument("--port", type=int, default=19092, help="of the first broker")
    parser.add_argument("--jars", type=Path, required=True, help="ZooKeeper's jars")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    folder = Path(tempfile.mkdtemp(prefix="headrace-cluster-"))
    console.print(f"data and logs are in {folder}")
    zookeeper = ZooKeeper(folder / "zookeeper", options.jars)
    brokers = Brokers(folder, zookeeper.address, options.port)
    try:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        new = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([new])[TOPIC].result(PATIENCE_S)
        clients = Clients(brokers.bootstrap)
        summary = run(brokers, clients, options.seconds, console)
    finally:
        brokers.stop()
        zookeeper.stop()
    if options.json:
        print(json.dumps(asdict(summary)))
    else:
        console.print(
            f"{summary.kills} leaders were killed. {summary.acknowledged} records were "
            f"acknowledged, {summary.lost} of them lost; the consumer read {summary.read}, "
            f"{summary.doubled} of them again after a rebalance. "
            f"Longest pause between acknowledgements: {summary.longest_gap_s} s."
        )
    return 1 if summary.lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
