"""The sink's protocol without Spark: a run may end at every step."""

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from headrace.client import producing
from headrace.client.cluster import Cluster
from headrace.errors import KafkaError as WireError
from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.sink.ledger import Ledger, LedgerEntry, LedgerError, Page
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.sink.sink import TaskDone, TopicSink
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.support import groups
from tests.support.apache_kafka import ApacheKafka
from tests.support.committed import committed_values
from tests.support.topics import create_topic, recreate_topic

SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TASKS = 3
ROWS = 40


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


@dataclass(slots=True)
class Query:
    """A query with its topic; epochs run task by task, as far as a test wants."""

    bootstrap: str
    topic: str
    options: dict[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def sink(self, **more: str) -> TopicSink:
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.retry.backoff.ms": "20",
            "topic": self.topic,
            "delivery": "exactly-once",
        }
        return TopicSink(parse_options(given | self.options | more), SCHEMA)

    def tasks(
        self, epoch: int, numbers: Sequence[int] = range(TASKS), **more: str
    ) -> list[TaskDone]:
        sink = self.sink(**more)
        return [
            sink.write(Epoch(self.name, epoch), task, iter([part(epoch, task)]), ledger=True)
            for task in numbers
        ]

    def run(self, epoch: int) -> list[TaskDone]:
        done = self.tasks(epoch)
        self.sink().commit(done, ledger=True)
        return done

    def cluster(self) -> Cluster:
        return Cluster(parse_options({"kafka.bootstrap.servers": self.bootstrap}).client)

    def ledger(self) -> Ledger:
        return Ledger("headrace-sink", self.topic, 60_000)

    def decide(self, epoch: int, done: list[TaskDone]) -> None:
        """What the driver does first in a commit, and then it dies."""
        with self.cluster() as cluster:
            driver = self.ledger().begin(cluster, self.name)
            entries = tuple(each.entry for each in done if each.entry)
            self.ledger().decide(cluster, driver, self.name, Page(epoch, entries))

    def end(self, epoch: int, message: TaskDone, *, commit: bool = True) -> None:
        """End one task's transaction, as the driver does or as the broker does after a timeout."""
        assert message.entry is not None
        name = self.ledger().task_id(Epoch(self.name, epoch), message.task)
        with self.cluster() as cluster:
            if commit:
                assert self.ledger().end(cluster, name, message.entry)
            else:
                producing.init_producer(cluster, name)

    def rows(self) -> list[str]:
        return sorted(value.decode() for value in committed_values(self.bootstrap, self.topic))


def part(epoch: int, task: int) -> pa.RecordBatch:
    names = [f"{epoch}/{task}/{row:03d}" for row in range(ROWS)]
    return pa.RecordBatch.from_pydict(
        {"key": pa.array(names), "value": pa.array([n.encode() for n in names], pa.binary())}
    )


def expected(epochs: int) -> list[str]:
    return sorted(
        f"{epoch}/{task}/{row:03d}"
        for epoch in range(epochs)
        for task in range(TASKS)
        for row in range(ROWS)
    )


@pytest.fixture
def query(bootstrap: str) -> Query:
    return Query(bootstrap, create_topic(bootstrap, f"out-{uuid.uuid4().hex[:8]}", 3))


def test_epochs_arrive_once_and_nothing_is_seen_before_the_commit(query: Query) -> None:
    query.run(0)
    done = query.tasks(1)
    assert query.rows() == expected(1)
    query.sink().commit(done, ledger=True)
    assert query.rows() == expected(2)


def test_a_replayed_epoch_adds_nothing(query: Query) -> None:
    query.run(0)
    query.run(1)
    again = query.run(1)
    assert [each.records for each in again] == [0] * TASKS
    assert query.rows() == expected(2)


def test_a_crash_before_the_decision_repeats_the_epoch(query: Query) -> None:
    query.tasks(0)
    query.run(0)
    assert query.rows() == expected(1)


def test_a_crash_after_the_decision_commits_what_was_decided(query: Query) -> None:
    query.decide(0, query.tasks(0))
    again = query.run(0)
    assert [each.records for each in again] == [0] * TASKS
    assert query.rows() == expected(1)


