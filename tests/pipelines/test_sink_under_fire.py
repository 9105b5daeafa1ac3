"""Exactly once while drivers, executors, Python workers and brokers are killed at random moments.

A run copies a topic in several epochs, to a topic, to tables or to all at once, and loses one of
them once or more, in an epoch and a phase of it that a seed draws; Spark's part is started again
from its checkpoint until the copy is complete. Then every record must be there exactly once: in a
topic by an independent consumer, in a table by `headrace lake verify`, which must also have no file
that no commit names. A driver takes a whole start of Spark, so that in the usual suite one copies
to everything. `make endurance` has a hundred runs of each kind, in one session with two executors;
HEADRACE_FIRE_RUNS=1000-1100 chooses other seeds, and HEADRACE_FIRE_LOG a file that gets a line for
each run.
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

from headrace.cli.spark.lake_topic import LibrdkafkaReader
from headrace.pipelines.lake import verify as proof
from headrace.pipelines.lake.views import open_view
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.pipelines import fire as under
from tests.pipelines.fire import EPOCHS, LOOK_S, STARTS, Driver, Fire, Watch, noted
from tests.support.committed import committed_values
from tests.support.spark import local_spark
from tests.support.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

RECORDS = 1600
TABLES = ("headrace-delta", "headrace-iceberg")
EVERYTHING = ("headrace", *TABLES)
FIRST, _, LAST = os.environ.get("HEADRACE_FIRE_RUNS", "0-100").rpartition("-")
MANY_RUNS = range(int(FIRST or "0"), int(LAST))
VICTIMS = ("worker", "broker", "executor", "broker", "driver")
SINKS = ("headrace", "headrace", "headrace-delta", "headrace", "headrace-iceberg")


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

    def watch(self, sink: str) -> Watch:
        return Watch(under.checkpoint(self.folder, sink), self.bootstrap)

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
    assert producer.flush(60) == 0
    (folder / name).mkdir()
    return Copy(broker, folder / name, source, target)


def copy_in_session(spark: SparkSession, copy: Copy, fire: Fire, victim: str, *sinks: str) -> None:
    """With Spark's processes or the broker under fire: a query that fails is started again."""
    watch = copy.watch(sinks[0])

    def start(sink: str) -> Iterator[None]:
        query = under.start(
            spark, copy.folder, copy.bootstrap, copy.source, sink, copy.options(sink),
            RECORDS // EPOCHS,
        )  # fmt: skip
        return under.looks(query)

    failures: list[str] = []
    running = {sink: start(sink) for sink in sinks}
    while running:
        for sink, query in list(running.items()):
            try:
                next(query)
            except StopIteration:
                del running[sink]
                continue
            except StreamingQueryException as error:
                failures.append(str(error)[:2000])
                assert len(failures) < STARTS * len(sinks), "\n\n".join(failures)
                running[sink] = start(sink)
        if fire.due(watch):
            fire.kill(victim, watch)
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
    watch = copy.watch(sinks[0])
    while not fire.over:
        assert not driver.run(fire, watch), "the copy was complete before the driver was killed"
    assert driver.run(None, watch)


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


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """With two executors, each a process; for a run of pytest in which nobody asks for `spark`."""
    settings = {"spark.master": "local-cluster[2,1,1024]"}
    session = local_spark(tmp_path_factory.mktemp("cluster"), settings)
    yield session
    session.stop()


@pytest.mark.endurance
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", MANY_RUNS)
def test_nothing_is_lost_or_doubled_in_many_runs(
    request: pytest.FixtureRequest, broker: RunningBroker, tmp_path: Path, seed: int
) -> None:
    """Each victim with each sink; a driver in every fifth run."""
    victim, sink = VICTIMS[seed % 5], SINKS[seed // 5 % 5]
    copy = new_copy(broker, tmp_path)
    fire = Fire(broker, 1000 + seed)
    with noted("one", fire.seed, [sink], fire.told):
        if victim == "driver":
            copy_by_driver(copy, fire, sink)
        else:
            copy_in_session(request.getfixturevalue("cluster"), copy, fire, victim, sink)
        check(copy, sink)


@pytest.mark.endurance
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", MANY_RUNS)
def test_tables_have_every_record_once_in_many_runs(
    request: pytest.FixtureRequest, broker: RunningBroker, tmp_path: Path, seed: int
) -> None:
    """Drivers that are killed three times over, and brokers."""
    copy = new_copy(broker, tmp_path)
    fire = Fire(broker, 2000 + seed, kills=3)
    with noted("tables", fire.seed, TABLES, fire.told):
        if seed % 2:
            copy_in_session(request.getfixturevalue("cluster"), copy, fire, "broker", *TABLES)
        else:
            copy_by_driver(copy, fire, *TABLES)
        for sink in TABLES:
            check(copy, sink)
