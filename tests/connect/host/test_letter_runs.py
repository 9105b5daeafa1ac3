"""Runs over dead letters, with a real driver and broker."""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.groups import committed_offsets, list_groups
from headrace.connect.hosting import ConnectorPlan
from headrace.connect.letter_orders import LetterOrder, LettersRefused, LetterView
from headrace.types import TopicPartition
from tests.connect.host.conftest import HostUnderTest
from tests.connect.host.fire import driver_pid
from tests.connect.host.test_dead_letters import BY_SEVEN, ROWS, kept_in, produce, told
from tests.connect.host.test_spark_host import (
    JSON,
    folder_of,
    in_folder,
    in_topic,
    numbers,
    numbers_into,
)

pytestmark = pytest.mark.spark


class Letters:
    """The dead letters of one connector, through the host."""

    def __init__(self, host: HostUnderTest, name: str, config: dict[str, str]) -> None:
        self.host = host
        self.name = name
        self.config = config

    def plan(self, **changes: str) -> ConnectorPlan:
        return ConnectorPlan(self.name, {"name": self.name, **self.config, **changes})

    def groups(self, where: str = "") -> list[dict[str, Any]]:
        view = LetterView("groups", where)
        found = self.host.call(self.host.host.view_letters(self.plan(), view))
        return list(found["groups"])

    def records(self, where: str = "", limit: int = 100) -> list[dict[str, Any]]:
        view = LetterView("records", where, limit)
        found = self.host.call(self.host.host.view_letters(self.plan(), view))
        return list(found["records"])

    def run(self, order: LetterOrder, **changes: str) -> dict[str, Any]:
        """Begin a run with a changed configuration, and wait until it has ended."""
        self.host.call(self.host.host.run_letters(self.plan(**changes), order))
        return self.ended()

    def ended(self) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            return self.host.call(self.host.host.letter_run(self.name)) or {}

        return self.host.wait(look, lambda found: found["state"] != "running")

    def position(self) -> int:
        """The committed offset of the group."""
        place = TopicPartition(self.config["errors.deadletterqueue.topic.name"], 0)
        with Cluster(client_config({"bootstrap.servers": self.host.bootstrap})) as cluster:
            return committed_offsets(cluster, f"connect-{self.name}-dlq")[place].offset


@pytest.fixture
def refused(host: HostUnderTest, topic: str, started: list[str], tmp_path: Path) -> Letters:
    """A connector whose target has refused three of ten records."""
    values = [b'{"lane": 0, "n": %d}' % n for n in range(10)]
    produce(host, topic, *values)
    config = folder_of(topic, tmp_path, refused="7,8,9") | kept_in(f"{topic}-dead")
    name = f"refused-{topic}"
    started.append(name)
    host.start(name, config)
    letters = Letters(host, name, config)
    host.wait(lambda: host.status(name), lambda found: found.progress.failed_records == 3)
    host.wait(lambda: len(in_folder(tmp_path)), lambda found: found == 7)
    return letters


def test_a_replay_goes_through_the_connector_and_what_fails_again_comes_back(
    refused: Letters, tmp_path: Path
) -> None:
    (group,) = refused.groups()
    assert (group["count"], group["stage"], group["attempts"]) == (3, "TASK_PUT", 1)
    assert group["exception"] == "headrace.connect.plugin.RecordError"
    assert group["first"] <= group["last"]
    done = refused.run(LetterOrder("replay"), refused="8")
    assert (done["state"], done["total"], done["done"]) == ("finished", 3, 3)
    assert (done["written"], done["failed_again"]) == (2, 1)
    assert in_folder(tmp_path) == Counter((0, n) for n in (0, 1, 2, 3, 4, 5, 6, 7, 9))
    (again,) = refused.records()
    assert json.loads(again["value"]) == {"lane": 0, "n": 8}
    assert (again["attempt"], again["offset"]) == (2, 8)
    assert again["id"] == f"{refused.config['topics']}-0-8"
    assert again["headers"] == [["mine", "yes"]]
    assert refused.position() == 3
    # The groups of the run's transactions are gone.
    with Cluster(client_config({"bootstrap.servers": refused.host.bootstrap})) as cluster:
        left = [each.name for each in list_groups(cluster)[0]]
    assert not [name for name in left if name.startswith("connect-dead-letters")]


def test_letters_that_do_not_match_wait_on(refused: Letters, tmp_path: Path) -> None:
    order = LetterOrder("replay", "offset = 8 or message like 'unknown%'")
    done = refused.run(order, refused="")
    assert (done["written"], done["kept"], done["state"]) == (1, 2, "finished")
    assert (0, 8) in in_folder(tmp_path)
    waiting = refused.records()
    assert [(each["offset"], each["attempt"]) for each in waiting] == [(7, 1), (9, 1)]
    done = refused.run(LetterOrder("replay", limit=1), refused="")
    assert (done["written"], done["kept"]) == (1, 0)
    assert [each["offset"] for each in refused.records()] == [9]
    done = refused.run(LetterOrder("discard"))
    assert (done["discarded"], done["state"]) == (1, "finished")
    assert refused.records() == []
    assert in_folder(tmp_path) == Counter((0, n) for n in range(9))


