"""A thread that sends readings at a steady rate and counts them."""

import json
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer
from findings import Cell
from house_rules import READINGS

from simulation import MINUTES_PER_SECOND, readings

TICK_S = 0.02
# The simulated day begins in the morning.
BEGIN = timedelta(hours=6)
SEED = 7


class Production:
    """Sends until it is stopped. `sent` has the number of readings by minute and sensor."""

    def __init__(self, bootstrap: str, per_second: int) -> None:
        self.count = 0
        self.sent: Counter[Cell] = Counter()
        self._rate = per_second
        self._recent: list[tuple[float, int]] = []
        self._stopped = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "sensors",
                "log_level": 0,
                "enable.idempotence": True,
                "linger.ms": 10,
                "compression.type": "lz4",
            }
        )
        self._thread = threading.Thread(target=self._run, name="sensors", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until all readings are acknowledged."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._producer.flush(30)

    def rate_now(self) -> float:
        """The current readings per second."""
        now = time.monotonic()
        self._recent = [*(each for each in self._recent if each[0] > now - 3), (now, self.count)]
        (began, before), (_, after) = self._recent[0], self._recent[-1]
        return (after - before) / (now - began) if now > began else 0.0

    def _run(self) -> None:
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        per_minute = max(int(self._rate / MINUTES_PER_SECOND), 1)
        source = readings(midnight + BEGIN, per_minute, SEED)
        began = time.monotonic()
        while not self._stopped.wait(TICK_S):
            due = int((time.monotonic() - began) * self._rate)
            while self.count < due:
                reading = next(source)
                value = json.dumps(reading.as_json())
                self._producer.produce(READINGS, key=reading.sensor, value=value)
                minute = reading.time.replace(second=0, microsecond=0)
                self.sent[minute, reading.sensor] += 1
                self.count += 1
            self._producer.poll(0)