def test_a_crash_in_the_midst_of_ending_commits_the_rest(query: Query) -> None:
    done = query.tasks(0)
    query.decide(0, done)
    query.end(0, done[1])
    assert [each.records for each in query.run(0)] == [0] * TASKS
    query.run(1)
    assert query.rows() == expected(2)


def test_a_crash_within_the_decision_itself_is_resolved(query: Query) -> None:
    """The driver has put its page into a transaction and dies before it ends that."""
    query.run(0)
    query.tasks(1)
    ledger = query.ledger()
    with query.cluster() as cluster:
        driver = ledger.begin(cluster, query.name)
        ledger._write(cluster, driver, f"headrace-sink.{query.name}", 1, "")
    query.run(1)
    assert query.rows() == expected(2)


def test_a_decided_part_that_its_timeout_took_is_written_again_alone(query: Query) -> None:
    done = query.tasks(0)
    query.decide(0, done)
    query.end(0, done[0])
    query.end(0, done[1], commit=False)
    again = query.run(0)
    assert [each.records for each in again] == [0, ROWS, 0]
    assert query.rows() == expected(1)
    query.run(0)
    assert query.rows() == expected(1)


def test_a_lost_part_and_another_number_of_tasks_is_refused(query: Query) -> None:
    done = query.tasks(0)
    query.decide(0, done)
    query.end(0, done[1], commit=False)
    with pytest.raises(LedgerError, match=r"decided with 3 tasks.*of tasks \[1\]"):
        query.tasks(0, [3])
    messages = query.tasks(0, range(2))
    with pytest.raises(LedgerError, match="the same number of partitions as before"):
        query.sink().commit(messages, ledger=True)


def test_a_replay_with_another_number_of_tasks_adds_nothing(query: Query) -> None:
    query.decide(0, query.tasks(0))
    more = query.tasks(0, range(5))
    query.sink().commit(more, ledger=True)
    assert [each.records for each in more] == [0] * 5
    fewer = query.tasks(0, range(1))
    query.sink().commit(fewer, ledger=True)
    assert query.rows() == expected(1)


def test_a_task_that_is_run_again_replaces_its_first_attempt(query: Query) -> None:
    query.tasks(0, [1])
    query.run(0)
    assert query.rows() == expected(1)


