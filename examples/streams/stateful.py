"""A stateful function: an alert for three readings above thirty degrees in a row, and one when it
is over. The program defines the state of each sensor; here it is the number of hot readings."""

from collections.abc import Iterator

from building import READINGS, Building, enter
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

HOT = 30.0
IN_A_ROW = 3


class Heat(StatefulProcessor):  # type: ignore[misc]  # PySpark's types are not followed
    """Counts the hot readings in a row of one sensor."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._hot = handle.getValueState("hot", "readings INT")

    def handleInputRows(
        self, key: tuple[str], rows: Iterator[Row], timers: object
    ) -> Iterator[Row]:
        hot = self._hot.get()[0] if self._hot.exists() else 0
        # A batch has a sensor's readings in any order.
        for row in sorted(rows, key=lambda row: row.time):
            before, hot = hot, hot + 1 if row.temperature > HOT else 0
            if hot == IN_A_ROW:
                yield alert(key[0], "hot", row)
            elif before >= IN_A_ROW and hot == 0:
                yield alert(key[0], "over", row)
        self._hot.update((hot,))

    def close(self) -> None:
        pass


def alert(sensor: str, what: str, row: Row) -> Row:
    return Row(sensor=sensor, alert=what, temperature=row.temperature, time=row.time)


def alerts(readings: DataFrame) -> DataFrame:
    return readings.groupBy("sensor").transformWithState(
        statefulProcessor=Heat(),
        outputStructType="sensor STRING, alert STRING, temperature DOUBLE, time TIMESTAMP",
        outputMode="Append",
        timeMode="None",
    )


def start(building: Building) -> None:
    readings = building.stream("readings", READINGS)
    building.publish(alerts(readings), "alerts", key="sensor").awaitTermination()


if __name__ == "__main__":
    start(enter())
