"""Exactly once while drivers, Python workers and brokers are killed at random moments.

A run copies a topic in several epochs, to a topic, to tables or to all at once, and loses one of
them once or more; Spark's part is started again from its checkpoint until the copy is complete.
Then every record must be there exactly once: in a topic by an independent consumer, in a table by
`headrace lake verify`, which must also have no file that no commit names. A driver takes a whole
start of Spark, so that in the usual suite one copies to everything. `make endurance` has a hundred
runs of each kind.
"""

import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headrace.cli.lake_topic import LibrdkafkaReader
from headrace.pipelines.lake import verify as proof
from headrace.pipelines.lake.views import open_view
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.pipelines import fire as under
from tests.pipelines.fire import EPOCHS, LOOK_S, STARTS, Driver, Fire
from tests.support.committed import committed_values
from tests.support.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

RECORDS = 1600
TABLES = ("headrace-delta", "headrace-iceberg")
EVERYTHING = ("headrace", *TABLES)
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
            return {"path": str(self.folder / sink)}
        if sink == "headrace-iceberg":
            return {"table": "lake.copy", "warehouse": str(self.folder / sink)}
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


def copy_in_session(spark: SparkSession, copy: Copy, fire: Fire, victim: str, *sinks: str) -> None:
    """With workers or the broker under fire: a query may fail, and is then started again."""

    def start(sink: str) -> Iterator[int | None]:
        query = under.start(
            spark, copy.folder, copy.bootstrap, copy.source, sink, copy.options(sink),
            RECORDS // EPOCHS,
        )  # fmt: skip
        return under.epochs(query)

    failures: list[str] = []
    running = {sink: start(sink) for sink in sinks}
    while running:
        for sink, query in list(running.items()):
            try:
                epoch = next(query)
            except StopIteration:
                del running[sink]
                continue
            except StreamingQueryException as error:
                failures.append(str(error)[:2000])
                assert len(failures) < STARTS * len(sinks), "\n\n".join(failures)
                running[sink] = start(sink)
                continue
            if epoch is not None and fire.wait(epoch):
                fire.kill_worker() if victim == "worker" else fire.kill_broker()
        time.sleep(LOOK_S)
    assert fire.over, "the copy was complete before everything was killed"


def copy_by_driver(copy: Copy, fire: Fire, *sinks: str) -> None:
    """Killed and started again until the fire is over, then left alone."""
    driver = Driver(
        copy.folder,
        copy.bootstrap,
        copy.source,
        RECORDS // EPOCHS,
        {sink: copy.options(sink) for sink in sinks},
    )
    while not fire.over:
        assert not driver.run(fire), "the copy was complete before the driver was killed"
    assert driver.run(None)


def check(copy: Copy, sink: str) -> None:
    check_topic(copy) if sink == "headrace" else check_table(copy, sink)


def check_topic(copy: Copy) -> None:
    seen = Counter(map(int, committed_values(copy.bootstrap, copy.target, silence_s=60)))
    assert [number for number, count in seen.items() if count > 1] == []
    assert sorted(seen) == list(range(RECORDS))


def check_table(copy: Copy, sink: str) -> None:
    options = copy.options(sink)
    view = open_view(options.get("path") or options["table"], warehouse=options.get("warehouse"))
    wanted = proof.Wanted(copy.source, complete=True, full=True)
    with LibrdkafkaReader(copy.bootstrap, None) as topic:
        reports = proof.verify(view, wanted, topic, lambda *_: None)
    assert [(each.rows, each.findings) for each in reports] == [(RECORDS // 2, [])] * 2
    on_disk = {path.name for path in (copy.folder / sink).rglob("data/headrace/*/*/*")}
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
    copy_in_session(spark, copy, Fire(broker, seed), victim, "headrace")
    check_topic(copy)


def test_tables_have_every_record_once_when_the_broker_is_killed(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    copy = new_copy(broker, tmp_path)
    copy_in_session(spark, copy, Fire(broker, 6, kills=3), "broker", *TABLES)
    for sink in TABLES:
        check(copy, sink)


def test_nothing_is_lost_or_doubled_when_the_driver_is_killed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    copy = new_copy(broker, tmp_path)
    copy_by_driver(copy, Fire(broker, 5), *EVERYTHING)
    for sink in EVERYTHING:
        check(copy, sink)


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(MANY_RUNS))
def test_nothing_is_lost_or_doubled_in_many_runs(
    request: pytest.FixtureRequest, broker: RunningBroker, tmp_path: Path, seed: int
) -> None:
    """Two topics to a table; a driver in every fifth run."""
    sink = ("headrace", "headrace", "headrace-delta", "headrace", "headrace-iceberg")[seed // 5 % 5]
    copy = new_copy(broker, tmp_path)
    fire = Fire(broker, 1000 + seed)
    if seed % 5 == 4:
        copy_by_driver(copy, fire, sink)
    else:
        spark = request.getfixturevalue("spark")
        copy_in_session(spark, copy, fire, "broker" if seed % 2 else "worker", sink)
    check(copy, sink)


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(MANY_RUNS))
def test_tables_have_every_record_once_in_many_runs(
    request: pytest.FixtureRequest, broker: RunningBroker, tmp_path: Path, seed: int
) -> None:
    """Drivers that are killed three times over, and brokers."""
    copy = new_copy(broker, tmp_path)
    fire = Fire(broker, 2000 + seed, kills=3)
    if seed % 2:
        copy_in_session(request.getfixturevalue("spark"), copy, fire, "broker", *TABLES)
    else:
        copy_by_driver(copy, fire, *TABLES)
    for sink in TABLES:
        check(copy, sink)
