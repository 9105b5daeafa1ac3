"""A driver without the checkpoint of its predecessor takes over; the predecessor may still run."""

import uuid

import pytest

from headrace.client import producing
from headrace.client.transactions import list_transactions
from headrace.pipelines.sink.ledger import Ledger, LedgerError, Page
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.sink.takeover import NOT_ENDED, take_over, take_over_writes
from headrace.testing.running import RunningBroker
from tests.pipelines.test_sink import Query, expected
from tests.support.apache_kafka import ApacheKafka
from tests.support.topics import create_topic


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


class OwnedQuery(Query):
    """A query of one of several drivers that continue each other."""

    prefix: str

    def take_over(self) -> None:
        given = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.topic}
        take_over_writes({**given, "delivery": "exactly-once", **self.options})

    def ledger(self) -> Ledger:
        return Ledger(self.options["transactionalIdPrefix"], self.topic, 60_000, self.name)

    def decide_only(self, epoch: int) -> None:
        """The driver dies after its decision, before it commits the transactions of the tasks."""
        done = self.tasks(epoch)
        with self.cluster() as cluster:
            driver = self.ledger().begin(cluster, self.name)
            entries = tuple(each.entry for each in done if each.entry)
            self.ledger().decide(cluster, driver, self.name, Page(epoch, entries))


@pytest.fixture
def drivers(bootstrap: str) -> tuple[OwnedQuery, OwnedQuery]:
    topic = create_topic(bootstrap, f"out-{uuid.uuid4().hex[:8]}", 3)
    prefix = f"connect-{topic}"

    def make() -> OwnedQuery:
        name = uuid.uuid4().hex
        options = {"transactionalIdPrefix": prefix, "ledgerOwner": name}
        return OwnedQuery(bootstrap, topic, options, name)

    return make(), make()


def open_transactions(query: Query) -> list[str]:
    with query.cluster() as cluster:
        found = list_transactions(cluster, NOT_ENDED)
    prefix = query.options["transactionalIdPrefix"]
    return [each.transactional_id for each in found if each.transactional_id.startswith(prefix)]


def test_an_epoch_that_was_not_decided_is_aborted(drivers: tuple[OwnedQuery, OwnedQuery]) -> None:
    first, second = drivers
    first.take_over()
    first.run(0)
    first.tasks(1)
    assert open_transactions(first)
    second.take_over()
    assert open_transactions(first) == []
    assert second.rows() == expected(1)


def test_an_epoch_that_was_decided_is_committed(drivers: tuple[OwnedQuery, OwnedQuery]) -> None:
    first, second = drivers
    first.take_over()
    first.run(0)
    first.decide_only(1)
    assert first.rows() == expected(1)
    second.take_over()
    assert open_transactions(first) == []
    assert second.rows() == expected(2)


def test_a_driver_that_is_thought_dead_decides_nothing_more(
    drivers: tuple[OwnedQuery, OwnedQuery],
) -> None:
    first, second = drivers
    first.take_over()
    first.run(0)
    done = first.tasks(1)
    second.take_over()
    with pytest.raises(LedgerError, match="another driver"):
        first.sink().commit(done, ledger=True)
    # It may also begin an epoch that its successor does not know.
    done = first.tasks(2)
    with pytest.raises(LedgerError, match="another driver"):
        first.sink().commit(done, ledger=True)
    first.sink().abort(done)
    assert second.rows() == expected(1)
    second.run(0)
    assert len(second.rows()) == 2 * len(expected(1))


def test_a_decision_during_the_take_over_is_fenced(
    drivers: tuple[OwnedQuery, OwnedQuery],
) -> None:
    first, second = drivers
    first.take_over()
    done = first.tasks(0)
    ledger = first.ledger()
    with first.cluster() as cluster:
        driver = ledger.begin(cluster, first.name)
        second.take_over()
        entries = tuple(each.entry for each in done if each.entry)
        with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
            ledger.decide(cluster, driver, first.name, Page(0, entries))
    assert second.rows() == []


def test_a_prefix_that_begins_like_another_is_left_alone(
    drivers: tuple[OwnedQuery, OwnedQuery],
) -> None:
    first, second = drivers
    first.take_over()
    other = f"{first.options['transactionalIdPrefix']}.more.{uuid.uuid4()}.0"
    with first.cluster() as cluster:
        writer = producing.init_producer(cluster, other)
        first.ledger().mark(cluster, writer, 0)
        take_over(cluster, second.ledger())
    assert open_transactions(first) == [other]


def test_the_options_of_the_sink_name_the_owner() -> None:
    found = parse_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "ledgerOwner": "me"})
    assert found.owner == "me"
