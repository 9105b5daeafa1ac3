"""Hive tables: a connector writes them, and another Spark finds rows and partitions."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.connect.hosting import RunState
from tests.connect.broker import connect_broker
from tests.connect.host.conftest import HostUnderTest
from tests.support.hive import HiveMetastore

pytestmark = [pytest.mark.spark, pytest.mark.slow]

READER = """
import json, sys
from pyspark.sql import SparkSession
uri, statements = sys.argv[1], sys.argv[2:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.sql.catalogImplementation", "hive")
    .config("spark.hadoop.hive.metastore.uris", uri)
    .getOrCreate()
)
for each in statements:
    print("ROWS" + json.dumps([list(row) for row in spark.sql(each).collect()]))
"""
SINK = {
    "connector.class": "HiveSink",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "topics": "visits",
    "hive.database": "lake",
    "hive.table": "visits",
    "partitioner.class": "FieldPartitioner",
    "partition.field.name": "city",
    "poll.interval.ms": "200",
}


@pytest.fixture(scope="module")
def metastore() -> Iterator[HiveMetastore]:
    with HiveMetastore() as server:
        yield server


@pytest.fixture(scope="module")
def hive_host(
    tmp_path_factory: pytest.TempPathFactory, metastore: HiveMetastore
) -> Iterator[HostUnderTest]:
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": metastore.uri,
    }
    with connect_broker(tmp_path_factory.mktemp("broker")) as broker:
        running = HostUnderTest(broker, tmp_path_factory.mktemp("hive"), settings)
        yield running
        running.close()


def found_by_another_spark(metastore: HiveMetastore, *statements: str) -> list[list[list[Any]]]:
    done = subprocess.run(
        [sys.executable, "-c", READER, metastore.uri, *statements],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROWS")]
    return [json.loads(line.removeprefix("ROWS")) for line in lines]


def write(host: HostUnderTest, rows: list[dict[str, object]]) -> None:
    producer = Producer({"bootstrap.servers": host.bootstrap})
    for row in rows:
        producer.produce("visits", json.dumps(row).encode())
    assert producer.flush(60) == 0


def written(host: HostUnderTest, name: str, records: int) -> None:
    def progress() -> int:
        status = host.status(name)
        assert status.state is not RunState.FAILED, status.trace
        return status.progress.records

    # Not "at least": for a second the status may be that of the query before.
    host.wait(progress, lambda found: found == records)


def test_another_spark_finds_rows_partitions_and_new_columns(
    hive_host: HostUnderTest, metastore: HiveMetastore, tmp_path: Path
) -> None:
    cities = ["Bern", "Zürich", "a/b", "it's", None]
    host = hive_host
    host.create("visits")
    config = {**SINK, "path": str(tmp_path / "visits")}
    write(host, [{"n": n, "city": cities[n % 5]} for n in range(50)])
    host.start("visits", {**config, "value.schema": "n bigint, city string"})
    written(host, "visits", 50)
    host.stop("visits")
    write(host, [{"n": n, "city": "Chur", "note": "new"} for n in range(50, 60)])
    host.start("visits", {**config, "value.schema": "n bigint, city string, note string"})
    written(host, "visits", 10)
    host.stop("visits")
    rows, partitions, notes = found_by_another_spark(
        metastore,
        "select city, n from lake.visits",
        "show partitions lake.visits",
        "select distinct city from lake.visits where note = 'new'",
    )
    wanted = [(cities[n % 5], n) for n in range(50)] + [("Chur", n) for n in range(50, 60)]
    assert Counter((city, n) for city, n in rows) == Counter(wanted)
    names = ["Bern", "Chur", "Zürich", "__HIVE_DEFAULT_PARTITION__", "a%2Fb", "it%27s"]
    assert sorted(name for (name,) in partitions) == [f"city={name}" for name in names]
    assert notes == [["Chur"]]
