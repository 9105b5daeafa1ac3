"""The common part of the four examples: orders in a topic, a worker that dies, the final count.

The examples themselves are the worker functions, which determine the guarantee.
"""

import argparse
import multiprocessing
import os
import sqlite3
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

ORDERS = 20
BATCH = 5
CRASH_AT = 12


@dataclass(frozen=True)
class Shop:
    """One run: the topic of the orders, the folder of the results, and when the worker dies."""

    bootstrap: str
    topic: str
    folder: Path
    crash_at: int | None

    def consumer(self) -> Consumer:
        """A member of a group that commits only when the worker calls it."""
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.topic,
                # With an instance id, the restarted worker takes the place of the one
                # that died immediately; without it would wait for the session timeout.
                "group.instance.id": "worker",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )

    def batches(self, consumer: Consumer) -> Iterator[list[Message]]:
        """Orders, five at a time, up to the last one."""
        while True:
            batch = consumer.consume(BATCH, timeout=60)
            if not batch:
                raise TimeoutError(f"no orders received from {self.bootstrap}")
            for message in batch:
                if message.error():
                    raise RuntimeError(message.error().str())
            yield batch
            if order_id(batch[-1]) == ORDERS - 1:
                return

    def receive(self, message: Message) -> int:
        """Record that an order reached the worker, and die if it is the fatal one."""
        order = order_id(message)
        self.append("delivered.txt", order)
        if order == self.crash_at:
            os._exit(1)
        return order

    def append(self, name: str, order: int) -> None:
        """Add a line to a file, which survives the worker's death."""
        with (self.folder / name).open("a") as file:
            file.write(f"{order}\n")

    def lines(self, name: str) -> list[int]:
        return [int(line) for line in (self.folder / name).read_text().split()]

    def database(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "shop.db")


def order_id(message: Message) -> int:
    return int(message.key())


def run(
    title: str, worker: Callable[[Shop], None], processed: Callable[[Shop], Iterable[int]]
) -> None:
    """Produce orders to a new topic, run the worker until it dies and again, count the results."""
    arguments = argparse.ArgumentParser(description=title)
    arguments.add_argument("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    bootstrap = arguments.parse_args().bootstrap
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result()
    _produce(bootstrap, topic)
    with tempfile.TemporaryDirectory() as folder:
        print(title)
        for crash_at in (CRASH_AT, None):
            shop = Shop(bootstrap, topic, Path(folder), crash_at)
            # A separate process, so that a crash loses everything in memory.
            process = multiprocessing.get_context("spawn").Process(target=worker, args=(shop,))
            process.start()
            process.join()
            expected = 0 if crash_at is None else 1
            if process.exitcode != expected:
                raise SystemExit(f"the worker ended with {process.exitcode}, not {expected}")
            print("worker finished" if crash_at is None else f"worker died at order {crash_at}")
        _count(shop.lines("delivered.txt"), list(processed(shop)))
    admin.delete_topics([topic])[topic].result()


def _produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for order in range(ORDERS):
        producer.produce(topic, key=str(order), value=f"order {order}")
    if producer.flush(30):
        raise SystemExit(f"the orders did not reach {bootstrap}")


def _count(delivered: list[int], processed: list[int]) -> None:
    times = Counter(processed)
    row = {
        "produced": ORDERS,
        "delivered": len(delivered),
        "processed": len(processed),
        "lost": sum(not times[order] for order in range(ORDERS)),
        "doubled": sum(count > 1 for count in times.values()),
    }
    print("  ".join(row))
    print("  ".join(str(count).rjust(len(name)) for name, count in row.items()))
