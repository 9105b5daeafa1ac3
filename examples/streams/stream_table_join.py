"""Stream-table join: readings that are too warm for the room of their sensor.

The table is a compacted topic, read again for every batch: a sensor that moves to another room is
checked against that room's limit from then on.
"""

from building import READINGS, SENSORS, Building, enter
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def too_warm(readings: DataFrame, sensors: DataFrame) -> DataFrame:
    return (
        readings.join(sensors, "sensor")
        .where(F.col("temperature") > F.col("warmest"))
        .select("room", "sensor", "temperature", "warmest", "time")
    )


def start(building: Building) -> None:
    readings = building.stream("readings", READINGS)
    sensors = building.table("sensors", SENSORS, key="sensor")
    found = too_warm(readings, sensors)
    building.publish(found, "too-warm", key="room").awaitTermination()


if __name__ == "__main__":
    start(enter())
