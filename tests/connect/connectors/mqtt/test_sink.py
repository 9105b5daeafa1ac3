"""The MQTT sink against a Mosquitto server."""

import contextlib
import queue
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from headrace.connect.connectors.mqtt.sink import MqttSink
from headrace.connect.plugin import OptionError, RecordError, SinkTask
from tests.support.databases import killed
from tests.support.message_brokers import MosquittoServer


@pytest.fixture
def config(mosquitto_server: MosquittoServer) -> dict[str, str]:
    name = f"c{uuid.uuid4().hex[:8]}"
    return {
        "name": name,
        "mqtt.server.uri": mosquitto_server.address,
        "mqtt.topic": f"{name}/${{topic}}/${{key}}",
        "mqtt.connect.timeout.seconds": "20",
    }


def batch(*values: Any, key: str = "k") -> pa.RecordBatch:
    rows = [{"topic": "orders", "key": key, "value": value} for value in values]
    return pa.RecordBatch.from_pylist(rows)


@contextlib.contextmanager
def opened(config: dict[str, str]) -> Iterator[MqttSink]:
    made = MqttSink(config)
    made.open(SinkTask("out", 0, 0, 0))
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def subscriber(server: MosquittoServer, name: str) -> "Iterator[queue.Queue[Any]]":
    arrived: queue.Queue[Any] = queue.Queue()
    ready: queue.Queue[None] = queue.Queue()
    client = Client(CallbackAPIVersion.VERSION2)
    client.on_message = lambda _client, _data, message: arrived.put(message)
    client.on_subscribe = lambda *_: ready.put(None)
    client.connect("127.0.0.1", server.port)
    client.loop_start()
    client.subscribe(f"{name}/#", 1)
    ready.get(timeout=60)
    try:
        yield arrived
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_values_are_published_in_their_order(
    mosquitto_server: MosquittoServer, config: dict[str, str], qos: str
) -> None:
    with subscriber(mosquitto_server, config["name"]) as arrived:
        with opened({**config, "mqtt.qos": qos}) as made:
            made.write(batch(*(str(n) for n in range(200))))
            made.write(batch({"celsius": 21.5}, key="kitchen"))
        found = [arrived.get(timeout=60) for _ in range(201)]
    assert [each.payload.decode() for each in found[:-1]] == [str(n) for n in range(200)]
    assert found[0].topic == f"{config['name']}/orders/k"
    assert found[-1].topic == f"{config['name']}/orders/kitchen"
    assert found[-1].payload == b'{"celsius":21.5}'


def test_retained_messages_are_there_for_new_subscribers(
    mosquitto_server: MosquittoServer, config: dict[str, str]
) -> None:
    with opened({**config, "mqtt.retained.enabled": "true"}) as made:
        made.write(batch("old", "new"))
    with subscriber(mosquitto_server, config["name"]) as arrived:
        assert arrived.get(timeout=60).payload == b"new"


def test_a_record_without_a_valid_topic_is_refused(config: dict[str, str]) -> None:
    with opened(config) as made, pytest.raises(RecordError) as error:
        made.write(batch("a", key="#"))
    assert list(error.value.rows) == [0]


def test_a_killed_server_is_an_error_that_passes(
    mosquitto_server: MosquittoServer, config: dict[str, str]
) -> None:
    made = MqttSink(config)
    made.open(SinkTask("out", 0, 0, 0))
    with killed(mosquitto_server):
        with pytest.raises(ConnectionError, match="was lost"):
            made.write(batch("a"))
        made.abandon()
        with pytest.raises(ConnectionError, match="no MQTT server can be reached"):
            made.open(SinkTask("out", 0, 0, 0))
    with opened(config) as again:
        again.write(batch("a"))


def test_a_check_names_the_option_that_cannot_work(config: dict[str, str]) -> None:
    MqttSink(config).check()
    refused = {**config, "mqtt.username": "sensor", "mqtt.password": "wrong"}
    with pytest.raises(OptionError, match="refuses the connection") as error:
        MqttSink(refused).check()
    assert error.value.option == "mqtt.server.uri"
    with pytest.raises(OptionError, match="Unknown variable"):
        MqttSink({**config, "mqtt.topic": "${value}"})
