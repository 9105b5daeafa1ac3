"""Batch writes that name their query and epoch, as functions of `foreachBatch` do, without Spark.

A write may end at every step, and Spark then repeats the epoch.
"""

import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from headrace.client import producing
from headrace.client.cluster import Cluster
from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.sink.ledger import Ledger, LedgerError, Page
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.sink.sink import BatchWriter, TaskDone, make_sink
from headrace.testing.running import RunningBroker
from tests.support.apache_kafka import ApacheKafka
from tests.support.committed import committed_values
from tests.support.topics import create_topic

SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TASKS = 3


# Apache Kafka takes its time to start, so that these are marked slow.
@pytest.fixture(
    scope="module",
    params=["headrace", pytest.param("kafka", marks=[pytest.mark.java, pytest.mark.slow])],
)
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == "headrace":
        broker: RunningBroker = request.getfixturevalue("headrace")
        return broker.bootstrap_servers
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return create_topic(bootstrap, f"out-{uuid.uuid4().hex[:8]}", 3)


@contextmanager
def task(number: int, properties: Mapping[str, str]) -> Iterator[None]:
    """Spark's context of a task, in this process."""
    context = TaskContext._getOrCreate()
    context._partitionId = number
    context._localProperties = dict(properties)
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


@dataclass(slots=True)
class Write:
    """One call of the function of `foreachBatch`: Spark makes a writer and pickles it."""

    bootstrap: str
    topic: str
    query: str
    epoch: int
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    pickled: bytes = b""

    def __post_init__(self) -> None:
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.retry.backoff.ms": "20",
            "topic": self.topic,
            "delivery": "exactly-once",
            "query": self.query,
            "epoch": str(self.epoch),
        }
        writer = BatchWriter(make_sink(given | dict(self.options), SCHEMA, overwrite=False))
        self.pickled = pickle.dumps(writer)

    @property
    def writer(self) -> BatchWriter:
        """A copy for another process."""
        writer = pickle.loads(self.pickled)
        assert isinstance(writer, BatchWriter)
        return writer

    @property
    def name(self) -> str:
        return f"{self.topic}:{self.query}"

    def tasks(self, numbers: Sequence[int] = range(TASKS), text: str = "row") -> list[TaskDone]:
        done = []
        for number in numbers:
            with task(number, self.properties):
                done.append(self.writer.write(iter([self.rows_of(number, text)])))
        return done

    def rows_of(self, number: int, text: str) -> pa.RecordBatch:
        row = f"{self.epoch}/{number}/{text}"
        return pa.RecordBatch.from_pydict(
            {"key": pa.array([row]), "value": pa.array([row.encode()], pa.binary())}
        )

    def run(self, numbers: Sequence[int] = range(TASKS), text: str = "row") -> list[TaskDone]:
        done = self.tasks(numbers, text)
        self.writer.commit(done)
        return done

    def cluster(self) -> Cluster:
        return Cluster(parse_options({"kafka.bootstrap.servers": self.bootstrap}).client)

    def ledger(self) -> Ledger:
        return Ledger("headrace-sink", self.topic, 60_000)

    def page(self) -> Page | None:
        with self.cluster() as cluster:
            return self.ledger().read(cluster, self.name)

    def decide(self, done: Sequence[TaskDone]) -> None:
        """What the driver does first in a commit, and then it dies."""
        with self.cluster() as cluster:
            driver = self.ledger().begin(cluster, self.name)
            entries = tuple(each.entry for each in done if each.entry)
            self.ledger().decide(cluster, driver, self.name, Page(self.epoch, entries))

    def end(self, message: TaskDone, *, commit: bool) -> None:
        """End one task's transaction, as the driver does or as the broker does after a timeout."""
        assert message.entry is not None
        name = self.ledger().task_id(Epoch(self.name, self.epoch), message.task)
        with self.cluster() as cluster:
            if commit:
                assert self.ledger().end(cluster, name, message.entry)
            else:
                producing.init_producer(cluster, name)


def written(bootstrap: str, topic: str) -> list[str]:
    return sorted(value.decode() for value in committed_values(bootstrap, topic))


def rows(*epochs: int, tasks: int = TASKS) -> list[str]:
    return sorted(f"{epoch}/{number}/row" for epoch in epochs for number in range(tasks))


def test_a_repeated_epoch_adds_nothing(bootstrap: str, topic: str) -> None:
    for epoch in (0, 1):
        Write(bootstrap, topic, "q", epoch).run()
    again = Write(bootstrap, topic, "q", 1).run(text="another row")
    assert [each.records for each in again] == [0] * TASKS
    assert written(bootstrap, topic) == rows(0, 1)


def test_a_driver_that_dies_before_its_decision_repeats_the_epoch(
    bootstrap: str, topic: str
) -> None:
    Write(bootstrap, topic, "q", 0).tasks(text="first")
    assert written(bootstrap, topic) == []
    Write(bootstrap, topic, "q", 0).run()
    assert written(bootstrap, topic) == rows(0)


def test_a_driver_that_dies_after_its_decision_keeps_what_it_decided(
    bootstrap: str, topic: str
) -> None:
    first = Write(bootstrap, topic, "q", 0)
    first.decide(first.tasks())
    again = Write(bootstrap, topic, "q", 0).run(text="another row")
    assert [each.records for each in again] == [0] * TASKS
    assert written(bootstrap, topic) == rows(0)


def test_a_driver_that_dies_while_it_commits_leaves_the_rest_to_the_repetition(
    bootstrap: str, topic: str
) -> None:
    first = Write(bootstrap, topic, "q", 0)
    done = first.tasks()
    first.decide(done)
    first.end(done[1], commit=True)
    Write(bootstrap, topic, "q", 0).run(text="another row")
    Write(bootstrap, topic, "q", 1).run()
    assert written(bootstrap, topic) == rows(0, 1)


