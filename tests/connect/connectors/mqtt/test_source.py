"""The MQTT source against a Mosquitto server."""

import contextlib
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish
from paho.mqtt.client import MQTTv5

from headrace.connect.connectors.mqtt.source import MqttSource
from headrace.connect.plugin import OptionError, PermanentError
from tests.connect.push.reading import SpoolReader, reading
from tests.support.databases import killed
from tests.support.message_brokers import MosquittoServer


@pytest.fixture
def server(mosquitto_server: MosquittoServer) -> MosquittoServer:
    return mosquitto_server


@pytest.fixture
def config(server: MosquittoServer) -> dict[str, str]:
    name = f"c{uuid.uuid4().hex[:8]}"
    return {
        "name": name,
        "mqtt.server.uri": server.address,
        "mqtt.topics": f"{name}/#",
        "mqtt.connect.timeout.seconds": "20",
        "kafka.topic": "readings",
    }


def connection(
    config: dict[str, str], folder: Path
) -> contextlib.AbstractContextManager[SpoolReader]:
    return reading(MqttSource(config), folder)


def send(server: MosquittoServer, topic: str, *texts: str, qos: int = 1, **more: Any) -> None:
    messages: list[Any] = [{"topic": topic, "payload": text, "qos": qos, **more} for text in texts]
    publish.multiple(messages, "127.0.0.1", server.port, protocol=MQTTv5)


def subscribed(config: dict[str, str], folder: Path, server: MosquittoServer) -> None:
    """Let the server create the session, so that it keeps messages from now on."""
    with connection(config, folder) as first:
        name = config["name"]
        send(server, f"{name}/ready", "ready", retain=True)
        first.rows(1)
        first.commit()
    publish.single(f"{name}/ready", None, 1, True, "127.0.0.1", server.port)


def test_a_message_has_its_topic_as_key_and_its_payload_as_value(
    server: MosquittoServer, config: dict[str, str], tmp_path: Path
) -> None:
    subscribed(config, tmp_path / "first", server)
    name = config["name"]
    send(server, f"{name}/kitchen/temperature", "21.5")
    with connection(config, tmp_path / "second") as connected:
        rows = [row for row in connected.rows(1) if row["payload"]]
        while not rows:
            rows = connected.rows(1)
        ((stream),) = connected.source.streams()
    assert (stream.topic, stream.key, stream.value) == ("readings", ("topic",), "payload")
    (row,) = rows
    assert row["topic"] == f"{name}/kitchen/temperature"
    assert row["payload"] == b"21.5"
    headers = {each["key"]: each["value"] for each in row["headers"]}
    assert headers["mqtt.topic"] == row["topic"].encode()
    assert headers["mqtt.qos"] == b"1"
    assert headers["mqtt.retained"] == b"false"


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", ["1", "2"])
def test_messages_of_the_time_without_a_connection_are_received(
    server: MosquittoServer, config: dict[str, str], tmp_path: Path, qos: str, version: str
) -> None:
    config |= {"mqtt.qos": qos, "mqtt.protocol.version": version}
    subscribed(config, tmp_path, server)
    wanted = [str(n) for n in range(100)]
    send(server, f"{config['name']}/n", *wanted, qos=int(qos))
    with connection(config, tmp_path) as connected:
        found: list[str] = []
        while len(found) < 100:
            rows = connected.rows(1)
            connected.commit()
            found += [row["payload"].decode() for row in rows if row["topic"].endswith("/n")]
    assert found == wanted


def test_messages_that_are_not_acknowledged_come_again_and_are_not_stored_twice(
    server: MosquittoServer, config: dict[str, str], tmp_path: Path
) -> None:
    subscribed(config, tmp_path, server)
    wanted = [str(n) for n in range(50)]
    send(server, f"{config['name']}/n", *wanted)
    with connection(config, tmp_path) as before:
        before.wait_for(lambda: (before.source.latest(before.partition, None, 10**6) or {}) != {})
        start = before.reached
        before.rows(50)
    # Not committed. The server delivers all of them again; the spool has them.
    with connection(config, tmp_path) as after:
        send(server, f"{config['name']}/n", "last")
        found: list[str] = []
        after.reached = start
        while "last" not in found:
            found += [row["payload"].decode() for row in after.rows(1) if row["topic"][-2:] == "/n"]
        after.commit()
    assert found == [*wanted, "last"]
    # Committed. Nothing comes again, also without the spool.
    with connection(config, tmp_path / "another") as later:
        send(server, f"{config['name']}/n", "new")
        assert [row["payload"] for row in later.rows(1)] == [b"new"]


def test_more_messages_than_the_server_sends_at_once_are_received(
    server: MosquittoServer, config: dict[str, str], tmp_path: Path
) -> None:
    config |= {"mqtt.receive.maximum": "10"}
    subscribed(config, tmp_path, server)
    wanted = {str(n) for n in range(100)}
    send(server, f"{config['name']}/n", *wanted)
    with connection(config, tmp_path) as connected:
        found: set[str] = set()
        while len(found) < 100:
            rows = [row for row in connected.rows(1) if row["topic"].endswith("/n")]
            found |= {row["payload"].decode() for row in rows}
            connected.commit()
    assert found == wanted


