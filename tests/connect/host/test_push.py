"""Push sources as queries: none lost although the driver is killed, and what becomes of spools."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish

from headrace.connect.hosting import RunState
from tests.connect.host.conftest import HostUnderTest
from tests.connect.host.test_spark_host import driver_pid
from tests.support.message_brokers import MosquittoServer, mosquitto_program

pytestmark = pytest.mark.spark

MESSAGES = 2000
BYTES = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[MosquittoServer]:
    if mosquitto_program() is None:
        pytest.skip("needs Mosquitto")
    with MosquittoServer() as running:
        yield running


def payloads(host: HostUnderTest, topic: str) -> list[bytes]:
    return [value for _, value, _ in host.records(topic) if value is not None]


def kill_driver(host: HostUnderTest, name: str) -> None:
    os.kill(driver_pid(), signal.SIGKILL)
    host.wait_for(name, RunState.RESTARTING)


def send_slowly(port: int, topic: str) -> None:
    """All messages within some seconds, so that the driver is killed in the middle."""
    for first in range(0, MESSAGES, 100):
        messages: list[Any] = [
            {"topic": topic, "payload": str(n), "qos": 1} for n in range(first, first + 100)
        ]
        publish.multiple(messages, "127.0.0.1", port)
        time.sleep(0.2)


def test_mqtt_messages_arrive_although_the_driver_is_killed(
    host: HostUnderTest, mosquitto: MosquittoServer
) -> None:
    name, topic = "from-mqtt", "from-mqtt"
    host.create(topic, 2)
    config = {
        **BYTES,
        "connector.class": "io.confluent.connect.mqtt.MqttSourceConnector",
        "mqtt.server.uri": mosquitto.address,
        "mqtt.topics": "sensors/#",
        "kafka.topic": topic,
    }
    host.start(name, config)
    try:
        publish.single("sensors/first", "first", 1, True, "127.0.0.1", mosquitto.port)
        host.wait(lambda: payloads(host, topic), bool)
        sender = threading.Thread(target=send_slowly, args=(mosquitto.port, "sensors/n"))
        sender.start()
        host.wait(lambda: len(payloads(host, topic)), lambda found: found > 100)
        kill_driver(host, name)
        sender.join()
        host.wait(lambda: len(set(payloads(host, topic))), lambda found: found > MESSAGES)
        found = [value for value in payloads(host, topic) if value != b"first"]
        assert set(found) == {str(n).encode() for n in range(MESSAGES)}
        # Some may be there twice: those of the epoch whose acknowledgement was cut off.
        assert len(found) < 2 * MESSAGES
        key, _, headers = host.records(topic)[0]
        assert (key or b"").startswith(b"sensors/")
        assert headers["mqtt.topic"] == key
        spool = host.folder / "checkpoints" / name / "spool"
        host.stop(name)
        assert spool.exists()
        host.call(host.host.delete(name))
        assert not spool.parent.exists()
        assert Path(host.folder / "checkpoints").exists()
    finally:
        host.stop(name)
