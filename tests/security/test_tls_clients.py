"""Real clients over TLS: without and with certificates of their own, with PEM files."""

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.errors import ClientError
from tests.security.tls_broker import TlsBroker
from tests.support.java import run_tool
from tests.support.raw import (
    RawClient,
    batch_of,
    create,
    end_offset,
    frame,
    produce,
    produce_error,
)
from tests.support.stores import eventually

PATIENCE_S = 60
VALUES = [b"%d" % number + b"x" * (number * 997 % 20_000) for number in range(200)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("secured"), message_max_bytes="9000000") as running:
        yield running


def librdkafka(broker: TlsBroker, *, mutual: bool) -> dict[str, str]:
    config = {"bootstrap.servers": broker.ssl, "security.protocol": "SSL"}
    config["ssl.ca.location"] = broker.ca
    if mutual:
        config["bootstrap.servers"] = broker.mutual
        config["ssl.certificate.location"] = broker.client_certificate
        config["ssl.key.location"] = broker.client_key
    return config


@pytest.mark.parametrize("mutual", [False, True], ids=["ssl", "mutual"])
def test_confluent_kafka(broker: TlsBroker, mutual: bool) -> None:
    topic = f"confluent-{mutual}"
    config = librdkafka(broker, mutual=mutual)
    producer = Producer(config)
    failed: list[object] = []
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda e, _: failed.append(e) if e else None)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read: list[bytes | None] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(read) < len(VALUES) and time.monotonic() < deadline:
        read += [one.value() for one in consumer.consume(100, 1) if one.error() is None]
    consumer.close()
    assert read == VALUES


@pytest.mark.parametrize("mutual", [False, True], ids=["ssl", "mutual"])
def test_kafka_python(broker: TlsBroker, mutual: bool) -> None:
    topic = f"kafka-python-{mutual}"
    config = {"security_protocol": "SSL", "ssl_cafile": broker.ca}
    config["bootstrap_servers"] = broker.mutual if mutual else broker.ssl
    if mutual:
        config["ssl_certfile"] = broker.client_certificate
        config["ssl_keyfile"] = broker.client_key
    producer = KafkaProducer(**config)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_S * 1000, **config
    )
    read = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert read == VALUES


@pytest.mark.parametrize("mutual", [False, True], ids=["ssl", "mutual"])
def test_aiokafka(broker: TlsBroker, mutual: bool) -> None:
    topic = f"aiokafka-{mutual}"
    context = ssl.create_default_context(cafile=broker.ca)
    if mutual:
        context.load_cert_chain(broker.client_store)
    address = broker.mutual if mutual else broker.ssl

    async def run() -> list[bytes | None]:
        async with AIOKafkaProducer(
            bootstrap_servers=address, security_protocol="SSL", ssl_context=context
        ) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value)
        async with AIOKafkaConsumer(
            bootstrap_servers=address,
            security_protocol="SSL",
            ssl_context=context,
            auto_offset_reset="earliest",
        ) as consumer:
            partition = TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(asyncio.wait_for(run(), PATIENCE_S)) == VALUES


@pytest.mark.java
def test_the_java_tools_with_pem_files(broker: TlsBroker, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={broker.ca}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={broker.client_store}\n"
    )
    topic = "java"
    where = ("--bootstrap-server", broker.mutual)
    lines = "".join(f"line {number}\n" for number in range(100))
    run_tool(
        "kafka-console-producer", *where, "--command-config", str(config), "--topic", topic,
        stdin=lines,
    )  # fmt: skip
    read = run_tool(
        "kafka-console-consumer", *where, "--command-config", str(config), "--topic", topic,
        "--from-beginning", "--max-messages", "100",
    )  # fmt: skip
    assert read.stdout == lines
    described = run_tool(
        "kafka-topics", *where, "--command-config", str(config), "--describe", "--topic", topic
    )
    assert "Leader: 1" in described.stdout


@pytest.mark.java
def test_a_java_client_without_tls_does_not_run_out_of_memory(
    broker: TlsBroker,
) -> None:
    result = run_tool(
        "kafka-broker-api-versions", "--bootstrap-server", broker.ssl,
        check=False, timeout_s=240,
    )  # fmt: skip
    assert result.code != 0
    assert "OutOfMemoryError" not in result.text
    assert "uses no TLS, but the listener SSL requires SSL" in broker.log.read_text()


@pytest.mark.parametrize("mutual", [False, True], ids=["ssl", "mutual"])
def test_our_own_client(broker: TlsBroker, mutual: bool) -> None:
    with Cluster(client_config(librdkafka(broker, mutual=mutual))) as cluster:
        assert list(cluster.brokers()) == [1]


def test_without_a_certificate_the_listener_for_certificates_is_closed(
    broker: TlsBroker,
) -> None:
    config = {**librdkafka(broker, mutual=False), "bootstrap.servers": broker.mutual}
    config |= {"default.api.timeout.ms": "2000", "request.timeout.ms": "1000"}
    with pytest.raises(ClientError), Cluster(client_config(config)) as cluster:
        cluster.brokers()


class RawTlsClient(RawClient):
    """A client made of bytes, over TLS."""

    def __init__(self, address: str, ca: str) -> None:
        super().__init__(address.replace("localhost", "127.0.0.1"))
        context = ssl.create_default_context(cafile=ca)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


