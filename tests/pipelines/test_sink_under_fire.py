"""Exactly once while drivers, Python workers and brokers are killed at random moments.

A run copies a topic in several epochs and loses one of them once; Spark's part is started again
from its checkpoint until the copy is complete. Then an independent consumer must find every record
exactly once. The usual suite has five runs: a driver's takes a whole start of Spark, so that one of
them is a driver's. `make endurance` has a hundred.
"""

import os
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headrace.pipelines.lake import verify as proof
from headrace.pipelines.lake.views import open_view
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from headrace.types import TopicPartition
from tests.pipelines import fire as under
from tests.pipelines.fire import EPOCHS, STARTS, Driver, Fire, epochs
from tests.support.committed import committed_values
from tests.support.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

RECORDS = 1600
MANY_RUNS = int(os.environ.get("HEADRACE_FIRE_RUNS", "100"))


@dataclass(frozen=True, slots=True)
class Copy:
    """One run: a source that is filled, and a target."""

    broker: RunningBroker
    folder: Path
    source: str
    target: str

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    def options(self, sink: str) -> dict[str, str]:
        if sink == "headrace-delta":
            return {"path": str(self.folder / "table")}
        if sink == "headrace-iceberg":
            return {"table": "lake.copy", "warehouse": str(self.folder / "warehouse")}
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.target,
            "delivery": "exactly-once",
        }


def new_copy(broker: RunningBroker, folder: Path) -> Copy:
    name = uuid.uuid4().hex[:8]
    source = create_topic(broker.bootstrap_servers, f"in-{name}", 2)
    target = create_topic(broker.bootstrap_servers, f"out-{name}", 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(source, b"%d" % number, b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    (folder / name).mkdir()
    return Copy(broker, folder / name, source, target)


def copy_in_session(spark: SparkSession, copy: Copy, sink: str, fire: Fire, victim: str) -> None:
    """With workers or the broker under fire: the query may fail, and is then started again."""
    failures: list[str] = []
    for _ in range(STARTS):
        query = under.start(
            spark, copy.folder, copy.bootstrap, copy.source, sink, copy.options(sink),
            RECORDS // EPOCHS,
        )  # fmt: skip
        try:
            for epoch in epochs(query):
                if fire.wait(epoch):
                    fire.kill_worker() if victim == "worker" else fire.kill_broker()
        except StreamingQueryException as error:
            failures.append(str(error)[:2000])
            continue
        assert fire.hit, "the copy was complete before anything was killed"
        return
    raise AssertionError(f"{STARTS} starts were not enough: " + "\n\n".join(failures))


def copy_by_driver(copy: Copy, sink: str, fire: Fire) -> None:
    driver = Driver(
        copy.folder, copy.bootstrap, copy.source, sink, copy.options(sink), RECORDS // EPOCHS
    )
    assert not driver.run(fire), "the copy was complete before the driver was killed"
    assert driver.run(None)


def check_topic(copy: Copy) -> None:
    seen = Counter(map(int, committed_values(copy.bootstrap, copy.target, silence_s=60)))
    assert [number for number, count in seen.items() if count > 1] == []
    assert sorted(seen) == list(range(RECORDS))


class Filled:
    """The source of a copy: every offset is a record."""

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return {0: (0, RECORDS // 2), 1: (0, RECORDS // 2)}

    def offsets(self, place: TopicPartition, first: int, last: int) -> proof.Offsets:
        import numpy as np

        return np.arange(first, last + 1)


def check_table(copy: Copy, sink: str) -> None:
    options = copy.options(sink)
    view = open_view(options.get("path") or options["table"], warehouse=options.get("warehouse"))
    wanted = proof.Wanted(copy.source, complete=True)
    reports = proof.verify(view, wanted, Filled(), lambda *_: None)
    assert [(each.rows, each.findings) for each in reports] == [(RECORDS // 2, [])] * 2
    on_disk = {path.name for path in copy.folder.rglob("data/headrace/*/*/*")}
    assert on_disk == {Path(file.path).name for file in view.files}


@pytest.fixture
def broker(headrace_factory: BrokerFactory) -> RunningBroker:
    return headrace_factory()


@pytest.mark.parametrize(
    ("victim", "seed"), [("worker", 1), ("worker", 2), ("broker", 3), ("broker", 4)]
)
def test_nothing_is_lost_or_doubled_when_a_worker_or_the_broker_is_killed(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, victim: str, seed: int
) -> None:
    copy = new_copy(broker, tmp_path)
    copy_in_session(spark, copy, "headrace", Fire(broker, seed), victim)
    check_topic(copy)


def test_nothing_is_lost_or_doubled_when_the_driver_is_killed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    copy = new_copy(broker, tmp_path)
    copy_by_driver(copy, "headrace", Fire(broker, 5))
    check_topic(copy)


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(MANY_RUNS))
def test_nothing_is_lost_or_doubled_in_many_runs(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path, seed: int
) -> None:
    """Two topics to a table; a driver in every fifth run."""
    sink = ("headrace", "headrace", "headrace-delta", "headrace", "headrace-iceberg")[seed // 5 % 5]
    copy = new_copy(broker, tmp_path)
    fire = Fire(broker, 1000 + seed)
    if seed % 5 == 4:
        copy_by_driver(copy, sink, fire)
    else:
        copy_in_session(spark, copy, sink, fire, "broker" if seed % 2 else "worker")
    check_topic(copy) if sink == "headrace" else check_table(copy, sink)
