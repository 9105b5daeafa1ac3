"""Brokers that replicate and coordinate over TLS with certificates on both sides."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.security.authority import Authority, write
from tests.security.tls_broker import Served
from tests.support.cluster import QUICK
from tests.support.stores import eventually

PATIENCE_S = 60


class Brokers:
    """Brokers with one store, each started with the settings of the moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority()
        own = authority.issue("CN=broker")
        self.ca = write(folder / "ca.pem", authority.pem)
        self.common = {
            **QUICK,
            "headrace.metadata": f"sqlite:{folder}",
            "ssl.keystore.location": write(folder / "b.pem", own.key_pem(), own.certificate_pem),
            "ssl.truststore.location": self.ca,
            "ssl.client.auth": "required",
            "offsets.topic.replication.factor": "2",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.min.isr": "1",
        }
        self.running: dict[int, Served] = {}

    def start(self, number: int, **settings: str) -> None:
        if number in self.running:
            self.running.pop(number).stop()
        given = {name.replace("_", "."): text for name, text in settings.items()}
        folder = self.folder / str(number)
        self.running[number] = Served(folder, {**self.common, **given}, number)

    def client(self, place: int = 0) -> dict[str, str]:
        """The configuration of clients of a listener of all brokers, by its place."""
        addresses = [broker.addresses[place] for broker in self.running.values()]
        return {
            "bootstrap.servers": ",".join(addresses),
            "security.protocol": "SSL",
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": str(self.folder / "b.pem"),
            "ssl.key.location": str(self.folder / "b.pem"),
        }

    def in_sync(self, config: dict[str, str], topic: str, count: int) -> bool:
        found = AdminClient(config).list_topics(topic, timeout=PATIENCE_S).topics[topic]
        parts = found.partitions.values()
        return bool(parts) and all(len(one.isrs) == count for one in parts)


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    cluster = Brokers(tmp_path)
    yield cluster
    for one in cluster.running.values():
        one.stop()


def send(config: dict[str, str], topic: str, count: int) -> None:
    producer = Producer({**config, "acks": "all", "enable.idempotence": True})
    failed: list[object] = []
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, on_delivery=lambda e, _: failed.append(e) if e else None
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def test_a_cluster_without_a_plain_listener_replicates_and_coordinates(brokers: Brokers) -> None:
    for number in (1, 2):
        brokers.start(number, listeners="SSL://localhost:0")
    config = brokers.client()
    admin = AdminClient(config)
    eventually(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == 2, "both are there")
    wanted = NewTopic("t", 4, 2, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])["t"].result(PATIENCE_S)
    send(config, "t", 100)
    # Markers of a transaction go to the brokers that lead its partitions.
    producer = Producer({**config, "transactional.id": "x"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in range(4):
        producer.produce("t", b"together", partition=partition)
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer(
        {
            **config,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["t"])
    read: list[bytes] = []

    def all_read() -> bool:
        read.extend(one.value() or b"" for one in consumer.consume(50, 1) if not one.error())
        return len(read) >= 104

    eventually(all_read, "everything is read")
    consumer.close()
    assert sorted(read) == sorted([*(b"%d" % n for n in range(100)), *[b"together"] * 4])


def test_brokers_change_to_a_listener_with_tls_one_after_the_other(brokers: Brokers) -> None:
    both = "PLAINTEXT://localhost:0,SSL://localhost:0"
    for number in (1, 2):
        brokers.start(number, listeners=both)
    admin = AdminClient(brokers.client(1))
    eventually(lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == 2, "both are there")
    wanted = NewTopic("t", 2, 2, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])["t"].result(PATIENCE_S)
    steps = [{"listeners": both, "inter_broker_listener_name": "SSL"}] * 2
    steps += [{"listeners": "SSL://localhost:0"}] * 2
    for turn, step in enumerate(steps):
        brokers.start(turn % 2 + 1, **step)
        config = brokers.client(-1)
        eventually(lambda c=config: brokers.in_sync(c, "t", 2), "both replicas are in sync")  # type: ignore[misc]
        send(config, "t", 10)


def test_several_brokers_of_one_command_meet_over_tls(brokers: Brokers) -> None:
    del brokers.common["headrace.metadata"]
    words = [sys.executable, "-m", "headrace.cli", "serve", "--brokers", "2"]
    words += ["--data-dir", str(brokers.folder / "data")]
    for name, text in {**brokers.common, "listeners": "SSL://localhost:0"}.items():
        words += ["--set", f"{name}={text}"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " 2 brokers at localhost:" in line
        config = {
            **brokers.client(),
            "bootstrap.servers": line.split(" ready on ")[1].split(",")[0],
        }
        assert len(AdminClient(config).list_topics(timeout=PATIENCE_S).brokers) == 2
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