def test_a_zombie_attempt_is_fenced_and_cannot_write(query: Query) -> None:
    sink = query.sink()
    epoch = Epoch(query.name, 0)

    def slow() -> Iterator[pa.RecordBatch]:
        yield part(0, 0)
        # Meanwhile Spark has given this attempt up and started another.
        query.run(0)
        yield part(0, 0)

    with pytest.raises(WireError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        sink.write(epoch, 0, slow(), ledger=True)
    assert query.rows() == expected(1)


def test_an_attempt_that_took_a_finished_ones_place_costs_a_replay_but_no_row(query: Query) -> None:
    done = query.tasks(0)
    query.tasks(0, [2])
    with pytest.raises(LedgerError, match=r"transactions of tasks \[2\] .* Run the query again"):
        query.sink().commit(done, ledger=True)
    query.run(0)
    assert query.rows() == expected(1)


def test_a_driver_that_was_thought_dead_commits_nothing(query: Query) -> None:
    zombie = query.tasks(0)
    query.run(0)
    query.run(1)
    with pytest.raises(LedgerError, match="another driver"):
        query.sink().commit(zombie, ledger=True)
    query.run(1)
    query.run(2)
    assert query.rows() == expected(3)


def test_an_abort_frees_the_readers_at_once_but_spares_what_is_decided(query: Query) -> None:
    done = query.tasks(0)
    query.sink().abort([*done, None])
    with query.cluster() as cluster:
        name = query.ledger().task_id(Epoch(query.name, 0), 0)
        assert done[0].entry is not None
        assert not query.ledger().end(cluster, name, done[0].entry)
    decided = query.tasks(0)
    query.decide(0, decided)
    query.sink().abort(decided)
    assert [each.records for each in query.run(0)] == [0] * TASKS
    assert query.rows() == expected(1)


def test_a_query_without_its_ledger_is_refused_until_a_new_one_is_requested(query: Query) -> None:
    with pytest.raises(LedgerError, match=r'\.option\("ledger", "new"\)'):
        query.tasks(7)
    done = query.tasks(7, ledger="new")
    query.sink(ledger="new").commit(done, ledger=True)
    assert len(query.rows()) == TASKS * ROWS


def test_a_topic_that_was_created_again_has_no_ledger(query: Query) -> None:
    """The ledger is deleted with the topic, so that no new epoch is taken for a replay."""
    query.run(0)
    recreate_topic(query.bootstrap, query.topic, 3)
    deadline = time.monotonic() + 60
    while groups.committed(query.bootstrap, f"headrace-sink.{query.name}"):
        assert time.monotonic() < deadline, "the offsets of a deleted topic stay"
        time.sleep(0.1)
    with pytest.raises(
        LedgerError, match=r'the ledger of earlier epochs is missing.*"ledger", "new"'
    ):
        query.tasks(1)


def test_a_page_may_have_more_tasks_than_one_offset_has_room_for(query: Query) -> None:
    page = Page(4, tuple(LedgerEntry(1 << 40 | number, number % 9) for number in range(620)))
    with query.cluster() as cluster:
        driver = query.ledger().begin(cluster, query.name)
        query.ledger().decide(cluster, driver, query.name, page)
        assert query.ledger().read(cluster, query.name) == page


def test_a_batch_is_all_or_nothing(query: Query) -> None:
    epoch = Epoch(uuid.uuid4().hex, 0)
    sink = query.sink()
    done = [sink.write(epoch, task, iter([part(0, task)]), ledger=False) for task in range(TASKS)]
    assert query.rows() == []
    sink.commit(done, ledger=False)
    assert query.rows() == expected(1)


def test_tasks_without_rows_do_not_fail_a_batch(query: Query) -> None:
    epoch = Epoch(uuid.uuid4().hex, 0)
    sink = query.sink()
    parts = {0: [], 1: [part(0, 1)], 2: [part(0, 2).slice(0, 0)], 3: [part(0, 3)]}
    done = [sink.write(epoch, task, iter(rows), ledger=False) for task, rows in parts.items()]
    sink.commit(done, ledger=False)
    written = [name.decode() for task in (1, 3) for name in part(0, task)["value"].to_pylist()]
    assert query.rows() == sorted(written)


def test_topic_partition_and_headers_come_from_columns(bootstrap: str) -> None:
    names = [create_topic(bootstrap, f"out-{uuid.uuid4().hex[:8]}", 2) for _ in range(2)]
    schema = StructType(
        [
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("value", StringType()),
        ]
    )
    given = {"kafka.bootstrap.servers": bootstrap}
    rows = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([names[0], names[1], names[0], names[1]]),
            "partition": pa.array([1, 0, 0, 1], pa.int32()),
            "value": pa.array(["a", "b", "c", "d"]),
        }
    )
    done = TopicSink(parse_options(given), schema).write(
        Epoch("q", 0), 0, iter([rows]), ledger=False
    )
    assert (done.records, done.entry) == (4, None)
    assert sorted(committed_values(bootstrap, names[0])) == [b"a", b"c"]
    assert sorted(committed_values(bootstrap, names[1])) == [b"b", b"d"]


def test_a_missing_topic_is_made_as_kafkas_producers_do(bootstrap: str) -> None:
    query = Query(bootstrap, f"new-{uuid.uuid4().hex[:8]}")
    query.run(0)
    assert query.rows() == expected(1)


@pytest.mark.parametrize("api", ["Produce", "EndTxn", "TxnOffsetCommit", "InitProducerId"])
@pytest.mark.parametrize("after", [False, True])
def test_a_cut_connection_loses_and_doubles_nothing(
    headrace_factory: BrokerFactory, api: str, after: bool
) -> None:
    broker = headrace_factory({"num.partitions": "3"})
    query = Query(broker.bootstrap_servers, "out", {"kafka.batch.size": "300"})
    query.run(0)
    broker.cut(api, count=2, after=after)
    query.run(1)
    query.run(2)
    assert query.rows() == expected(3)
