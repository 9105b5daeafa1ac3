"""Streams through Spark itself: every record once across restarts, and a query that is a group."""

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from headrace.testing.running import RunningBroker
from tests.support import groups, java
from tests.support.apache_kafka import ApacheKafka
from tests.support.topics import create_topic, recreate_topic

pytestmark = pytest.mark.spark

GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    if request.param == "headrace":
        broker: RunningBroker = request.getfixturevalue("headrace")
        return broker.bootstrap_servers
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return create_topic(bootstrap, f"q-{uuid.uuid4().hex[:12]}", 2)


def produce(bootstrap: str, topic: str, numbers: range, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(60) == 0


def stream(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


def run_to_files(frame: DataFrame, folder: Path) -> None:
    query = (
        frame.selectExpr("cast(string(value) as int) as n")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(90)
    assert query.exception() is None


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    found = spark.read.schema("n int").parquet(str(folder / "out"))
    return sorted(row.n for row in found.collect())


def checkpointed(folder: Path) -> dict[int, dict[str, dict[str, int]]]:
    """The end of every finished epoch, from the checkpoint."""
    ends = {}
    for path in (folder / "checkpoint" / "commits").glob("[0-9]*"):
        stored = (folder / "checkpoint" / "offsets" / path.name).read_text()
        ends[int(path.name)] = offsets(json.loads(stored.splitlines()[2]))
    return ends


def offsets(stored: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Without topic ids and initial offsets."""
    return {
        topic: {name: value for name, value in found.items() if name.isdecimal()}
        for topic, found in stored.items()
    }


def committed(bootstrap: str, group: str) -> dict[str, int]:
    return {str(part): offset for (_, part), offset in groups.committed(bootstrap, group).items()}


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_a_checkpoint_survives_a_restart_and_added_partitions(
    spark: SparkSession, headrace: RunningBroker, tmp_path: Path
) -> None:
    where = headrace.bootstrap_servers
    topic = create_topic(where, f"q-{uuid.uuid4().hex[:12]}", 2)
    produce(where, topic, range(1000))
    run_to_files(stream(spark, where, topic, maxOffsetsPerTrigger="400"), tmp_path)
    assert numbers(spark, tmp_path) == list(range(1000))
    assert len(checkpointed(tmp_path)) == 3
    admin = AdminClient({"bootstrap.servers": where})
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    headrace.restart()
    produce(where, topic, range(1000, 1500), partitions=4)
    run_to_files(stream(spark, where, topic), tmp_path)
    assert numbers(spark, tmp_path) == list(range(1500))


def test_a_stream_of_an_empty_topic_waits_for_its_first_record(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    frame = stream(spark, bootstrap, topic)
    for expected in (0, 0, 5, 5):
        if expected and not numbers(spark, tmp_path):
            produce(bootstrap, topic, range(5))
        run_to_files(frame, tmp_path)
        assert numbers(spark, tmp_path) == list(range(expected))


def test_a_restart_on_a_topic_that_was_created_again_fails_or_reads_all_of_it(
    spark: SparkSession, headrace: RunningBroker, tmp_path: Path
) -> None:
    where = headrace.bootstrap_servers
    topic = create_topic(where, f"q-{uuid.uuid4().hex[:12]}", 2)
    produce(where, topic, range(100))
    run_to_files(stream(spark, where, topic), tmp_path)
    recreate_topic(where, topic, 2)
    produce(where, topic, range(1000, 1150))
    with pytest.raises(Exception, match=f"topic {topic} was deleted and created again"):
        run_to_files(stream(spark, where, topic), tmp_path)
    assert numbers(spark, tmp_path) == list(range(100))
    run_to_files(stream(spark, where, topic, failOnDataLoss="false"), tmp_path)
    assert numbers(spark, tmp_path) == [*range(100), *range(1000, 1150)]


def test_a_query_is_a_group_that_is_never_ahead_of_its_checkpoint(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    produce(bootstrap, topic, range(900))
    seen: dict[int, dict[str, int]] = {}
    rows: dict[int, int] = {}
    go_on = threading.Event()

    def look(frame: DataFrame, epoch: int) -> None:
        rows[epoch] = frame.count()
        seen[epoch] = committed(bootstrap, group)
        if epoch == 3:
            go_on.wait(60)

    # A stopped query's member is gone when its session is over.
    options = {"group.id": group, "kafka.session.timeout.ms": "10000"}
    frame = stream(spark, bootstrap, topic, maxOffsetsPerTrigger="300", **options)
    query = (
        frame.writeStream.foreachBatch(look)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wait_until(lambda: 2 in checkpointed(tmp_path), "the first 900 records are not read")
        wait_until(lambda: sum(committed(bootstrap, group).values()) == 900, "not committed")
        produce(bootstrap, topic, range(900, 950))
        wait_until(lambda: 3 in seen, "the epoch of the last 50 records does not begin")
        # The epoch is under way: read, not finished. Every tool shows it as lag.
        assert committed(bootstrap, group) == checkpointed(tmp_path)[2][topic]
        shown = described(bootstrap, group)
        assert {part: row["lag"] for part, row in shown.items()} == {"0": 25, "1": 25}
        assert {row["instance"] for row in shown.values()} == {f"spark-{group}"}
        assert theirs(bootstrap, group) == {
            part: (row["offset"], row["lag"]) for part, row in shown.items()
        }
        go_on.set()
        wait_until(lambda: sum(committed(bootstrap, group).values()) == 950, "not committed")
        assert progress(query)["endOffset"] == {topic: committed(bootstrap, group)}
        assert progress(query)["latestOffset"] == {topic: {"0": 475, "1": 475}}
    finally:
        go_on.set()
        query.stop()
    ends = checkpointed(tmp_path)
    for epoch, offsets in seen.items():
        before = ends[epoch - 1][topic] if epoch else {}
        assert all(offset <= before.get(part, 0) for part, offset in offsets.items())
    # The last records may come in two epochs, one for each partition.
    assert [rows.pop(epoch) for epoch in range(3)] == [300, 300, 300]
    assert sum(rows.values()) == 50
    assert committed(bootstrap, group) == {"0": 475, "1": 475}
    wait_until(lambda: not members(bootstrap, group), "the query has ended and is still a member")


def progress(query: StreamingQuery) -> dict[str, Any]:
    """The source's offsets after the last epoch that had records, as Spark itself reports them."""
    last: Any = [each for each in query.recentProgress if each["numInputRows"]][-1]
    (source,) = last["sources"]
    return {name: offsets(json.loads(source[name])) for name in ("endOffset", "latestOffset")}


def members(bootstrap: str, group: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(60)
    return [member.group_instance_id for member in found.members]


def described(bootstrap: str, group: str) -> dict[str, dict[str, Any]]:
    """What `headrace groups describe` says of each partition."""
    command = [sys.executable, "-m", "headrace.cli", "groups", "describe", group, "--json"]
    done = subprocess.run(
        [*command, "--bootstrap", bootstrap], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    (member,) = found["members"]
    assert len(member["assignment"]) == len(found["partitions"])
    return {
        str(row["partition"]): {
            "offset": row["committed"],
            "lag": row["lag"],
            "instance": member["instance_id"] if row["member_id"] == member["id"] else None,
        }
        for row in found["partitions"]
    }


def theirs(bootstrap: str, group: str) -> dict[str, tuple[int, int]]:
    """Offset and lag of each partition, as Kafka's own tool shows them."""
    if java.missing():
        return {}
    said = java.run_tool(
        GROUP_TOOL, "--bootstrap-server", bootstrap, "--describe", "--group", group
    )
    rows = [line.split() for line in said.stdout.splitlines() if line.startswith(group)]
    return {row[2]: (int(row[3]), int(row[5])) for row in rows}
