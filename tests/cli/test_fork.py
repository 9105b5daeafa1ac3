"""`headrace topics fork`, on a Headrace broker and as a copy, which Apache Kafka needs."""

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cli.conftest import Run
from tests.support import java
from tests.support.apache_kafka import ApacheKafka

PATIENCE_S = 60
Copied = tuple[bytes | None, bytes | None, object, tuple[int, int]]


def fill(bootstrap: str, topic: str, count: int = 200) -> None:
    """Records in two partitions: committed, aborted, compressed, with headers and without."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": topic,
            "compression.type": "lz4",
            "batch.num.messages": 10,
        }
    )
    producer.init_transactions(PATIENCE_S)
    for part, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for number in range(count):
            value = b"%d %d" % (part, number) if number % 7 else None
            headers = [("part", b"%d" % part)] if number % 3 else []
            producer.produce(
                topic, value, b"%d" % number, number % 2, timestamp=1000 + number, headers=headers
            )
        if commit:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.flush(PATIENCE_S)  # so that there is something to abort
            producer.abort_transaction(PATIENCE_S)


def read(bootstrap: str, topic: str, count: int) -> list[list[Copied]]:
    """All committed records of two partitions, which have `count` each."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    found: list[list[Copied]] = []
    for index in range(2):
        consumer.assign([TopicPartition(topic, index, 0)])
        records: list[Copied] = []
        while len(records) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None
            records.append((message.key(), message.value(), message.headers(), message.timestamp()))
        found.append(records)
    consumer.close()
    return found


def parent_of(run: Run, bootstrap: str) -> str:
    name = f"fork-{uuid.uuid4().hex[:8]}"
    created = run("topics", "create", name, "-p", "2", "-c", "retention.ms=-1")
    assert created.code == 0, created.err
    fill(bootstrap, name)
    return name


def test_a_fork_shares_the_records_and_their_offsets(run: Run, bootstrap: str) -> None:
    parent = parent_of(run, bootstrap)
    fork = f"{parent}.fork"
    made = run("topics", "fork", parent, fork, "--json")
    assert made.code == 0, made.err
    ends = {"0": 303, "1": 303}
    assert made.document() == {
        "name": fork, "parent": parent, "copied": False, "offsets": ends, "records": 606,
    }  # fmt: skip
    assert read(bootstrap, fork, 200) == read(bootstrap, parent, 200)
    configs = run("topics", "describe", fork, "--json").document()["configs"]
    assert isinstance(configs, dict)
    assert configs["retention.ms"] == "-1"
    assert (configs["fork.of"], configs["fork.offsets"]) == (parent, "303,303")
    again = run("topics", "fork", parent, fork)
    assert (again.code, "exists" in again.err) == (1, True)


def test_the_position_of_a_fork_is_now_offsets_or_a_time(run: Run, bootstrap: str) -> None:
    parent = parent_of(run, bootstrap)

    def offsets(at: str) -> object:
        made = run(
            "topics", "fork", parent, f"{parent}.{uuid.uuid4().hex[:6]}", "--at", at, "--json"
        )
        assert made.code == 0, made.err
        return made.document()["offsets"]

    assert offsets("now") == {"0": 303, "1": 303}
    assert offsets("100,7") == {"0": 100, "1": 7}
    assert offsets("50") == {"0": 50, "1": 50}
    assert offsets("@1100") == {"0": 50, "1": 50}
    assert offsets("beginning") == {"0": 0, "1": 0}
    for wrong in ("1,2,3", "1,x", "1,1000", "nonsense"):
        assert run("topics", "fork", parent, f"{parent}.wrong", "--at", wrong).code == 2, wrong
    assert run("topics", "fork", "nothing-here", "x").code == 4


def test_a_copy_has_the_committed_records(run: Run, bootstrap: str) -> None:
    parent = parent_of(run, bootstrap)
    made = run("topics", "fork", parent, f"{parent}.copy", "--copy")
    assert made.code == 0, made.err
    assert "copied" in made.text
    assert "new offsets" in made.err
    assert read(bootstrap, f"{parent}.copy", 200) == read(bootstrap, parent, 200)


@pytest.mark.java
def test_a_fork_on_apache_kafka_is_a_copy(
    here: Run, apache_kafka: ApacheKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = apache_kafka.bootstrap
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", bootstrap)
    parent = parent_of(here, bootstrap)
    made = here("topics", "fork", parent, f"{parent}.copy", "--at", "100,303", "--json")
    assert made.code == 0, made.err
    assert made.document()["copied"] is True
    of_copy = read(bootstrap, f"{parent}.copy", 100)
    assert of_copy == [one[:100] for one in read(bootstrap, parent, 200)]
    configs = here("topics", "describe", f"{parent}.copy", "--json").document()["configs"]
    assert configs == {"retention.ms": "-1"}


@pytest.mark.java
def test_kafkas_tool_reads_the_files_of_a_fork(run: Run, bootstrap: str, data_folder: Path) -> None:
    if reason := java.missing():
        pytest.skip(reason)
    parent = parent_of(run, bootstrap)
    fork = f"{parent}.fork"
    assert run("topics", "fork", parent, fork, "--at", "50,50").code == 0
    files = sorted(map(str, (data_folder / f"{fork}-0").glob("*.log")))
    dumped = java.run_tool("kafka-dump-log", "--deep-iteration", "--files", ",".join(files)).text
    assert "isvalid: false" not in dumped
    assert "endTxnMarker: COMMIT" in dumped
