"""De-duplication: a gateway that sends readings again when it is not sure they arrived.

A reading is identified by its id. Ids are kept for ten minutes of event time.
"""

from building import READINGS, Building, enter
from pyspark.sql import DataFrame


def once_each(readings: DataFrame) -> DataFrame:
    return readings.withWatermark("time", "10 minutes").dropDuplicatesWithinWatermark(["id"])


def start(building: Building) -> None:
    readings = building.stream("readings", READINGS)
    building.publish(once_each(readings), "unique", key="sensor").awaitTermination()


if __name__ == "__main__":
    start(enter())
