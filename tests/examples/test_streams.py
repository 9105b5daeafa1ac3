"""The streams under `examples/streams`: records through a real broker and a real Spark, and out."""

import importlib
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from headrace.testing.running import RunningBroker
from tests.support.topics import create_topic

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "streams"
INPUTS = ("readings", "sensors", "motions", "alarms", "answers")
STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

pytestmark = pytest.mark.spark


class House:
    """A building of its own for one test: topics under a prefix, and what goes in and comes out."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.prefix = f"{uuid.uuid4().hex[:8]}-"
        self.bootstrap = bootstrap
        self._building = example("building").Building(spark, bootstrap, True, self.prefix)
        for topic in INPUTS:
            create_topic(bootstrap, self.prefix + topic)

    def send(self, topic: str, *records: dict[str, Any], key: str | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for record in records:
            name = record[key] if key else None
            producer.produce(self.prefix + topic, key=name, value=json.dumps(record))
        assert producer.flush(60) == 0

    def run(self, name: str, *words: Any) -> None:
        """Run an example over everything that is there."""
        example(name).start(self._building, *words)

    def received(self, topic: str) -> list[dict[str, Any]]:
        """All committed records of a topic, as librdkafka reads them."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
        consumer = Consumer(settings)
        consumer.subscribe([self.prefix + topic])
        found = []
        try:
            while (message := consumer.poll(60)) is not None and message.error() is None:
                found.append(json.loads(message.value()))
        finally:
            consumer.close()
        return found


