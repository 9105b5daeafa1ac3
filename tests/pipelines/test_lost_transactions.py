"""Why the open transactions of a write may be lost before the driver commits them.

A batch write without a ledger then writes nothing; an epoch is completed by its repetition.
"""

import pickle
import time
import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.client import producing
from headrace.client.cluster import Cluster
from headrace.client.transactions import describe_transaction
from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.sink.ledger import ONGOING, LedgerError
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.sink.sink import BatchWriter, TaskDone, TopicSink, make_sink
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.support.committed import committed_values

SCHEMA = StructType([StructField("value", BinaryType())])
TASKS = 3
LOST = r"transactions of tasks \[1\] of epoch 0 were lost before they could be committed"


@pytest.fixture
def broker(headrace_factory: BrokerFactory) -> RunningBroker:
    return headrace_factory({"num.partitions": "2"})


class Job:
    """One write, task by task; `ledger` tells whether it names its epoch."""

    def __init__(self, broker: RunningBroker, ledger: bool, **more: str) -> None:
        self.broker = broker
        self.ledger = ledger
        self.epoch = Epoch("out:q" if ledger else uuid.uuid4().hex, 0)
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.retry.backoff.ms": "20",
            "topic": "out",
            "delivery": "exactly-once",
        }
        more = {name.replace("_", "."): value for name, value in more.items()}
        self.sink = TopicSink(parse_options(given | more), SCHEMA)

    def task(self, number: int, text: str = "row") -> TaskDone:
        row = pa.array([f"{number}/{text}".encode()], pa.binary())
        batch = pa.RecordBatch.from_arrays([row], ["value"])
        return self.sink.write(self.epoch, number, iter([batch]), self.ledger)

    def commit(self, done: list[TaskDone]) -> None:
        self.sink.commit(done, self.ledger)

    def cluster(self) -> Cluster:
        address = {"kafka.bootstrap.servers": self.broker.bootstrap_servers}
        return Cluster(parse_options(address).client)

    def name(self, number: int) -> str:
        return f"headrace-sink.{self.epoch.query}.{number}"

    def state(self, number: int) -> str:
        with self.cluster() as cluster:
            return describe_transaction(cluster, self.name(number)).state

    def written(self) -> list[str]:
        values = committed_values(self.broker.bootstrap_servers, "out")
        return sorted(value.decode() for value in values)


def wait_for(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, f"{what} does not happen"
        time.sleep(0.05)


def later_attempt(job: Job) -> list[TaskDone]:
    """Spark starts a task again, and then takes the result of the first attempt."""
    done = [job.task(number) for number in range(TASKS)]
    job.task(1, "of a later attempt")
    return done


def timeout(job: Job) -> list[TaskDone]:
    """The broker aborts the transaction of a task that has a shorter timeout than the write."""
    done = [job.task(0)]
    brief = Job(job.broker, job.ledger, kafka_transaction_timeout_ms="1000")
    brief.epoch = job.epoch
    done += [brief.task(1), job.task(2)]
    job.broker.move_clock(5_000)
    wait_for(lambda: job.state(1) != ONGOING, "the timeout of a transaction")
    return done


def late_request(job: Job) -> list[TaskDone]:
    """The broker executes a request that the client has given up and repeated."""
    done = [job.task(number) for number in range(TASKS)]
    with job.cluster() as cluster:
        producing.init_producer(cluster, job.name(1))
    return done


@pytest.mark.parametrize("lose", [later_attempt, timeout, late_request])
def test_a_batch_that_has_lost_a_part_writes_nothing(
    broker: RunningBroker, lose: Callable[[Job], list[TaskDone]]
) -> None:
    job = Job(broker, ledger=False)
    done = lose(job)
    with pytest.raises(LedgerError, match=f"{LOST}.* None of the rows are in the topic"):
        job.commit(done)
    job.sink.abort_job(job.epoch, TASKS)
    assert job.written() == []
    again = Job(broker, ledger=False)
    again.commit([again.task(number) for number in range(TASKS)])
    assert again.written() == ["0/row", "1/row", "2/row"]


@pytest.mark.parametrize("lose", [later_attempt, timeout, late_request])
def test_an_epoch_that_has_lost_a_part_is_completed_by_its_repetition(
    broker: RunningBroker, lose: Callable[[Job], list[TaskDone]]
) -> None:
    job = Job(broker, ledger=True)
    done = lose(job)
    with pytest.raises(LedgerError, match=f"{LOST}.* Run the query again"):
        job.commit(done)
    job.sink.abort(done)
    job.commit([job.task(number) for number in range(TASKS)])
    assert job.written() == ["0/row", "1/row", "2/row"]


def test_an_aborted_batch_leaves_no_transaction_of_a_killed_task_open(
    broker: RunningBroker,
) -> None:
    """Its transaction would hide later rows from readers until it times out."""
    job = Job(broker, ledger=False)
    job.task(0, "of an attempt without a result")
    job.sink.abort_job(job.epoch, TASKS)
    again = Job(broker, ledger=False)
    again.commit([again.task(0)])
    assert again.written() == ["0/row"]


@pytest.mark.parametrize("api", ["Produce", "EndTxn", "InitProducerId", "DescribeTransactions"])
@pytest.mark.parametrize("after", [False, True])
def test_a_batch_survives_cut_connections(broker: RunningBroker, api: str, after: bool) -> None:
    job = Job(broker, ledger=False)
    broker.cut(api, count=2, after=after)
    job.commit([job.task(number) for number in range(TASKS)])
    assert job.written() == ["0/row", "1/row", "2/row"]
    assert broker.faults_left() == 0


@pytest.mark.parametrize("api", ["Produce", "EndTxn"])
def test_a_batch_survives_requests_that_are_executed_after_their_timeout(
    broker: RunningBroker, api: str
) -> None:
    job = Job(broker, ledger=False, kafka_request_timeout_ms="1000")
    done = [job.task(number) for number in range(TASKS)] if api == "EndTxn" else []
    broker.delay(api, 3)
    job.commit(done or [job.task(number) for number in range(TASKS)])
    assert job.written() == ["0/row", "1/row", "2/row"]


def test_writes_without_an_epoch_do_not_share_transactions() -> None:
    """Spark pickles a writer into its tasks and, apart from them, into its commit."""
    options = {"kafka.bootstrap.servers": "localhost:9092", "topic": "out"}

    def copies() -> set[Epoch]:
        writer = BatchWriter(make_sink(options, SCHEMA, overwrite=False))
        pickled = [pickle.dumps(writer) for _ in range(2)]
        return {pickle.loads(each)._epoch for each in pickled}

    first, second = copies(), copies()
    assert len(first) == len(second) == 1
    assert first != second
