"""Four simulated sensors that publish their temperatures to an MQTT server, until Ctrl-C.

python examples/mqtt/sensors.py [--port 1883] [--rounds N]
"""

import argparse
import itertools
import json
import math
import time

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

ROOMS = ("kitchen", "office", "greenhouse", "cellar")
INTERVAL_S = 0.5


def reading(room: str, number: int) -> dict[str, object]:
    """What the sensor of a room measures: a slow wave around a value of its own."""
    mean = 14 + 3 * ROOMS.index(room)
    celsius = mean + 2 * math.sin(number / 20)
    return {"room": room, "number": number, "celsius": round(celsius, 2)}


def publish(port: int, rounds: int | None) -> None:
    """Publish a reading of each room in every round; returns when the server has all of them."""
    client = Client(CallbackAPIVersion.VERSION2, "sensors-of-the-building")
    client.connect("localhost", port)
    client.loop_start()
    for number in itertools.count() if rounds is None else range(rounds):
        for room in ROOMS:
            text = json.dumps(reading(room, number))
            client.publish(f"building/{room}/temperature", text, qos=1).wait_for_publish()
        print(f"sent round {number}", flush=True)
        if rounds is None:
            time.sleep(INTERVAL_S)
    client.disconnect()
    client.loop_stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--rounds", type=int, help="how many readings each sensor sends")
    arguments = parser.parse_args()
    publish(arguments.port, arguments.rounds)


if __name__ == "__main__":
    main()
