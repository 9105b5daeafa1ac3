"""Stream-stream join: alarms and their answers, with the delay, and alarms without an answer.

An answer is valid within ten minutes of its alarm. An alarm without one is published when both
streams have passed that time.
"""

from building import ALARMS, ANSWERS, Building, enter
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def answered(alarms: DataFrame, answers: DataFrame) -> DataFrame:
    rang = alarms.withWatermark("time", "1 minute").alias("rang")
    said = answers.withWatermark("time", "1 minute").alias("said")
    in_time = F.expr(
        "rang.alarm = said.alarm "
        "AND said.time BETWEEN rang.time AND rang.time + INTERVAL 10 MINUTES"
    )
    return rang.join(said, in_time, "left_outer").select(
        "rang.alarm",
        "rang.room",
        "said.guard",
        (F.unix_timestamp("said.time") - F.unix_timestamp("rang.time")).alias("seconds"),
    )


def start(building: Building) -> None:
    alarms = building.stream("alarms", ALARMS)
    answers = building.stream("answers", ANSWERS)
    found = answered(alarms, answers)
    building.publish(found, "answered", key="alarm").awaitTermination()


if __name__ == "__main__":
    start(enter())
