"""Dead letters of sources and of table sinks, with a real driver and broker."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

from headrace.connect.hosting import RunState
from tests.connect.host.conftest import HostUnderTest
from tests.connect.host.test_spark_host import (
    JSON,
    folder_of,
    in_folder,
    in_topic,
    numbers,
    numbers_into,
)

pytestmark = pytest.mark.spark

BY_SEVEN = {
    "transforms": "inverse",
    "transforms.inverse.type": "headrace.Sql",
    "transforms.inverse.sql": "select value.lane, value.n + 0 * (1 div (value.n - 7)) as n "
    "from record",
}
"""Fails for the number 7: a division by zero."""
TOLERANT = {"errors.tolerance": "all"}


def kept_in(topic: str) -> dict[str, str]:
    return {
        **TOLERANT,
        "errors.deadletterqueue.topic.name": topic,
        "errors.deadletterqueue.context.headers.enable": "true",
    }


def told(headers: dict[str, bytes]) -> dict[str, str]:
    """The headers of a dead letter about its error."""
    prefix = "__connect.errors."
    found = {name: text.decode() for name, text in headers.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix): text for name, text in found.items()}


def test_rows_of_a_source_that_fail_are_dead_letters_of_the_same_epoch(
    host: HostUnderTest, topic: str, started: list[str]
) -> None:
    started.append("by seven")
    dead = f"{topic}-dead"
    host.start(
        "by seven", {**numbers_into(topic, lanes="2", upto="20"), **BY_SEVEN, **kept_in(dead)}
    )
    status = host.wait(
        lambda: host.status("by seven"), lambda found: found.progress.failed_records == 2
    )
    assert status.state is RunState.RUNNING
    expected = numbers(2, 20)
    del expected[(0, 7)], expected[(1, 7)]
    assert in_topic(host, topic) == expected
    # The topic was created by the connector.
    letters = host.records(dead)
    assert sorted(json.loads(value or b"")["lane"] for _, value, _ in letters) == [0, 1]
    assert all(json.loads(value or b"")["n"] == 7 for _, value, _ in letters)
    about = told(letters[0][2])
    assert about["topic"] == topic
    assert about["connector.name"] == "by seven"
    assert about["stage"] == "TRANSFORMATION"
    assert about["class.name"] == "headrace.Sql"
    assert about["exception.message"] == (
        "transforms.inverse.sql: n cannot be computed for this record"
    )
    assert about["attempt"] == "1"
    assert about["id"]


def test_without_a_topic_failed_rows_are_dropped_and_counted(
    host: HostUnderTest, topic: str, started: list[str]
) -> None:
    started.append("dropping")
    config = {**numbers_into(topic, upto="20"), **BY_SEVEN, **TOLERANT}
    host.start("dropping", config)
    host.wait(lambda: host.status("dropping"), lambda found: found.progress.failed_records == 1)
    assert len(in_topic(host, topic)) == 19


def test_without_tolerance_a_source_fails_with_the_reason(
    host: HostUnderTest, topic: str, started: list[str]
) -> None:
    started.append("intolerant")
    host.start("intolerant", {**numbers_into(topic, upto="20"), **BY_SEVEN})
    status = host.wait_for("intolerant", RunState.FAILED)
    assert status.trace is not None
    assert "n cannot be computed for this record" in status.trace.splitlines()[0]
    assert in_topic(host, topic) == Counter()


def produce(host: HostUnderTest, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": host.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0, headers=[("mine", b"yes")])
    assert producer.flush(60) == 0


ROWS = (
    b'{"id": 1, "size": 5}',
    b"no JSON",
    b'{"id": 2, "size": 5000000000}',
    b'{"size": 6}',
    b'{"id": 3}',
)
REASONS = {
    "1": "VALUE_CONVERTER",
    "2": "TASK_PUT: the value does not fit the column size int",
    "3": "TASK_PUT: the column id of the table must have a value",
}


def check_letters(host: HostUnderTest, dead: str) -> None:
    letters = host.wait(lambda: host.records(dead), lambda found: len(found) >= 3)
    assert len(letters) == 3
    for _, value, headers in letters:
        about = told(headers)
        assert value == ROWS[int(about["offset"])]
        assert headers["mine"] == b"yes"
        reason = f"{about['stage']}: {about['exception.message']}"
        assert reason.startswith(REASONS[about["offset"]])


def test_rows_that_do_not_fit_a_delta_table_are_dead_letters(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started.append("delta")
    path, dead = tmp_path / "table", f"{topic}-dead"
    columns = [pa.field("id", pa.int64(), nullable=False), pa.field("size", pa.int32())]
    DeltaTable.create(str(path), pa.schema(columns))
    produce(host, topic, *ROWS)
    config = {
        **JSON,
        **kept_in(dead),
        "connector.class": "DeltaSink",
        "topics": topic,
        "table.path": str(path),
        "value.schema": "id bigint, size bigint",
        "poll.interval.ms": "200",
    }
    host.start("delta", config)
    check_letters(host, dead)

    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
        return found

    found = host.wait(rows, lambda found: len(found) >= 2)
    assert [(row["id"], row["size"], row["offset"]) for row in found] == [(1, 5, 0), (3, None, 4)]
    status = host.wait(lambda: host.status("delta"), lambda each: each.progress.failed_records == 3)
    assert status.state is RunState.RUNNING


def test_rows_that_do_not_fit_an_iceberg_table_are_dead_letters(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started.append("iceberg")
    dead = f"{topic}-dead"
    catalog = SqlCatalog(
        "default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}"
    )
    catalog.create_namespace("lake")
    fields = (
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "size", IntegerType(), required=False),
    )
    catalog.create_table("lake.sizes", Schema(*fields))
    produce(host, topic, *ROWS)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}",
    }
    config = {
        **JSON,
        **kept_in(dead),
        "connector.class": "IcebergSink",
        "topics": topic,
        "table.name": "lake.sizes",
        "catalog.options": json.dumps(properties),
        "value.schema": "id bigint, size bigint",
        "poll.interval.ms": "200",
    }
    host.start("iceberg", config)
    check_letters(host, dead)

    def ids() -> list[int]:
        found: list[int] = catalog.load_table("lake.sizes").scan().to_arrow()["id"].to_pylist()
        return sorted(found)

    host.wait(ids, lambda found: found == [1, 3])


def test_dead_letters_have_no_headers_of_errors_unless_they_are_enabled(
    host: HostUnderTest, topic: str, started: list[str], tmp_path: Path
) -> None:
    started.append("plain")
    dead = f"{topic}-dead"
    produce(host, topic, b'{"lane": 0, "n": 1}', b'{"lane": 0, "n": 7}')
    config = folder_of(topic, tmp_path, refused="7", errors_deadletterqueue_topic_name=dead)
    host.start("plain", {**config, **TOLERANT})
    host.wait(lambda: in_folder(tmp_path), lambda found: found == Counter({(0, 1): 1}))
    ((_, value, headers),) = host.wait(lambda: host.records(dead), bool)
    assert json.loads(value or b"") == {"lane": 0, "n": 7}
    assert headers == {"mine": b"yes"}
