"""Queries of a program are started one after the other, and their checkpoints are known."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from headrace.pipelines.running import starts
from headrace.pipelines.running.starts import Starts, lasting

RANDOM = "97791a3c-6031-43ea-976a-922fd3fe1fe6"
"""As Spark names the checkpoint of a query without a name."""


@pytest.mark.parametrize(
    ("path", "name", "found"),
    [
        ("file:/checkpoints/orders", None, True),
        (f"file:/checkpoints/{RANDOM}", "orders", True),
        (f"file:/checkpoints/{RANDOM}", None, False),
        ("file:///tmp/temporary-0a1b2c", None, False),
        ("file:///tmp/temporary-0a1b2c", "orders", False),
    ],
)
def test_a_checkpoint_lasts_if_its_path_is_the_same_in_every_run(
    path: str, name: str | None, found: bool
) -> None:
    assert lasting(path, name) is found


@pytest.fixture
def watched() -> Iterator[Starts]:
    """The changes in PySpark's classes, for one test."""
    names = ((DataStreamReader, ("load", "table")), (DataStreamWriter, ("start", "toTable")))
    before = [(kind, name, vars(kind)[name]) for kind, all_ in names for name in all_]
    found = Starts()
    found.watch()
    yield found
    for kind, name, original in before:
        setattr(kind, name, original)


def begin(spark: SparkSession, checkpoint: Path | None, name: str | None = None) -> StreamingQuery:
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    writer = rates.writeStream.format("noop").trigger(processingTime="1 second")
    if name is not None:
        writer = writer.queryName(name)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.start()


@pytest.mark.spark
def test_a_query_waits_until_the_one_before_it_has_planned(
    spark: SparkSession, watched: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they are started by one thread or by several."""
    begun: list[str] = []
    planned: list[str] = []
    original = starts.wait_until_planned

    def waiting(query: Any) -> None:
        original(query)
        if query is not None:
            assert starts._planned(query)
            planned.append(str(query.id))

    monkeypatch.setattr(starts, "wait_until_planned", waiting)
    queries: list[StreamingQuery] = []

    def add(number: int) -> None:
        queries.append(begin(spark, tmp_path / str(number)))
        begun.append(str(queries[-1].id))

    add(0)
    threads = [threading.Thread(target=add, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for query in queries:
        query.stop()
    assert len(queries) == 3
    assert set(begun[:-1]) <= set(planned)
    assert (watched.streaming, watched.without_checkpoint) == (True, [])


@pytest.mark.spark
def test_a_query_whose_checkpoint_no_restart_would_find_is_noted(
    spark: SparkSession, watched: Starts
) -> None:
    query = begin(spark, None, "temporary")
    query.stop()
    assert watched.without_checkpoint == ["temporary"]


def test_a_query_that_never_plans_holds_up_the_next_one_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stuck:
        name, id = "stuck", "1"

    monkeypatch.setattr(starts, "PLANNED_WITHIN_S", 0.1)
    monkeypatch.setattr(starts, "_planned", lambda query: False)
    starts.wait_until_planned(Stuck())
    assert "stuck has not planned" in caplog.text
