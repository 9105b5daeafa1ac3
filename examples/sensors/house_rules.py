"""Constants of the demo: the places, their sensors and limits, and the names of topics.

The pipeline, the sensors and the picture use them.
"""

from dataclasses import dataclass

READINGS = "demo-readings"
AVERAGES = "demo-averages"
ALERTS = "demo-alerts"


@dataclass(frozen=True)
class Place:
    """A room and its limits: degrees Celsius, percent of humidity."""

    name: str
    sensors: tuple[str, ...]
    coldest: float
    warmest: float
    driest: float
    dampest: float


PLACES = (
    Place("server room", ("rack-1", "rack-2"), 16, 30, 30, 60),
    Place("greenhouse", ("bed-1", "bed-2"), 18, 34, 50, 88),
    Place("cold store", ("shelf-1", "shelf-2"), 2, 8, 60, 95),
    Place("office", ("desk-1", "desk-2"), 18, 27, 30, 65),
)
PLACE_OF = {sensor: place for place in PLACES for sensor in place.sensors}
