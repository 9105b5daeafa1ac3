"""Fills the topics of the examples: two hours of a building's records, then new ones.

    python examples/streams/feed.py                two hours at once, then each second a record
    python examples/streams/feed.py --once         two hours, then it ends

It includes the cases of the examples: duplicate or late readings, sensors that stay too warm,
alarms without an answer.
"""

import argparse
import json
import math
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

SENSORS = {
    "cellar-1": ("cellar", 24.0),
    "hall-1": ("hall", 27.0),
    "attic-1": ("attic", 32.0),
    "attic-2": ("attic", 32.0),
}
TOPICS = ("readings", "sensors", "motions", "alarms", "answers")
PAST = timedelta(hours=2)
STEP = timedelta(seconds=10)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument(
        "--bootstrap", default=os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092")
    )
    words.add_argument("--prefix", default="", help="prefix of the names of topics")
    words.add_argument("--once", action="store_true", help="stop at the present")
    chosen = words.parse_args()
    create_topics(chosen.bootstrap, chosen.prefix)
    producer = Producer({"bootstrap.servers": chosen.bootstrap, "enable.idempotence": True})

    def send(topic: str, key: str, record: dict[str, object]) -> None:
        producer.produce(chosen.prefix + topic, key=key, value=json.dumps(record))
        producer.poll(0)

    for sensor, (room, warmest) in SENSORS.items():
        send("sensors", sensor, {"sensor": sensor, "room": room, "warmest": warmest})
    now = datetime.now(UTC)
    moment = now - PAST
    while moment < now:
        for topic, key, record in records(moment):
            send(topic, key, record)
        moment += STEP
    producer.flush(60)
    print(f"two hours of records are in {', '.join(chosen.prefix + name for name in TOPICS)}")
    while not chosen.once:
        for topic, key, record in records(datetime.now(UTC)):
            send(topic, key, record)
        time.sleep(1)


def records(moment: datetime) -> Iterator[tuple[str, str, dict[str, object]]]:
    """The records of one moment."""
    dice = random.Random(int(moment.timestamp()))
    stamp = moment.isoformat()
    for index, (sensor, (room, _)) in enumerate(SENSORS.items()):
        heat = 10 * math.sin(moment.timestamp() / 1200 + index) ** 8
        reading: dict[str, object] = {
            "id": f"{sensor}/{stamp}",
            "sensor": sensor,
            "temperature": round(20 + 2 * index + heat + dice.gauss(0, 0.3), 2),
            "humidity": round(45 + 5 * math.cos(moment.timestamp() / 1800) + dice.gauss(0, 1), 2),
            "time": stamp,
        }
        yield "readings", sensor, reading
        if dice.random() < 0.05:
            yield "readings", sensor, reading
        if dice.random() < 0.02:
            late = (moment - timedelta(minutes=15)).isoformat()
            yield "readings", sensor, {**reading, "id": f"{sensor}/{late}/late", "time": late}
        if math.sin(moment.timestamp() / 600 + index) > 0.5:
            yield "motions", room, {"room": room, "time": stamp}
        if dice.random() < 0.01:
            alarm = f"{room}/{stamp}"
            yield "alarms", alarm, {"alarm": alarm, "room": room, "time": stamp}
            if dice.random() < 0.7:
                answer = (moment + timedelta(seconds=dice.randint(5, 300))).isoformat()
                guard = dice.choice(["Ada", "Ben"])
                yield "answers", alarm, {"alarm": alarm, "guard": guard, "time": answer}


def create_topics(bootstrap: str, prefix: str) -> None:
    """Create missing topics; the table of sensors is compacted."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    compacted = {"cleanup.policy": "compact"}
    made = admin.create_topics(
        [NewTopic(prefix + t, 2, config=compacted if t == "sensors" else {}) for t in TOPICS]
    )
    for future in made.values():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise


if __name__ == "__main__":
    main()
