"""The sensors under `examples/mqtt`, through an MQTT server and the connector of the example.

The blocks of its README are run with those of the documentation (`tests/docs/test_pages.py`).
"""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.connect.connectors.mqtt.source import MqttSource
from headrace.connect.plugins import Plugins
from headrace.connect.validation import parsed
from tests.connect.push.reading import reading
from tests.support.message_brokers import MosquittoServer, mosquitto_program

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "mqtt"
ROUNDS = 5


def test_every_reading_is_received_in_the_order_of_its_sensor(tmp_path: Path) -> None:
    if mosquitto_program() is None:
        pytest.skip("needs Mosquitto")
    described = json.loads((EXAMPLE / "sensors.json").read_text())
    config = {"name": described["name"], **described["config"]}
    assert parsed(Plugins().find(config["connector.class"]), config).errors == []
    with MosquittoServer() as server:
        config["mqtt.server.uri"] = server.address
        # The server stores messages from the first subscription on.
        with contextlib.closing(MqttSource(config).receive()) as first:
            next(first)
        command = [sys.executable, str(EXAMPLE / "sensors.py"), "--port", str(server.port)]
        subprocess.run([*command, "--rounds", str(ROUNDS)], check=True, capture_output=True)
        with reading(MqttSource(config), tmp_path) as reader:
            rows = reader.rows(4 * ROUNDS)
    found: dict[str, list[int]] = {}
    for row in rows:
        message = json.loads(row["payload"])
        assert row["topic"] == f"building/{message['room']}/temperature"
        found.setdefault(message["room"], []).append(message["number"])
    assert set(found) == {"kitchen", "office", "greenhouse", "cellar"}
    assert all(numbers == list(range(ROUNDS)) for numbers in found.values())
