"""Sinks of files and tables as queries: on disk, in S3 and in HDFS."""

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql.types import LongType, StructField, StructType

from headrace.connect.hosting import RunState
from headrace.pipelines.lake import parquet, stores
from headrace.pipelines.lake.folders import FolderRule
from headrace.pipelines.lake.iceberg import IcebergLake
from headrace.pipelines.lake.parquet import ParquetLake
from headrace.pipelines.lake.writers import LakeSink
from headrace.pipelines.sink.epoch import Epoch
from tests.connect.host.conftest import NUMBERS, HostUnderTest
from tests.connect.host.fire import driver_pid
from tests.pipelines.lake.dying import DyingFiles, Killed
from tests.support import hdfs as hdfs_server
from tests.support import s3 as s3_server
from tests.support.hdfs import HdfsServer
from tests.support.s3 import KEY, REGION, SECRET, S3Server

pytestmark = pytest.mark.spark

JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "poll.interval.ms": "200",
}
SINK = {**JSON, "value.schema": "lane int, n bigint"}
WANTED = Counter((lane, n) for lane in range(2) for n in range(100))
Rows = list[tuple[int, int]]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    if reason := s3_server.missing():
        pytest.skip(reason)
    with S3Server() as server:
        server.create_bucket("lake")
        yield server


@pytest.fixture(scope="module")
def hdfs() -> Iterator[HdfsServer]:
    if reason := hdfs_server.missing():
        pytest.skip(reason)
    with HdfsServer() as server:
        yield server


@pytest.fixture(scope="module")
def topic(host: HostUnderTest) -> str:
    """A topic with 200 numbers, for all tests."""
    host.create("lake-numbers", 2)
    source = {**JSON, "connector.class": NUMBERS, "lanes": "2", "upto": "100"}
    host.start("lake-in", {**source, "topic": "lake-numbers"})
    host.wait(lambda: len(host.values("lake-numbers")), lambda found: found == 200)
    host.stop("lake-in")
    return "lake-numbers"