def test_letters_of_other_connectors_and_repeated_letters_are_passed_over(
    refused: Letters, tmp_path: Path
) -> None:
    dead = refused.config["errors.deadletterqueue.topic.name"]
    producer = Producer({"bootstrap.servers": refused.host.bootstrap})
    for _, value, headers in refused.host.records(dead)[:1]:
        of_other = {**headers, "__connect.errors.connector.name": b"other"}
        for given in (headers, of_other):
            producer.produce(dead, value, headers=list(given.items()))
    assert producer.flush(60) == 0
    done = refused.run(LetterOrder("replay"), refused="")
    assert (done["written"], done["kept"], done["state"]) == (3, 0, "finished")
    assert in_folder(tmp_path) == Counter((0, n) for n in range(10))
    assert refused.records() == []
    assert len(refused.host.records(dead)) == 5


def test_a_dry_run_and_a_condition_that_is_none_change_nothing(refused: Letters) -> None:
    order = LetterOrder("replay", "attempt = 1 and offset > 7", dry_run=True)
    plan = refused.host.call(refused.host.host.run_letters(refused.plan(), order))
    assert (plan["total"], plan["done"]) == (2, 0)
    for where, why in {
        "offset": "offset is bigint, not a condition",
        "nowhere = 1": "the columns are topic, partition, offset",
        "offset in (select 1)": "select is not allowed",
        "`reflect`('java.lang.System', 'exit', 0) = 1": "reflect is not allowed",
    }.items():
        with pytest.raises(LettersRefused, match=why):
            refused.groups(where)
        with pytest.raises(LettersRefused, match=why):
            refused.run(LetterOrder("replay", where))
    assert len(refused.records("message <> 'select'")) == 3


def test_a_run_that_is_killed_with_its_driver_loses_and_repeats_nothing(
    host: HostUnderTest, topic: str, tmp_path: Path
) -> None:
    dead = f"{topic}-dead"
    host.create(dead)
    config = folder_of(topic, tmp_path, refused="20000") | kept_in(dead)
    letters = Letters(host, "killed", config)
    count = 35_000
    producer = Producer(
        {"bootstrap.servers": host.bootstrap, "queue.buffering.max.messages": count}
    )
    for n in range(count):
        about = {"topic": topic, "partition": "0", "offset": str(n), "attempt": "1", "id": str(n)}
        headers = [(f"__connect.errors.{name}", text.encode()) for name, text in about.items()]
        producer.produce(dead, b'{"lane": 0, "n": %d}' % n, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0
    # A letter of each chunk does not match. It is written after the others, so that the chunk has
    # not ended when its file is there.
    order = LetterOrder("replay", "offset % 10000 <> 5000")
    host.call(host.host.run_letters(letters.plan(), order))
    host.wait(lambda: len(in_folder(tmp_path)), lambda found: found > 0)
    os.kill(driver_pid(), signal.SIGKILL)
    done = letters.ended()
    assert (done["state"], done["error"]) == ("finished", None)
    expected = numbers(1, count)
    for n in (5000, 15000, 20000, 25000):
        del expected[(0, n)]
    assert in_folder(tmp_path) == expected
    left = letters.records()
    attempts = {each["offset"]: each["attempt"] for each in left}
    assert attempts == {5000: 1, 15000: 1, 20000: 2, 25000: 1}
    assert len(left) == 4


def test_rows_of_a_source_are_replayed_into_its_topic(
    host: HostUnderTest, topic: str, started: list[str]
) -> None:
    name = "replayed source"
    started.append(name)
    config = {**numbers_into(topic, lanes="2", upto="20"), **BY_SEVEN, **kept_in(f"{topic}-dead")}
    host.start(name, config)
    host.wait(lambda: host.status(name), lambda found: found.progress.failed_records == 2)
    letters = Letters(host, name, config)
    done = letters.run(LetterOrder("replay", "timestamp is not null", 1))
    assert (done["written"], done["failed_again"], done["state"]) == (0, 1, "finished")
    assert sorted(each["attempt"] for each in letters.records()) == [1, 2]
    fixed = "select value.lane, value.n from record"
    done = letters.run(LetterOrder("replay"), **{"transforms.inverse.sql": fixed})
    assert (done["written"], done["failed_again"], done["state"]) == (2, 0, "finished")
    assert in_topic(host, topic) == numbers(2, 20)
    assert letters.records() == []


def test_letters_of_a_table_are_replayed_into_it_once(
    host: HostUnderTest, topic: str, tmp_path: Path
) -> None:
    path, dead = tmp_path / "table", f"{topic}-dead"
    host.create(dead)
    config = {
        **JSON,
        **kept_in(dead),
        "connector.class": "DeltaSink",
        "topics": topic,
        "table.path": str(path),
        "value.schema": "id bigint, size bigint",
    }
    letters = Letters(host, "replayed table", config)
    produce(host, dead, *ROWS)
    done = letters.run(LetterOrder("replay"))
    assert (done["written"], done["failed_again"], done["state"]) == (4, 1, "finished")
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted(row["size"] or 0 for row in rows) == [0, 5, 6, 5_000_000_000]
    assert {row["topic"] for row in rows} == {topic}
    (again,) = letters.records()
    assert (again["value"], again["stage"]) == ("no JSON", "VALUE_CONVERTER")
    about = told(host.records(dead)[-1][2])
    assert about["attempt"] == "1"
