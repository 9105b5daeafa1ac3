"""The statements of the Hive sink, and what happens if one of them fails."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from headrace.connect.connectors.lake.hive import HiveSink
from headrace.connect.plugin import OptionError, PermanentError
from headrace.pipelines.lake.parquet import ParquetLake
from headrace.pipelines.lake.writers import LakeSink
from headrace.pipelines.sink.epoch import Epoch

SCHEMA = StructType(
    [
        StructField("n", LongType()),
        StructField("city", StringType()),
        StructField("partition", IntegerType()),
        StructField("__headrace_topic", StringType()),
    ]
)


class RecordingSession:
    """Keeps the statements; fails as often as it is told."""

    def __init__(self, failures: int = 0, catalog: str = "hive") -> None:
        self.statements: list[str] = []
        self._failures = failures
        self._catalog = catalog
        self.columns = ["n", "partition", "city"]
        self.partitions = ["city"]

    @property
    def conf(self) -> Any:
        return {"spark.sql.catalogImplementation": self._catalog}

    def sql(self, statement: str) -> None:
        if "PARTITION (" in statement and self._failures:
            self._failures -= 1
            raise ConnectionError("the metastore is away")
        self.statements.append(statement)

    @property
    def catalog(self) -> Any:
        return self

    def listColumns(self, _: str) -> list[Any]:
        class Column:
            def __init__(self, name: str) -> None:
                self.name, self.isPartition = name, True

        return [Column(name) for name in self.partitions]

    def table(self, _: str) -> Any:
        return self


def sink_in(folder: Path, **options: str) -> HiveSink:
    given = {name.replace("_", "."): value for name, value in options.items()}
    by_city = {"partitioner.class": "FieldPartitioner", "partition.field.name": "city"}
    return HiveSink({"hive.table": "t", "path": str(folder), **by_city, **given})


def commit(sink: HiveSink, epoch: Epoch, city: str) -> None:
    files = LakeSink(ParquetLake.from_options(sink.table_options()), SCHEMA, False)
    row = {"n": 1, "city": city, "partition": 0, "__headrace_topic": "t"}
    files.commit([files.write(epoch, iter([pa.RecordBatch.from_pylist([row])]))])


def test_the_table_is_created_with_its_partition_columns(tmp_path: Path) -> None:
    session = RecordingSession()
    sink_in(tmp_path).begin(session, SCHEMA)
    assert session.statements == [
        "CREATE DATABASE IF NOT EXISTS `default`",
        (
            "CREATE EXTERNAL TABLE IF NOT EXISTS `default`.`t` (`n` bigint, `partition` int) "
            f"PARTITIONED BY (`city` string) STORED AS PARQUET LOCATION '{tmp_path}'"
        ),
    ]


def test_new_columns_are_added(tmp_path: Path) -> None:
    session = RecordingSession()
    session.columns = ["n", "city"]
    sink_in(tmp_path).begin(session, SCHEMA)
    assert session.statements[-1] == "ALTER TABLE `default`.`t` ADD COLUMNS (`partition` int)"


def test_a_table_with_other_partitions_is_refused(tmp_path: Path) -> None:
    session = RecordingSession()
    session.partitions = ["day"]
    with pytest.raises(PermanentError, match="is partitioned by day and the connector"):
        sink_in(tmp_path).begin(session, SCHEMA)


def test_a_spark_without_hive_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"headrace\.spark\.conf="):
        sink_in(tmp_path).begin(RecordingSession(catalog="in-memory"), SCHEMA)


def test_folders_of_an_epoch_become_partitions_once(tmp_path: Path) -> None:
    sink, session = sink_in(tmp_path), RecordingSession()
    for number, city in enumerate(["it's", "it's", "Bern"]):
        commit(sink, Epoch("q", number), city)
        sink.committed(session, Epoch("q", number))
    assert session.statements == [
        "ALTER TABLE `default`.`t` ADD IF NOT EXISTS "
        f"PARTITION (`city`='{name}') LOCATION '{tmp_path}/city={folder}'"
        for name, folder in (("it\\'s", "it%27s"), ("Bern", "Bern"))
    ]


def test_a_replayed_epoch_registers_what_the_first_could_not(tmp_path: Path) -> None:
    session = RecordingSession(failures=1)
    epoch = Epoch("q", 0)
    first = sink_in(tmp_path)
    commit(first, epoch, "Bern")
    with pytest.raises(ConnectionError):
        first.committed(session, epoch)
    again = sink_in(tmp_path)
    commit(again, epoch, "Bern")
    again.committed(session, epoch)
    assert len(session.statements) == 1
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_folders_without_names_and_places_in_s3_are_refused(tmp_path: Path) -> None:
    unnamed = sink_in(tmp_path, partitioner_class="TimeBasedPartitioner", path_format="YYYY/MM")
    with pytest.raises(OptionError, match="needs folders with names"):
        unnamed.check()
    with pytest.raises(OptionError, match="expected a folder"):
        HiveSink({"hive.table": "t", "path": "s3://a/b"}).check()
