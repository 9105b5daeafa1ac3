"""`headrace transactions`, on transactions that are open, ended and hanging."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from tests.cli.conftest import Run
from tests.support.stores import eventually

PATIENCE_S = 60


@pytest.fixture
def name() -> str:
    return f"x-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def producer(bootstrap: str, name: str, topic: str) -> Iterator[Producer]:
    """A producer with one record in an open transaction."""
    made = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    made.init_transactions(PATIENCE_S)
    made.begin_transaction()
    made.produce(topic, b"x", partition=1)
    assert made.flush(PATIENCE_S) == 0
    yield made
    made.purge()


def listed(run: Run, *options: str) -> dict[object, object]:
    rows = run("transactions", "list", *options, "--json").rows()
    return {row["name"]: row["state"] for row in rows}


def test_list_shows_states_and_filters_by_them(
    run: Run, producer: Producer, topic: str, name: str
) -> None:
    assert listed(run)[name] == "Ongoing"
    assert name in listed(run, "--state", "ongoing")
    assert name not in listed(run, "--state", "Empty")
    assert name not in listed(run, "--longer-than", "1h")
    assert name in listed(run, "--longer-than", "1ms")
    assert name in run("transactions", "list").text
    producer.commit_transaction(PATIENCE_S)
    # The answer to a commit comes before its markers are written.
    eventually(lambda: listed(run)[name] == "CompleteCommit", "the commit is complete")


def test_describe_shows_the_partitions_of_an_open_transaction(
    run: Run, producer: Producer, topic: str, name: str
) -> None:
    found = run("transactions", "describe", name, "--json").document()
    assert found["state"] == "Ongoing"
    assert found["partitions"] == [{"topic": topic, "partition": 1}]
    assert f"{topic}:1" in run("transactions", "describe", name).text
    producer.abort_transaction(PATIENCE_S)
    assert run("transactions", "describe", name, "--json").document()["partitions"] == []


def test_abort_ends_the_transaction_and_fences_its_producer(
    run: Run, producer: Producer, topic: str, name: str
) -> None:
    refused = run("transactions", "abort", name)
    assert refused.code == 2
    assert "--yes" in refused.err
    done = run("transactions", "abort", name, "--yes", "--json")
    assert done.document() == {"name": name, "aborted": True}
    assert listed(run)[name] == "Empty"
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)


def test_abort_ends_a_transaction_that_its_coordinator_forgot(
    run: Run, producer: Producer, topic: str, name: str
) -> None:
    where = ("--topic", topic, "--partition", "1")
    wrong = run("transactions", "abort", *where, "--start-offset", "5", "--yes")
    assert wrong.code == 4
    done = run("transactions", "abort", *where, "--start-offset", "0", "--yes")
    assert (done.code, done.text) == (0, f"aborted {topic}-1\n"), done.err
    again = run("transactions", "abort", *where, "--start-offset", "0", "--yes")
    assert again.code == 4


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("describe", "nobody"), 4),
        (("abort", "nobody", "--yes"), 4),
        (("abort", "--yes"), 2),
        (("abort", "x", "--topic", "t", "--start-offset", "0"), 2),
        (("abort", "--topic", "t"), 2),
        (("list", "--longer-than", "soon"), 2),
    ],
)
def test_errors_are_reported_in_one_line(run: Run, words: tuple[str, ...], code: int) -> None:
    assert run("transactions", *words).code == code
