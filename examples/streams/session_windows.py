"""Session windows: visits. Motions in a room belong together until it has none for 5 minutes."""

from building import MOTIONS, Building, enter
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def visits(motions: DataFrame) -> DataFrame:
    return (
        motions.withWatermark("time", "1 minute")
        .groupBy(F.session_window("time", "5 minutes"), "room")
        .agg(F.count("*").alias("motions"), F.max("time").alias("last_motion"))
        .select(F.col("session_window.start").alias("begin"), "last_motion", "room", "motions")
    )


def start(building: Building) -> None:
    motions = building.stream("motions", MOTIONS)
    building.publish(visits(motions), "visits", key="room").awaitTermination()


if __name__ == "__main__":
    start(enter())