def test_a_lost_connection_is_an_error_that_passes(
    server: MosquittoServer, config: dict[str, str], tmp_path: Path
) -> None:
    with connection(config, tmp_path) as connected:
        send(server, f"{config['name']}/n", "retained", retain=True)
        connected.rows(1)
        with killed(server), pytest.raises(ConnectionError, match="was lost"):
            connected.wait_for(lambda: False)
    send(server, f"{config['name']}/n", "after", retain=True)
    with connection(config, tmp_path) as again:
        again.reached = connected.reached
        while [row["payload"] for row in again.rows(1)][-1] != b"after":
            pass


def check(config: dict[str, str], **options: str) -> None:
    given = {name.replace("_", "."): value for name, value in options.items()}
    MqttSource({**config, **given}).check()


def test_a_check_connects_logs_in_and_subscribes(config: dict[str, str]) -> None:
    check(config)
    check(config, mqtt_username="sensor", mqtt_password="secret")
    check(config, mqtt_protocol_version="3.1.1")


def test_a_check_does_not_end_the_connection_of_the_connector(
    server: MosquittoServer, config: dict[str, str], tmp_path: Path
) -> None:
    with connection(config, tmp_path) as connected:
        send(server, f"{config['name']}/n", "a", retain=True)
        connected.rows(1)
        check(config)
        send(server, f"{config['name']}/n", "b")
        assert [row["payload"] for row in connected.rows(1)] == [b"b"]


@pytest.mark.parametrize(
    ("options", "option", "text"),
    [
        ({"mqtt_username": "sensor", "mqtt_password": "wrong"}, "mqtt.server.uri", "refuses"),
        ({"mqtt_topics": "a,a/#/b"}, "mqtt.topics", "a/#/b is not a topic filter"),
        ({"mqtt_server_uri": "tcp://127.0.0.1:1"}, "mqtt.server.uri", "no MQTT server"),
        ({"mqtt_server_uri": "http://localhost"}, "mqtt.server.uri", "is no address"),
        ({"mqtt_qos": "3"}, "mqtt.qos", "Expected 0, 1 or 2"),
        (
            {"mqtt_server_uri": "ssl://127.0.0.1:1", "mqtt_ssl_trust_store_path": "/nowhere"},
            "mqtt.ssl.trust.store.path",
            "/nowhere is not a file",
        ),
    ],
)  # fmt: skip
def test_a_check_names_the_option_that_cannot_work(
    config: dict[str, str], options: dict[str, str], option: str, text: str
) -> None:
    with pytest.raises(OptionError, match=text) as error:
        check(config, **options)
    assert error.value.option == option


def test_a_refused_login_is_permanent(config: dict[str, str], tmp_path: Path) -> None:
    config |= {"mqtt.username": "sensor", "mqtt.password": "wrong"}
    with (
        connection(config, tmp_path) as connected,
        pytest.raises(PermanentError, match="refuses the connection"),
    ):
        connected.wait_for(lambda: False)


def test_a_clean_session_ends_with_the_connection(
    server: MosquittoServer, config: dict[str, str], tmp_path: Path
) -> None:
    subscribed(config, tmp_path, server)
    with connection({**config, "mqtt.clean.session.enabled": "true"}, tmp_path / "clean") as clean:
        send(server, f"{config['name']}/n", "a", retain=True)
        clean.rows(1)
    publish.single(f"{config['name']}/n", None, 1, True, "127.0.0.1", server.port)
    send(server, f"{config['name']}/n", "nobody receives it")
    with connection(config, tmp_path / "later") as later:
        send(server, f"{config['name']}/n", "b", retain=True)
        assert [row["payload"] for row in later.rows(1)] == [b"b"]


def test_a_session_expires_if_that_is_set(
    server: MosquittoServer, config: dict[str, str], tmp_path: Path
) -> None:
    config |= {"mqtt.session.expiry.seconds": "1"}
    subscribed(config, tmp_path, server)
    time.sleep(3)
    send(server, f"{config['name']}/n", "nobody receives it")
    with connection(config, tmp_path / "later") as later:
        send(server, f"{config['name']}/n", "b", retain=True)
        assert [row["payload"] for row in later.rows(1)] == [b"b"]


def test_servers_with_tls_are_verified_and_may_ask_for_a_certificate(
    server: MosquittoServer, config: dict[str, str]
) -> None:
    config |= {"mqtt.server.uri": f"ssl://127.0.0.1:{server.tls_port}"}
    trusted = {"mqtt_ssl_trust_store_path": str(server.folder / "authority.pem")}
    check(config, **trusted, mqtt_ssl_key_store_path=str(server.folder / "client.pem"))
    with pytest.raises(OptionError, match="no MQTT server can be reached"):
        check(config, **trusted)
    with pytest.raises(OptionError, match="certificate verify failed"):
        check(config)