def test_frames_of_every_size_arrive_whole_and_in_order(broker: TlsBroker) -> None:
    with RawTlsClient(broker.ssl, broker.ca) as raw:
        create(raw, "sizes")
        sizes = [1, 16_000, 16_384, 40_000, 262_144, 300_000, 1_000_000, 5, 4_000_000, 70_000, 9]
        frames = [produce("sizes", batch_of(b"v" * size)) for size in sizes]
        # All at once: the end of a large frame and the next ones are in one record.
        raw.send(b"".join(frames))
        offsets = [produce_error(raw.answer(), "sizes") for _ in frames]
        assert offsets == [(0, number) for number in range(len(sizes))]
        assert end_offset(raw, "sizes") == len(sizes)


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
def test_a_request_behind_the_end_of_another_in_one_record_is_answered(
    broker: TlsBroker, waits: bool
) -> None:
    topic = f"behind-{waits}"
    with RawTlsClient(broker.ssl, broker.ca) as raw:
        create(raw, topic)
        # A fetch of nothing waits for a second, and the connection is not read meanwhile.
        first = fetch(topic, 1000, wait_ms=1000) if waits else produce(topic, batch_of(b"v"))
        raw.send(first[:20])
        time.sleep(0.5)  # the broker has put these bytes aside
        raw.send(first[20:] + produce(topic, batch_of(b"w")))
        assert len(raw.answer()) > 0
        assert produce_error(raw.answer(), topic) == (0, 0 if waits else 1)


def test_a_client_that_reads_slowly_gets_every_byte(broker: TlsBroker) -> None:
    values = [bytes([number]) * 900_000 for number in range(20)]
    producer = Producer(librdkafka(broker, mutual=False))
    for value in values:
        producer.produce("slow", value)
        producer.flush(PATIENCE_S)
    with RawTlsClient(broker.ssl, broker.ca) as raw:
        request = fetch("slow", 30_000_000)
        raw.send(request * 2)
        time.sleep(1)  # both answers wait in the broker, and the sockets are full
        for _ in range(2):
            answer = slowly(raw)
            assert len(answer) > sum(map(len, values))
            assert all(value in answer for value in values)


def fetch(topic: str, most_bytes: int, wait_ms: int = 0) -> bytes:
    """A Fetch v4 from the beginning of partition 0."""
    name = topic.encode()
    body = struct.pack(">iiiib", -1, wait_ms, 1, most_bytes, 0)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, 0, most_bytes)
    head = struct.pack(">hhih", 1, 4, 7, 3) + b"raw"
    return struct.pack(">i", len(head) + len(body)) + head + body


def slowly(raw: RawClient) -> bytes:
    (size,) = struct.unpack(">i", raw.socket.recv(4))
    data = bytearray()
    while len(data) < size:
        piece = raw.socket.recv(min(16_000, size - len(data)))
        assert piece
        data += piece
    return bytes(data)


def test_tls_on_a_plain_listener_gets_a_log_line(broker: TlsBroker) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        RawTlsClient(broker.plain, broker.ca)
    eventually(
        lambda: "it uses TLS, but the listener PLAINTEXT does not" in broker.log.read_text(),
        "it is logged",
    )


@pytest.mark.parametrize("told", [False, True], ids=["found", "sighup"])
def test_a_new_certificate_is_used_without_a_restart(broker: TlsBroker, told: bool) -> None:
    with RawTlsClient(broker.ssl, broker.ca) as before:
        serial = broker.renew()
        if told:
            broker.hang_up()
        eventually(lambda: shown_serial(broker) == serial, "new handshakes show it")
        create(before, f"after-renewal-{told}")


def shown_serial(broker: TlsBroker) -> int:
    with RawTlsClient(broker.ssl, broker.ca) as raw:
        assert isinstance(raw.socket, ssl.SSLSocket)
        shown = raw.socket.getpeercert()
        assert shown is not None
        return int(str(shown["serialNumber"]), 16)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
def test_a_client_cannot_renegotiate_or_compress(broker: TlsBroker) -> None:
    command = ["openssl", "s_client", "-connect", broker.ssl, "-CAfile", broker.ca, "-tls1_2"]
    ran = subprocess.run(  # R is the command of s_client to renegotiate
        command, input="R\n", capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert "RENEGOTIATING" in ran.stdout + ran.stderr
    assert "no renegotiation" in ran.stdout + ran.stderr
    assert "Compression: NONE" in ran.stdout


@pytest.mark.parametrize("mutual", [False, True], ids=["ssl", "mutual"])
def test_a_client_resumes_its_session_again_and_again(broker: TlsBroker, mutual: bool) -> None:
    context = ssl.create_default_context(cafile=broker.ca)
    if mutual:
        context.load_cert_chain(broker.client_store)
    host, port = (broker.mutual if mutual else broker.ssl).rsplit(":", 1)
    session, resumed = None, []
    for _ in range(3):
        with (
            socket.create_connection((host, int(port)), PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=host, session=session) as connection,
        ):
            connection.sendall(frame(18, 0, b""))
            assert connection.recv(65536)  # and the ticket, which comes before
            session = connection.session
            resumed.append(connection.session_reused)
    assert resumed == [False, True, True]
