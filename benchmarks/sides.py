"""The two brokers that are compared, behind one shape; topics that leave nothing behind."""

import shutil
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import frames
from benchmarks.blaster import WORK, RawConnection
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker

SideName = Literal["kafka", "headrace"]
NAMES: tuple[SideName, SideName] = ("kafka", "headrace")

Broker = ApacheKafka | HeadraceBroker

KAFKA_HEAP_MB = 1024
# Deleted topics must give their pages back before the next measurement.
KAFKA_SETTINGS = {
    "log.initial.task.delay.ms": "500",
    "num.partitions": "1",
    # A thousand connections at once overflow the default of 50, and the kernel retries slowly.
    "socket.listen.backlog.size": "2048",
}
TOPIC_SETTINGS = {"file.delete.delay.ms": "100", "max.message.bytes": "2000000"}


def new_broker(name: SideName, label: str, settings: Mapping[str, str] | None = None) -> Broker:
    """A broker of this kind on an empty folder; not started."""
    folder = WORK / f"{name}-{label}"
    shutil.rmtree(folder, ignore_errors=True)
    if name == "kafka":
        given = {**KAFKA_SETTINGS, **(settings or {})}
        return ApacheKafka(folder, heap_mb=KAFKA_HEAP_MB, settings=given)
    return HeadraceBroker(folder, settings=settings)


@contextmanager
def fresh_broker(
    name: SideName, label: str, settings: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """A broker that has not been started yet; stopped and deleted at the end."""
    broker = new_broker(name, label, settings)
    try:
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(broker.folder, ignore_errors=True)


class Sides:
    """Both brokers for as long as the rows run; each starts when a row first asks for it."""

    def __init__(self) -> None:
        self._running: dict[SideName, Broker] = {}

    def __getitem__(self, name: SideName) -> Broker:
        if name not in self._running:
            broker = new_broker(name, "main")
            broker.start()
            self._running[name] = broker
        return self._running[name]

    def stop(self) -> None:
        for broker in self._running.values():
            broker.stop()
            shutil.rmtree(broker.folder, ignore_errors=True)
        self._running.clear()


@contextmanager
def temporary_topic(broker: Broker, partitions: int = 1) -> Iterator[str]:
    """A topic that is deleted at the end, its files included."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(name, partitions, 1, config=TOPIC_SETTINGS)
    admin.create_topics([new])[name].result(60)
    _wait_until(lambda: _serves(broker.port, name, partitions), 30)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(60)
        _wait_until(lambda: not _files_of(broker.data, name), 30)


def _serves(port: int, topic: str, partitions: int) -> bool:
    """Whether every partition can be read: Metadata may name a leader that is not ready yet."""
    connection = RawConnection(port)
    try:
        for partition in range(partitions):
            answer = connection.ask(frames.fetch(topic, partition, 0, 1, max_wait_ms=0))
            if struct.unpack_from(">h", answer, frames.fetch_error_at(topic)) != (0,):
                return False
    finally:
        connection.close()
    return True


def _files_of(data: Path, topic: str) -> list[Path]:
    found: list[Path] = []
    for folder in data.glob(f"{topic}*"):
        with suppress(FileNotFoundError):  # the broker removes it under our eyes
            found += folder.glob("*.log*")
    return found


def _wait_until(holds: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {timeout_s} s")
        time.sleep(0.05)


def warm_memory(megabytes: int) -> None:
    """Writes a file and deletes it, so that the page cache reuses touched memory."""
    WORK.mkdir(exist_ok=True)
    path = WORK / "warm"
    piece = bytes(1 << 20)
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(piece)
    path.unlink()
