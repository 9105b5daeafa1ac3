"""Simulates the sensors and the events of a day.

A simulated minute takes a second, so that an hour fits into the demo. In every hour
the cooling of the server room fails, the door of the cold store is left open, and the greenhouse is
watered. The functions are pure: the same seed gives the same day.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from house_rules import PLACE_OF

MINUTES_PER_SECOND = 1.0
# Some gateways send readings late, but within the watermark.
LONGEST_DELAY_S = 30.0

USUAL = {
    "server room": (23.0, 45.0),
    "greenhouse": (26.0, 70.0),
    "cold store": (4.5, 80.0),
    "office": (22.0, 45.0),
}


@dataclass(frozen=True)
class Reading:
    """One measurement, at a time of the simulated day."""

    sensor: str
    place: str
    temperature: float
    humidity: float
    time: datetime

    def as_json(self) -> dict[str, object]:
        return {
            "sensor": self.sensor,
            "place": self.place,
            "temperature": round(self.temperature, 2),
            "humidity": round(self.humidity, 2),
            "time": self.time.isoformat(timespec="milliseconds"),
        }


def readings(begin: datetime, per_minute: int, seed: int) -> Iterator[Reading]:
    """Endless readings, one sensor after the other, `per_minute` in a simulated minute."""
    dice = random.Random(seed)
    sensors = list(PLACE_OF)
    step = timedelta(minutes=1 / per_minute)
    count = 0
    while True:
        now = begin + count * step
        sensor = sensors[count % len(sensors)]
        taken = now - timedelta(seconds=dice.random() ** 8 * LONGEST_DELAY_S)
        minute = (taken - begin).total_seconds() / 60
        temperature, humidity = air(sensor, minute)
        yield Reading(
            sensor,
            PLACE_OF[sensor].name,
            temperature + dice.gauss(0, 0.4),
            humidity + dice.gauss(0, 1.2),
            taken,
        )
        count += 1


def air(sensor: str, minute: float) -> tuple[float, float]:
    """Temperature and humidity at a sensor, `minute` minutes after the beginning."""
    place = PLACE_OF[sensor].name
    temperature, humidity = USUAL[place]
    second = float(sensor.endswith("2"))
    slow = math.sin(minute / 23 + second)
    temperature += 0.8 * slow + 0.6 * second
    humidity += 2.5 * math.cos(minute / 31 + second)
    hour = minute % 60
    if place == "server room":
        # The cooling fails for a quarter of an hour; the second rack warms up later.
        heat = 11 * _swell(hour - 3 * second, 12, 30)
        temperature, humidity = temperature + heat, humidity - heat
    elif place == "cold store":
        warm = 6.5 * _swell(hour - second, 36, 45)
        temperature, humidity = temperature + warm, humidity + 2 * warm
    elif place == "greenhouse":
        water = _swell(hour, 20 + 4 * second, 34 + 4 * second)
        temperature, humidity = temperature - 3 * water, humidity + 22 * water
    return temperature, humidity


def _swell(minute: float, begin: float, end: float) -> float:
    """A curve from 0 at `begin` to 1 and back to 0 at `end`."""
    if not begin < minute < end:
        return 0.0
    return math.pow(math.sin(math.pi * (minute - begin) / (end - begin)), 1.5)