@pytest.fixture
def name(host: HostUnderTest, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the sink, which is stopped at the end."""
    found = str(request.node.name).removeprefix("test_")
    yield found
    host.stop(found)


def s3_options(server: S3Server) -> dict[str, str]:
    return {
        "aws.access.key.id": KEY,
        "aws.secret.access.key": SECRET,
        "s3.region": REGION,
        "store.url": server.url,
    }


def s3_storage(server: S3Server) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ALLOW_HTTP": "true",
    }


def written(host: HostUnderTest, name: str, look: Callable[[], Rows]) -> Rows:
    """The rows as soon as there are enough; the connector must not fail meanwhile."""

    def rows() -> Rows:
        status = host.status(name)
        assert status.state is not RunState.FAILED, status.trace
        return look()

    return host.wait(rows, lambda found: len(found) >= 200)


def in_files(filesystem: pafs.FileSystem, folder: str) -> Rows:
    if filesystem.get_file_info(f"{folder}/_common_metadata").type != pafs.FileType.File:
        return []
    found = ds.dataset(folder, filesystem=filesystem, partitioning="hive").to_table()
    return numbers(found)


def numbers(found: pa.Table) -> Rows:
    return [(row["lane"], row["n"]) for row in found.to_pylist()]


def test_parquet_files_have_every_record_once(
    host: HostUnderTest, topic: str, name: str, tmp_path: Path
) -> None:
    host.start(
        name,
        {
            **SINK, "connector.class": "ParquetSink", "topics": topic, "path": str(tmp_path),
            "partitioner.class": "FieldPartitioner", "partition.field.name": "lane",
            "flush.size": "30", "consumer.override.max.poll.records": "120",
        },
    )  # fmt: skip
    folder = tmp_path / topic
    local = pafs.LocalFileSystem()
    assert Counter(written(host, name, lambda: in_files(local, str(folder)))) == WANTED
    files = list(folder.rglob("*.parquet"))
    assert {path.parent.name for path in files} == {"lane=0", "lane=1"}
    assert max(pq.ParquetFile(path).metadata.num_rows for path in files) <= 30
    columns = pq.read_schema(folder / "_common_metadata").names
    assert columns == ["n", "topic", "partition", "offset"]


def test_confluents_s3_sink_writes_parquet_by_time(
    host: HostUnderTest, topic: str, name: str, s3: S3Server
) -> None:
    host.start(
        name,
        {
            **SINK, **s3_options(s3), "topics": topic,
            "connector.class": "io.confluent.connect.s3.S3SinkConnector",
            "storage.class": "io.confluent.connect.s3.storage.S3Storage",
            "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
            "s3.bucket.name": "lake", "topics.dir": "raw", "flush.size": "1000",
            "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
            "path.format": "'year'=YYYY/'month'=MM", "locale": "en-US", "timezone": "UTC",
            "partition.duration.ms": "3600000", "timestamp.extractor": "Record",
        },
    )  # fmt: skip
    filesystem = s3.filesystem()
    folder = f"lake/raw/{topic}"
    assert Counter(written(host, name, lambda: in_files(filesystem, folder))) == WANTED
    found = ds.dataset(folder, filesystem=filesystem, partitioning="hive").to_table()
    assert {"year", "month"} < set(found.column_names)
    assert min(found.column("year").to_pylist()) >= 2026
    assert places_with(SECRET, host.folder) == []


def places_with(secret: str, folder: Path) -> list[str]:
    """Files of checkpoints and arguments of processes that have a secret in them."""
    arguments = list(Path("/proc").glob("[0-9]*/cmdline"))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    found = []
    for path in [*files, *arguments]:
        with contextlib.suppress(OSError):  # the process has ended
            if secret.encode() in path.read_bytes():
                found.append(str(path))
    return found


def test_delta_tables_are_in_s3(host: HostUnderTest, topic: str, name: str, s3: S3Server) -> None:
    host.start(
        name,
        {
            **SINK, **s3_options(s3), "connector.class": "DeltaSink", "topics": topic,
            "table.path": "s3://lake/delta/numbers",
        },
    )  # fmt: skip

    def rows() -> Rows:
        try:
            table = DeltaTable("s3://lake/delta/numbers", storage_options=s3_storage(s3))
        except TableNotFoundError:
            return []
        return numbers(table.to_pyarrow_table())

    assert Counter(written(host, name, rows)) == WANTED


def test_iceberg_tables_are_in_s3(
    host: HostUnderTest, topic: str, name: str, s3: S3Server, tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    host.start(
        name,
        {
            **SINK, **s3_options(s3), "connector.class": "IcebergSink", "topics": topic,
            "warehouse": "s3://lake/iceberg", "table.name": "sales.numbers",
            "catalog.options": f'{{"type": "sql", "uri": "{uri}"}}',
        },
    )  # fmt: skip
    properties = {
        "type": "sql", "uri": uri, "warehouse": "s3://lake/iceberg", "s3.endpoint": s3.url,
        "s3.access-key-id": KEY, "s3.secret-access-key": SECRET, "s3.region": REGION,
    }  # fmt: skip
    lake = IcebergLake("sales.numbers", "default", properties)

    def rows() -> Rows:
        try:
            return numbers(lake.table().scan().to_arrow())
        except (NoSuchTableError, OSError):
            return []

    host.wait(lambda: (tmp_path / "catalog.db").exists(), bool)
    assert Counter(written(host, name, rows)) == WANTED


def test_confluents_hdfs_sink_writes_parquet_by_partition(
    host: HostUnderTest, topic: str, name: str, hdfs: HdfsServer
) -> None:
    host.start(
        name,
        {
            **SINK, "topics": topic, "hdfs.url": hdfs.url, "flush.size": "1000",
            "connector.class": "io.confluent.connect.hdfs3.Hdfs3SinkConnector",
            "format.class": "io.confluent.connect.hdfs3.parquet.ParquetFormat",
        },
    )  # fmt: skip
    filesystem, _ = stores.opened(f"{hdfs.url}/topics", {})
    assert Counter(written(host, name, lambda: in_files(filesystem, topic))) == WANTED
    selector = pafs.FileSelector(topic, recursive=True)
    files = [info.path for info in filesystem.get_file_info(selector) if info.is_file]
    data = [path for path in files if path.endswith(".parquet")]
    assert {path.split("/")[1] for path in data} == {"partition=0", "partition=1"}


def test_delta_tables_are_in_hdfs(
    host: HostUnderTest, topic: str, name: str, hdfs: HdfsServer
) -> None:
    address = f"{hdfs.url}/delta/numbers"
    host.start(
        name,
        {**SINK, "connector.class": "DeltaSink", "topics": topic, "table.path": address},
    )

    def rows() -> Rows:
        try:
            return numbers(DeltaTable(address).to_pyarrow_table())
        except TableNotFoundError:
            return []

    assert Counter(written(host, name, rows)) == WANTED


def test_a_field_that_the_records_do_not_have_fails_the_connector_with_a_sentence(
    host: HostUnderTest, topic: str, name: str, tmp_path: Path
) -> None:
    folders = {"partitioner.class": "FieldPartitioner", "partition.field.name": "absent"}
    place = {"path": str(tmp_path), "topics": topic}
    host.start(name, {**SINK, **folders, **place, "connector.class": "ParquetSink"})
    status = host.wait_for(name, RunState.FAILED)
    assert status.trace is not None
    assert "'absent'" in status.trace.splitlines()[0]


def test_a_driver_that_is_killed_loses_and_repeats_no_row_in_s3(
    host: HostUnderTest, name: str, s3: S3Server
) -> None:
    topic = "lake-killed"
    host.create(topic, 2)
    source = {**JSON, "connector.class": NUMBERS, "lanes": "2", "upto": "1000", "topic": topic}
    place = {"path": "s3://lake/killed", "partitioner.class": "NoPartitioner", "topics": topic}
    filesystem = s3.filesystem()

    def rows() -> Rows:
        return in_files(filesystem, f"lake/killed/{topic}")

    try:
        host.start("lake-killed-in", {**source, "headrace.batch.max.rows": "100"})
        host.start(name, {**SINK, **s3_options(s3), **place, "connector.class": "ParquetSink"})
        for least in (1, 800):
            while len(rows()) < least:
                time.sleep(0.2)
            os.kill(driver_pid(), signal.SIGKILL)
            host.wait_for(name, RunState.RESTARTING)
        host.wait(lambda: len(rows()), lambda found: found >= 2000)
        assert Counter(rows()) == Counter((lane, n) for lane in range(2) for n in range(1000))
    finally:
        host.stop("lake-killed-in")


def test_a_hive_table_needs_a_spark_with_a_metastore(
    host: HostUnderTest, topic: str, name: str, tmp_path: Path
) -> None:
    table = {"hive.table": "numbers", "path": str(tmp_path)}
    host.start(name, {**SINK, **table, "connector.class": "HiveSink", "topics": topic})
    status = host.wait_for(name, RunState.FAILED)
    assert status.trace is not None
    assert "headrace.spark.conf=spark.sql.catalogImplementation=hive" in status.trace


@pytest.fixture(params=["s3", "hdfs"])
def remote(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """An address in each store, and how it is reached."""
    server: Any = request.getfixturevalue(request.param)
    if isinstance(server, S3Server):
        return "s3://lake/steps", s3_storage(server)
    return f"{server.url}/steps", {}


def test_a_commit_in_a_store_survives_the_death_of_its_driver_at_any_step(
    remote: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, storage = remote
    schema = StructType([StructField("lane", LongType()), StructField("n", LongType())])
    rule = FolderRule(fields=("lane",))

    def read(lake: ParquetLake) -> list[int]:
        filesystem, path = stores.opened(lake.uri, lake.storage)
        found = ds.dataset(path, filesystem=filesystem, partitioning="hive").to_table()
        return sorted(found.column("n").to_pylist())

    deaths = 0
    for changes in range(14):
        lake = ParquetLake(f"{address}/{changes}", rule, storage)
        sink = LakeSink(lake, schema, False)

        def tasks(number: int, sink: LakeSink = sink) -> list[Any]:
            batches = [
                pa.RecordBatch.from_pydict({"lane": [lane], "n": [10 * number + lane]})
                for lane in range(2)
            ]
            return [sink.write(Epoch("q", number), iter([batch])) for batch in batches]

        sink.commit(tasks(0))
        files = tasks(1)
        with monkeypatch.context() as patch:
            patch.setattr(stores, "opened", DyingFiles(changes))
            try:
                sink.commit(files)
            except Killed:
                deaths += 1
        sink.commit(tasks(1))
        assert read(lake) == [0, 1, 10, 11], changes
    assert deaths >= 5


def test_a_file_in_a_store_that_was_not_renamed_is_never_removed(
    remote: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, storage = remote
    lake = ParquetLake(f"{address}/renamed", storage=storage)
    sink = LakeSink(lake, StructType([StructField("n", LongType())]), False)
    written = [sink.write(Epoch("q", 0), iter([pa.RecordBatch.from_pydict({"n": [1]})]))]
    with monkeypatch.context() as patch:
        patch.setattr(parquet._Root, "_move", lambda *_: None)
        with pytest.raises(OSError, match="could not be renamed"):
            sink.commit(written)
    sink.commit(written)
    filesystem, path = stores.opened(lake.uri, storage)
    assert ds.dataset(path, filesystem=filesystem).to_table().column("n").to_pylist() == [1]


def test_without_options_s3_is_that_of_the_environment(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_storage(s3).items():
        monkeypatch.setenv(name, value)
    filesystem, path = stores.opened("s3://lake/environment", {})
    with filesystem.open_output_stream(f"{path}/file") as file:
        file.write(b"x")
    assert s3.filesystem().get_file_info("lake/environment/file").size == 1


def test_json_lines_are_in_stores(remote: tuple[str, dict[str, str]]) -> None:
    address, storage = remote
    lake = ParquetLake(f"{address}/lines", storage=storage, format="jsonl")
    sink = LakeSink(lake, StructType([StructField("n", LongType())]), False)
    batch = pa.RecordBatch.from_pydict({"n": list(range(50_000))})
    sink.commit([sink.write(Epoch("q", 0), iter([batch]))])
    filesystem, path = stores.opened(lake.uri, storage)
    found = filesystem.get_file_info(pafs.FileSelector(path))
    (name,) = [info.path for info in found if info.path.endswith(".json")]
    with filesystem.open_input_stream(name) as file:
        lines = file.read().decode().splitlines()
    assert (len(lines), lines[-1]) == (50_000, '{"n": 49999}')
