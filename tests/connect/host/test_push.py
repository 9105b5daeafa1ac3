"""Push sources as queries: none lost although the driver is killed, and what becomes of spools."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from paho.mqtt import publish

from headrace.connect.connectors.mqtt.source import MqttSource
from headrace.connect.hosting import RunState
from tests.connect.host.conftest import HostUnderTest
from tests.connect.host.fire import driver_pid
from tests.support.message_brokers import MosquittoServer, RabbitMqServer

pytestmark = pytest.mark.spark

MESSAGES = 2000
BYTES = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}


def payloads(host: HostUnderTest, topic: str) -> list[bytes]:
    return [value for _, value, _ in host.records(topic) if value is not None]


def batches() -> Iterator[list[str]]:
    """All messages within some seconds, so that the driver is killed in the middle."""
    for first in range(0, MESSAGES, 100):
        yield [str(n) for n in range(first, first + 100)]
        time.sleep(0.2)


def arrive_although_the_driver_is_killed(
    host: HostUnderTest, name: str, config: dict[str, str], send: Callable[[list[str]], None]
) -> None:
    """The connector's topic has its name."""
    host.create(name, 2)
    host.start(name, {**BYTES, **config, "kafka.topic": name})

    def send_all() -> None:
        for texts in batches():
            send(texts)

    sender = threading.Thread(target=send_all)
    sender.start()
    host.wait(lambda: len(payloads(host, name)), lambda found: found > 100)
    os.kill(driver_pid(), signal.SIGKILL)
    host.wait_for(name, RunState.RESTARTING)
    sender.join()
    host.wait(lambda: len(set(payloads(host, name))), lambda found: found >= MESSAGES)
    found = payloads(host, name)
    assert set(found) == {str(n).encode() for n in range(MESSAGES)}
    # Some may be there twice: those of an epoch that was not acknowledged yet.
    assert len(found) < 2 * MESSAGES


def test_mqtt_messages_arrive_although_the_driver_is_killed(
    host: HostUnderTest, mosquitto_server: MosquittoServer
) -> None:
    port = mosquitto_server.port

    def send(texts: list[str]) -> None:
        messages: list[Any] = [{"topic": "sensors/n", "payload": each, "qos": 1} for each in texts]
        publish.multiple(messages, "127.0.0.1", port)

    config = {
        "connector.class": "io.confluent.connect.mqtt.MqttSourceConnector",
        "name": "from-mqtt",
        "mqtt.server.uri": mosquitto_server.address,
        "mqtt.topics": "sensors/#",
    }
    # The server stores messages from the first subscription on.
    with contextlib.closing(MqttSource(config).receive()) as first:
        next(first)
    try:
        arrive_although_the_driver_is_killed(host, "from-mqtt", config, send)
        key, _, headers = host.records("from-mqtt")[0]
        assert key == headers["mqtt.topic"] == b"sensors/n"
        spool = host.folder / "checkpoints" / "from-mqtt" / "spool"
        host.stop("from-mqtt")
        assert spool.exists()
        host.call(host.host.delete("from-mqtt"))
        assert not spool.parent.exists()
    finally:
        host.stop("from-mqtt")


def test_rabbitmq_messages_arrive_although_the_driver_is_killed(
    host: HostUnderTest, rabbitmq_server: RabbitMqServer
) -> None:
    parameters = pika.ConnectionParameters("127.0.0.1", rabbitmq_server.port)

    def send(texts: list[str]) -> None:
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.queue_declare("killed", durable=True)
            for each in texts:
                channel.basic_publish("", "killed", each.encode())

    send([])
    config = {
        "connector.class": "io.confluent.connect.rabbitmq.RabbitMQSourceConnector",
        "rabbitmq.host": "127.0.0.1",
        "rabbitmq.port": str(rabbitmq_server.port),
        "rabbitmq.queue": "killed",
    }
    try:
        arrive_although_the_driver_is_killed(host, "from-rabbitmq", config, send)
        _, _, headers = host.records("from-rabbitmq")[0]
        assert headers["rabbitmq.routing.key"] == b"killed"
    finally:
        host.stop("from-rabbitmq")