def example(name: str) -> ModuleType:
    """An example as a program beside it would import it."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    module = importlib.import_module(name)
    # A program's own classes travel by value; so must those of a module that workers do not see.
    cloudpickle.register_pickle_by_value(module)
    return module


@pytest.fixture
def house(spark: SparkSession, headrace: RunningBroker, tmp_path: Path) -> Iterator[House]:
    settings = {
        "spark.sql.streaming.checkpointLocation": str(tmp_path / "checkpoints"),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield House(spark, headrace.bootstrap_servers)
    for name in settings:
        spark.conf.unset(name)


def reading(at: str, sensor: str = "s", temperature: float = 20.0, **more: Any) -> dict[str, Any]:
    """A reading at a time of one morning."""
    fields = {"id": f"{sensor}/{at}", "sensor": sensor, "temperature": temperature}
    return {**fields, "humidity": 50.0, "time": f"2026-01-31T{at}Z", **more}


def test_aggregation_goes_on_where_it_stopped(house: House) -> None:
    house.send("readings", reading("10:00:00", temperature=10), reading("10:00:01", temperature=20))
    house.run("aggregation")
    house.send("readings", reading("10:00:02", temperature=30), reading("10:00:03", "other"))
    house.run("aggregation")
    last = {each["sensor"]: each for each in house.received("totals")}
    assert last["s"] == {
        "sensor": "s",
        "readings": 3,
        "temperature": 20.0,
        "coldest": 10.0,
        "warmest": 30.0,
    }
    assert last["other"]["readings"] == 1


def test_tumbling_windows_publish_a_minute_once_and_leave_out_what_is_late(house: House) -> None:
    house.send(
        "readings",
        reading("10:00:10", temperature=10),
        reading("10:01:30", temperature=40),
        # Out of order, but not late.
        reading("10:00:50", temperature=20),
        reading("10:03:30"),
    )
    house.run("tumbling_windows")
    # 10:00 to 10:01 is over for everyone; the third reading is late, the fourth is not.
    house.send(
        "readings",
        reading("10:00:30", temperature=99),
        reading("10:01:45", temperature=50),
        reading("10:10:00"),
    )
    house.run("tumbling_windows")
    found = house.received("minutes")
    assert sorted((m["minute"][11:16], m["readings"], m["temperature"]) for m in found) == [
        ("10:00", 2, 15.0),
        ("10:01", 2, 45.0),
        ("10:03", 1, 20.0),
    ]


def test_sliding_windows_count_a_reading_in_each_window_that_it_falls_into(house: House) -> None:
    house.send(
        "readings",
        reading("10:00:30", temperature=31),
        reading("10:02:30", temperature=25),
        reading("10:20:00"),
    )
    house.run("sliding_windows")
    # Late for all of its windows.
    house.send("readings", reading("10:02:00", temperature=99), reading("10:40:00"))
    house.run("sliding_windows")
    found = [each for each in house.received("peaks") if each["until"][11:16] <= "10:10"]
    assert sorted((each["until"][11:16], each["readings"], each["peak"]) for each in found) == [
        ("10:01", 1, 31.0),
        ("10:02", 1, 31.0),
        ("10:03", 2, 31.0),
        ("10:04", 2, 31.0),
        ("10:05", 2, 31.0),
        ("10:06", 1, 25.0),
        ("10:07", 1, 25.0),
    ]


def test_session_windows_join_motions_until_it_is_still(house: House) -> None:
    def motion(at: str) -> dict[str, Any]:
        return {"room": "hall", "time": f"2026-01-31T{at}:00Z"}

    house.send("motions", motion("10:00"), motion("10:09"), motion("10:20"))
    house.run("session_windows")
    # Bridges nothing any more: the visits of 10:00 and 10:09 have been published, so it is late.
    house.send("motions", motion("10:04"), motion("10:23"), motion("11:00"))
    house.run("session_windows")
    found = house.received("visits")
    assert sorted((v["begin"][11:16], v["last_motion"][11:16], v["motions"]) for v in found) == [
        ("10:00", "10:00", 1),
        ("10:09", "10:09", 1),
        ("10:20", "10:23", 2),
    ]


def test_motions_that_come_in_the_wrong_order_make_one_visit(house: House) -> None:
    def motion(at: str) -> dict[str, Any]:
        return {"room": "hall", "time": f"2026-01-31T{at}:00Z"}

    house.send("motions", motion("10:00"), motion("10:08"), motion("10:04"), motion("11:00"))
    house.run("session_windows")
    (visit,) = house.received("visits")
    assert (visit["begin"][11:16], visit["last_motion"][11:16], visit["motions"]) == (
        "10:00",
        "10:08",
        3,
    )


def test_deduplication_keeps_ids_across_a_restart(house: House) -> None:
    one, two = reading("10:00:00"), reading("10:00:01")
    house.send("readings", one, one, two)
    house.run("deduplication")
    house.send("readings", two, one, reading("10:00:02"))
    house.run("deduplication")
    assert sorted(each["id"] for each in house.received("unique")) == [
        "s/10:00:00",
        "s/10:00:01",
        "s/10:00:02",
    ]


def test_a_stream_stream_join_finds_answers_and_alarms_without_one(house: House) -> None:
    def alarm(name: str, at: str) -> dict[str, Any]:
        return {"alarm": name, "room": "hall", "time": f"2026-01-31T{at}Z"}

    def answer(name: str, at: str) -> dict[str, Any]:
        return {"alarm": name, "guard": "Ada", "time": f"2026-01-31T{at}Z"}

    house.send("alarms", alarm("a", "10:00:00"), alarm("b", "10:01:00"), alarm("c", "10:02:00"))
    house.send("answers", answer("a", "10:00:40"))
    house.run("stream_stream_join")
    # The state of the first run is still there: b is answered in time, c too late.
    house.send("answers", answer("b", "10:03:00"), answer("c", "10:12:01"))
    house.run("stream_stream_join")
    house.send("alarms", alarm("z", "12:00:00"))
    house.send("answers", answer("z", "12:00:01"))
    house.run("stream_stream_join")
    got = house.received("answered")
    found = {each["alarm"]: (each.get("guard"), each.get("seconds")) for each in got}
    assert found == {"a": ("Ada", 40), "b": ("Ada", 120), "c": (None, None), "z": ("Ada", 1)}
    assert len(got) == len(found)


def test_a_stream_table_join_judges_by_the_table_as_it_is_now(house: House) -> None:
    def sensor(room: str, warmest: float) -> dict[str, Any]:
        return {"sensor": "s", "room": room, "warmest": warmest}

    house.send("sensors", sensor("cellar", 18), sensor("hall", 25), key="sensor")
    house.send("readings", reading("10:00:00", temperature=26), reading("10:00:01", "unknown", 99))
    house.run("stream_table_join")
    house.send("sensors", sensor("attic", 30), key="sensor")
    house.send("readings", reading("10:00:02", temperature=28), reading("10:00:03", temperature=31))
    house.run("stream_table_join")
    assert {(each["room"], each["temperature"]) for each in house.received("too-warm")} == {
        ("hall", 26.0),
        ("attic", 31.0),
    }


def test_a_stateful_function_counts_over_batches_and_restarts(house: House) -> None:
    hot = [reading(f"10:00:0{n}", temperature=31) for n in range(4)]
    house.send("readings", hot[0], hot[1], reading("10:00:00", "other", 31))
    house.run("stateful")
    assert house.received("alerts") == []
    house.send("readings", hot[3], hot[2], reading("10:00:08", temperature=22))
    house.run("stateful")
    found = [(a["sensor"], a["alert"], a["time"][11:19]) for a in house.received("alerts")]
    assert found == [("s", "hot", "10:00:02"), ("s", "over", "10:00:08")]


def test_a_changed_pipeline_replays_the_past_beside_the_old_one(house: House) -> None:
    house.send("readings", reading("08:10:00", "cellar-1", 20), reading("08:20:00", "hall-1", 20))
    house.run("kappa", 1)
    house.send("readings", reading("09:10:00", "cellar-1", 22), reading("10:30:00", "cellar-1"))
    house.run("kappa", 2)
    house.run("kappa", 1)

    def hours(version: int) -> list[tuple[str, str, float]]:
        found = house.received(f"hours-v{version}")
        return sorted((each["hour"][11:16], each["sensor"], each["temperature"]) for each in found)

    assert hours(1) == [
        ("08:00", "cellar-1", 20),
        ("08:00", "hall-1", 20),
        ("09:00", "cellar-1", 22),
    ]
    # The new one has the whole past, corrected, and exactly the same hours.
    assert hours(2) == [
        ("08:00", "cellar-1", 18.5),
        ("08:00", "hall-1", 20),
        ("09:00", "cellar-1", 20.5),
    ]


def test_the_readme_names_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text()
    shared = {"building.py", "feed.py"}
    missing = (
        {path.name for path in EXAMPLES.glob("*.py")} - shared - set(text.replace("`", " ").split())
    )
    assert missing == set()
