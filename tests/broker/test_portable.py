"""A broker without what only Linux has: the calls that macOS would use, forced on Linux."""

import os
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.broker.readiness import HANGUP, READ, WRITE, SelectorReadiness
from headrace.portable import PORTABLE
from tests.broker.test_supervisor import children, serving, wait_until_gone
from tests.security.authority import write
from tests.security.tls_broker import Served, TlsBroker
from tests.support.ports import free_port

PATIENCE_S = 60
VALUES = [bytes([number % 251]) * 200_000 for number in range(20)]


@pytest.fixture(autouse=True)
def _portable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTABLE, "1")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_descriptor_may_be_registered_without_events(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    found = SelectorReadiness()
    found.register(ours.fileno(), READ)
    theirs.send(b"x")
    assert found.poll(-1, 10) == [(ours.fileno(), READ)]
    found.modify(ours.fileno(), HANGUP)
    assert found.poll(0, 10) == []
    found.modify(ours.fileno(), READ | WRITE)
    assert found.poll(PATIENCE_S, 10) == [(ours.fileno(), READ | WRITE)]
    found.modify(ours.fileno(), 0)
    found.unregister(ours.fileno())
    found.register(ours.fileno(), WRITE)
    assert found.poll(PATIENCE_S, 10) == [(ours.fileno(), WRITE)]
    found.close()


def round_trip(config: dict[str, str]) -> None:
    """Produce large records and read them back."""
    producer = Producer({**config, "message.max.bytes": "1000000", "linger.ms": "0"})
    for value in VALUES:
        producer.produce("t", value)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    read: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(read) < len(VALUES) and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value())
    consumer.close()
    assert read == VALUES


def test_clients_with_and_without_tls_are_served(tmp_path: Path) -> None:
    tls = TlsBroker(tmp_path)
    port = free_port()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://localhost:0",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "headrace.metrics.address": f"127.0.0.1:{port}",
    }
    broker = Served(tmp_path / "broker", settings)
    try:
        plain, encrypted = broker.addresses[:2]
        round_trip({"bootstrap.servers": plain})
        ca = write(tmp_path / "again.pem", tls.authority.pem)
        producer = Producer(
            {"bootstrap.servers": encrypted, "security.protocol": "SSL", "ssl.ca.location": ca}
        )
        producer.produce("encrypted", b"x" * 500_000)
        assert producer.flush(PATIENCE_S) == 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as page:
            text = page.read().decode()
        # What the system does not tell is left out, and not 0.
        assert "\nprocess_resident_memory_bytes" not in text
        assert "\nprocess_open_fds" in text
        links = Path(f"/proc/{broker.process.pid}/fd").iterdir()
        assert not any("eventpoll" in os.readlink(link) for link in links), "epoll is not used"
    finally:
        broker.stop()


@pytest.mark.parametrize("portable", ["0", "1"])
def test_brokers_end_with_their_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portable: str
) -> None:
    monkeypatch.setenv(PORTABLE, portable)
    with serving(tmp_path, 2) as (process, _):
        pids = children(process)
        assert len(pids) == 2
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
        wait_until_gone(pids)
    assert (tmp_path / ".kafka_cleanshutdown").exists(), "they stop cleanly"