def test_a_decided_part_that_timed_out_is_written_again_alone(bootstrap: str, topic: str) -> None:
    first = Write(bootstrap, topic, "q", 0)
    done = first.tasks()
    first.decide(done)
    first.end(done[0], commit=True)
    first.end(done[1], commit=False)
    again = Write(bootstrap, topic, "q", 0).run()
    assert [each.records for each in again] == [0, 1, 0]
    assert written(bootstrap, topic) == rows(0)


@pytest.mark.parametrize("tasks", [1, 5])
def test_a_repetition_may_have_another_number_of_tasks(
    bootstrap: str, topic: str, tasks: int
) -> None:
    first = Write(bootstrap, topic, "q", 0)
    first.decide(first.tasks())
    Write(bootstrap, topic, "q", 0).run(range(tasks))
    Write(bootstrap, topic, "q", 1).run()
    assert written(bootstrap, topic) == rows(0, 1)


def test_an_epoch_without_tasks_is_decided(bootstrap: str, topic: str) -> None:
    """An empty DataFrame may have no partitions; the next epoch needs the ledger."""
    Write(bootstrap, topic, "q", 0).run([])
    first = Write(bootstrap, topic, "q", 1)
    first.run()
    assert first.page() is not None
    Write(bootstrap, topic, "q", 2).run([])
    Write(bootstrap, topic, "q", 2).run([0], text="of a repetition")
    assert written(bootstrap, topic) == rows(1)


def test_an_epoch_without_tasks_commits_what_an_earlier_run_decided(
    bootstrap: str, topic: str
) -> None:
    first = Write(bootstrap, topic, "q", 0)
    first.decide(first.tasks())
    Write(bootstrap, topic, "q", 0).run([])
    assert written(bootstrap, topic) == rows(0)


def test_epochs_may_be_skipped(bootstrap: str, topic: str) -> None:
    for epoch in (0, 3, 7):
        Write(bootstrap, topic, "q", epoch).run()
    assert written(bootstrap, topic) == rows(0, 3, 7)


@pytest.mark.parametrize("tasks", [0, TASKS])
def test_a_first_epoch_above_zero_needs_a_new_ledger(
    bootstrap: str, topic: str, tasks: int
) -> None:
    with pytest.raises(LedgerError, match=r'is missing.*\.option\("ledger", "new"\)'):
        Write(bootstrap, topic, "q", 4).run(range(tasks))
    Write(bootstrap, topic, "q", 4, {"ledger": "new"}).run(range(tasks))
    Write(bootstrap, topic, "q", 4, {"ledger": "new"}).run()
    Write(bootstrap, topic, "q", 5).run()
    assert written(bootstrap, topic) == (rows(4, 5) if tasks else rows(5))


def test_an_epoch_may_be_written_to_several_topics(bootstrap: str, topic: str) -> None:
    other = create_topic(bootstrap, f"{topic}.0", 1)
    first, second = (Write(bootstrap, each, "q", 0) for each in (topic, other))
    open_parts = first.tasks()
    second.run()
    first.writer.commit(open_parts)
    for each in (topic, other):
        Write(bootstrap, each, "q", 0).run(text="another row")
        assert written(bootstrap, each) == rows(0)


def test_an_epoch_may_be_written_twice_to_a_topic_under_two_names(
    bootstrap: str, topic: str
) -> None:
    for _ in range(2):
        Write(bootstrap, topic, "q", 0).run()
        Write(bootstrap, topic, "q-late", 0).run(text="late")
    late = [f"0/{number}/late" for number in range(TASKS)]
    assert written(bootstrap, topic) == sorted(rows(0) + late)


def test_a_checkpoint_that_begins_again_is_refused(bootstrap: str, topic: str) -> None:
    for epoch in (0, 1):
        Write(bootstrap, topic, "q", epoch).run()
    for tasks in (TASKS, 0):
        with pytest.raises(LedgerError, match="epoch"):
            Write(bootstrap, topic, "q", 0).run(range(tasks))
    assert written(bootstrap, topic) == rows(0, 1)


def test_an_aborted_write_leaves_no_rows_and_is_repeated(bootstrap: str, topic: str) -> None:
    first = Write(bootstrap, topic, "q", 0)
    first.writer.abort([*first.tasks(text="aborted"), None])
    Write(bootstrap, topic, "q", 0).run()
    assert written(bootstrap, topic) == rows(0)


def test_a_second_write_of_a_run_is_refused_and_not_taken_for_a_repetition(
    bootstrap: str, topic: str
) -> None:
    query = str(uuid.uuid4())

    def write(run: str, name: str = query) -> list[TaskDone]:
        properties = {"sql.streaming.queryId": query, "spark.jobGroup.id": run}
        return Write(bootstrap, topic, name, 0, properties=properties).run()

    run = str(uuid.uuid4())
    write(run)
    with pytest.raises(LedgerError, match=r"written in this run.*\.option\(\"query\""):
        write(run)
    write(run, f"{query}-late")
    # The query is restarted and repeats the epoch.
    assert [each.records for each in write(str(uuid.uuid4()))] == [0] * TASKS
    assert written(bootstrap, topic) == sorted(2 * rows(0))


@pytest.mark.parametrize("group", ["my jobs", "", "c3b1d5de-3a57-4c3e-bb6e-1d1d1bd2b0a5"])
def test_a_job_group_of_the_program_does_not_hinder_a_repetition(
    bootstrap: str, topic: str, group: str
) -> None:
    properties = {"spark.jobGroup.id": group, "sql.streaming.queryId": group}
    for _ in range(2):
        Write(bootstrap, topic, "q", 0, properties=properties).run()
    assert written(bootstrap, topic) == rows(0)
