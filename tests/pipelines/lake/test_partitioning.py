"""Partitioned tables, as delta-rs, PyIceberg and PyArrow read them."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.transforms import BucketTransform
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.pipelines.lake import open_files, partitioning
from headrace.pipelines.lake import verify as proof
from headrace.pipelines.lake.columns import ColumnsDiffer
from headrace.pipelines.lake.delta import DeltaLake
from headrace.pipelines.lake.iceberg import IcebergLake
from headrace.pipelines.lake.verify import Offsets
from headrace.pipelines.sink.epoch import Epoch
from headrace.types import TopicPartition
from tests.pipelines.lake.lakes import SPARK_SCHEMA, Lake, rows

FIRST = Epoch("query-1", 0)
STRANGE = (
    "a/b", "50%", "x=y", "two words", "Zürich", "c:\\d", "#?&", "'\"", "line\nfeed", "..", "%2F",
    "__HIVE_DEFAULT_PARTITION__", "null", " padded ", "\U0001f680", "x" * 5000,
)  # fmt: skip


def with_column(
    name: str, kind: DataType, arrow: pa.DataType, values: list[object]
) -> tuple[StructType, pa.RecordBatch]:
    """Rows of the source with one column more."""
    schema = StructType([*SPARK_SCHEMA.fields, StructField(name, kind)])
    batch = rows(range(len(values))).append_column(name, pa.array(values, arrow))
    return schema, batch


def partitions(lake: Lake) -> list[tuple[object, ...]]:
    """The partition values of all files, as the table's own metadata has them."""
    if isinstance(lake.table, DeltaLake):
        table = lake.table.table()
        actions = pa.table(table.get_add_actions(flatten=True))
        names = [f"partition.{name}" for name in table.metadata().partition_columns]
        columns = [actions.column(name).to_pylist() for name in names]
        return sorted(zip(*columns, strict=True), key=repr)
    files = [task.file for task in lake.table.table().scan().plan_files()]
    found = [tuple(file.partition[place] for place in range(len(file.partition))) for file in files]
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    ("kind", "arrow", "values"),
    [
        (StringType(), pa.string(), [*STRANGE, None]),
        (IntegerType(), pa.int32(), [1, -1, 2**31 - 1, None, 0]),
        (ShortType(), pa.int16(), [1, -1, None]),
        (LongType(), pa.int64(), [-(2**63), 2**63 - 1, None, 0]),
        (BooleanType(), pa.bool_(), [True, False, None]),
        (DateType(), pa.date32(), [date(2024, 2, 29), date(1969, 12, 31), None]),
        (
            TimestampType(),
            pa.timestamp("us", "UTC"),
            [
                datetime(2024, 2, 29, 23, 59, 59, 123456, UTC),
                datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
                None,
            ],
        ),
        (
            TimestampNTZType(),
            pa.timestamp("us"),
            [datetime(2024, 2, 29, 12, 30, 0, 5), datetime(1900, 1, 1), None],
        ),
    ],
    ids=lambda each: each.typeName() if isinstance(each, DataType) else "",
)
def test_partition_values_of_every_allowed_type_come_back_as_they_were(
    lake: Lake, kind: DataType, arrow: pa.DataType, values: list[object]
) -> None:
    schema, batch = with_column("key", kind, arrow, values)
    lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    read = lake.read().sort_by("offset")
    assert read.column("key").to_pylist() == values
    assert read.column("value").to_pylist() == batch.column("value").to_pylist()
    assert len(partitions(lake)) == len(values)
    if isinstance(lake.table, DeltaLake):
        # The other reader of delta-rs, which has a query engine of its own.
        found = lake.table.table().to_pandas().sort_values("offset")
        assert list(found["offset"]) == list(range(len(values)))


def test_an_empty_string_partitions_a_delta_table_as_null(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    schema, batch = with_column("key", StringType(), pa.string(), ["", None, "a"])
    lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    assert lake.read().sort_by("offset").column("key").to_pylist() == [None, None, "a"]


def test_an_empty_string_stays_one_in_an_iceberg_table(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    schema, batch = with_column("key", StringType(), pa.string(), ["", None, "a"])
    lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    assert lake.read().sort_by("offset").column("key").to_pylist() == ["", None, "a"]


def test_a_reader_skips_the_files_of_other_partitions(lake: Lake) -> None:
    schema, batch = with_column("key", StringType(), pa.string(), ["a", "b/c", None, "a"])
    lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    if isinstance(lake.table, DeltaLake):
        table = lake.table.table()
        assert len(table.file_uris(file_pruning_predicate=[("key", "=", "b/c")])) == 1
        found = table.to_pyarrow_table(filters=[("key", "=", "b/c")])
    else:
        scan = lake.table.table().scan(row_filter="key = 'b/c'")
        assert len(list(scan.plan_files())) == 1
        found = scan.to_arrow()
    assert found.column("offset").to_pylist() == [1]


def test_several_columns_partition_together_and_a_later_query_need_not_repeat_them(
    lake: Lake,
) -> None:
    lake.commit(FIRST, rows([0, 1]), rows([0], 1), partition_by=("topic", "partition"))
    lake.commit(Epoch("query-1", 1), rows([2]), rows([1], 1))
    assert partitions(lake) == [("orders", 0), ("orders", 0), ("orders", 1), ("orders", 1)]
    assert lake.offsets() == [0, 0, 1, 1, 2]
    read = lake.read().column("partition").to_pylist()
    assert sorted(read) == [0, 0, 0, 1, 1]


class Topic:
    """Two partitions of `count` offsets; a record at every `step`, deleted before `start`."""

    def __init__(self, count: int, start: int = 0, step: int = 1) -> None:
        self.count, self.start, self.step = count, start, step

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return {0: (self.start, self.count), 1: (self.start, self.count)}

    def offsets(self, place: TopicPartition, first: int, last: int) -> Offsets:
        found = np.arange(0, self.count, self.step)
        return found[(found >= max(first, self.start)) & (found <= last)]


def test_a_partitioned_table_is_verified(lake: Lake) -> None:
    schema = StructType([*SPARK_SCHEMA.fields, StructField("key", IntegerType())])
    for epoch in range(3):
        for_each = [
            rows(offsets := range(epoch * 20, epoch * 20 + 20), partition).append_column(
                "key", pa.array([each % 3 for each in offsets], pa.int32())
            )
            for partition in (0, 1)
        ]
        lake.commit(
            Epoch("query-1", epoch), *for_each, schema=schema, partition_by=("topic", "key")
        )
    wanted = proof.Wanted("orders", complete=True, full=True)
    reports = proof.verify(lake.view(), wanted, Topic(60), lambda *_: None)
    assert [(each.rows, each.findings) for each in reports] == [(60, [])] * 2
    reports = proof.verify(lake.view(), wanted, Topic(61), lambda *_: None)
    assert [each.kind for report in reports for each in report.findings] == ["missing"] * 2


def test_holes_that_the_topic_has_deleted_are_explained_in_a_partitioned_table(
    lake: Lake,
) -> None:
    """The offsets in a commit are those of a task, whatever partitions its rows fall into."""
    schema = StructType([*SPARK_SCHEMA.fields, StructField("key", IntegerType())])
    batch = rows(range(0, 40, 2)).append_column(
        "key", pa.array([each % 3 for each in range(20)], pa.int32())
    )
    lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    reports = proof.verify(
        lake.view(), proof.Wanted("orders"), Topic(40, start=30, step=2), lambda *_: None
    )
    assert [each for report in reports for each in report.findings] == []


def test_a_task_with_many_partitions_keeps_few_files_open_and_loses_no_row(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "WAITING_BYTES", 20_000)
    monkeypatch.setattr(open_files, "OPEN_FILES", 4)
    opened: list[int] = []
    original = open_files.OpenTableFiles._write

    def counted(self: open_files.OpenTableFiles, values: partitioning.Values) -> None:
        original(self, values)
        opened.append(len(self._open))

    monkeypatch.setattr(open_files.OpenTableFiles, "_write", counted)
    schema = StructType([*SPARK_SCHEMA.fields, StructField("key", IntegerType())])
    batches = [
        rows(offsets := range(start, start + 500)).append_column(
            "key", pa.array([each * 7919 % 60 for each in offsets], pa.int32())
        )
        for start in range(0, 3000, 500)
    ]
    sink = lake.sink(schema, partition_by=("key",))
    done = sink.write(FIRST, iter(batches))
    sink.commit([done])
    assert max(opened) <= 4
    assert len(done.files) > 60, "a partition whose file was closed begins another"
    read = lake.read()
    found = zip(read.column("offset").to_pylist(), read.column("key").to_pylist(), strict=True)
    assert sorted(found) == [(each, each * 7919 % 60) for each in range(3000)]


def test_a_failing_task_removes_the_files_of_all_partitions(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Torn(Exception):
        pass

    def batches(first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield first
        raise Torn

    schema, batch = with_column("key", IntegerType(), pa.int32(), [1, 2, 3])
    sink = lake.sink(schema, partition_by=("key",))
    monkeypatch.setattr(open_files, "GROUP_ROWS", 1)
    with pytest.raises(Torn):
        sink.write(FIRST, batches(batch))
    assert lake.data_files() == set()


def test_a_replayed_epoch_of_a_partitioned_table_adds_nothing(lake: Lake) -> None:
    schema, batch = with_column("key", IntegerType(), pa.int32(), [1, 2, 1])
    lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    files = lake.data_files()
    lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    assert (lake.offsets(), lake.data_files()) == ([0, 1, 2], files)


def test_overwriting_a_partitioned_table_replaces_all_rows_and_keeps_the_partitioning(
    lake: Lake,
) -> None:
    schema, batch = with_column("key", IntegerType(), pa.int32(), [1, 2, None])
    lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    sink = lake.sink(schema, overwrite=True)
    sink.commit([sink.write(Epoch("query-2", 0), iter([batch.slice(1, 1)]))])
    assert lake.offsets() == [1]
    assert partitions(lake) == [(2,)]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (("nope",), "'nope', which the DataFrame does not have; its columns are topic, partition"),
        (("value",), "'value' of type binary cannot partition"),
        (("price",), "'price' of type double cannot partition"),
        (("total",), r"'total' of type decimal128\(12, 2\) cannot partition"),
        (("tags",), r"'tags' of type list<.*> cannot partition"),
    ],
)
def test_columns_that_cannot_partition_a_table_are_refused_before_it_is_made(
    lake: Lake, columns: tuple[str, ...], complaint: str
) -> None:
    more = [
        StructField("price", DoubleType()),
        StructField("total", DecimalType(12, 2)),
        StructField("tags", ArrayType(StringType())),
    ]
    with pytest.raises(ColumnsDiffer, match=complaint):
        lake.sink(StructType([*SPARK_SCHEMA.fields, *more]), partition_by=columns)
    assert not list(lake.home.rglob("*.json"))


def test_a_table_cannot_be_partitioned_by_all_of_its_columns(lake: Lake) -> None:
    with pytest.raises(ColumnsDiffer, match="at least one column must not be"):
        lake.sink(StructType([StructField("day", DateType())]), partition_by=("day",))


@pytest.mark.parametrize(
    ("first", "then", "complaint"),
    [
        (("topic",), ("partition",), r"by topic, .* specifies partitionBy\(partition"),
        (("topic",), ("topic", "partition"), "is partitioned by topic"),
        ((), ("topic",), "is not partitioned"),
    ],
)
def test_appending_with_another_partitioning_is_refused(
    lake: Lake, first: tuple[str, ...], then: tuple[str, ...], complaint: str
) -> None:
    lake.commit(FIRST, rows([0]), partition_by=first)
    with pytest.raises(ColumnsDiffer, match=complaint):
        lake.sink(partition_by=then)


def test_a_dataframe_without_the_tables_partition_column_is_refused(lake: Lake) -> None:
    lake.commit(FIRST, rows([0]), partition_by=("topic",))
    with pytest.raises(ColumnsDiffer, match="'topic', which the DataFrame does not have"):
        lake.sink(StructType([StructField("value", BinaryType())]))


def test_an_iceberg_table_with_another_transform_is_refused(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    lake.commit(FIRST, rows([0]))
    assert isinstance(lake.table, IcebergLake)
    with lake.table.table().update_spec() as spec:
        spec.add_field("offset", BucketTransform(16), "bucket")
    with pytest.raises(ColumnsDiffer, match=r"partitioned by bucket\[16\]\(offset\)"):
        lake.sink()


def test_a_partitioned_delta_table_of_another_writer_is_appended_to(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    there = rows([0, 1]).set_column(
        3, "timestamp", rows([0, 1]).column("timestamp").cast(pa.timestamp("us", "UTC"))
    )
    write_deltalake(
        str(tmp_path / "orders"), pa.Table.from_batches([there]), partition_by=["partition"]
    )
    lake.commit(FIRST, rows([2]), rows([0], 1))
    assert lake.offsets() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, None),
        ("day", ("day",)),
        (" day , hour ", ("day", "hour")),
        ('["a,b", "c"]', ("a,b", "c")),
        ("[]", ()),
    ],
)
def test_the_option_lists_columns(text: str | None, names: tuple[str, ...] | None) -> None:
    assert partitioning.parse(text) == names


@pytest.mark.parametrize("text", ["", "a,,b", "a,a", "[1]", "[oops"])
def test_an_option_that_lists_no_columns_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="partitionBy="):
        partitioning.parse(text)


def test_options_that_the_sinks_do_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match="no option mergeSchema; it has path"):
        DeltaLake.from_options({"path": "/lake/orders", "mergeSchema": "true"})
    with pytest.raises(ValueError, match="did you mean warehouse"):
        IcebergLake.from_options({"table": "a.b", "warehous": "/lake"})
    given = {"path": "/lake/orders", "checkpointLocation": "/c", "storage.aws_region": "x"}
    assert DeltaLake.from_options({**given, "partitionby": "day"}).uri == "/lake/orders"


def test_a_delta_file_has_statistics_and_no_partition_column(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    schema, batch = with_column("key", IntegerType(), pa.int32(), [1, 1, 2])
    (done,) = lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    (file,) = (each for each in done.files if each.partition == (1,))
    assert "key" not in pq.read_schema(tmp_path / "orders" / file.path).names
    found = json.loads(file.statistics)
    assert found["numRecords"] == 2
    assert (found["minValues"]["offset"], found["maxValues"]["offset"]) == (0, 1)
    assert "key" not in found["nullCount"]
    # And as a reader that skips files by them sees it.
    table = DeltaTable(str(tmp_path / "orders"))
    actions = pa.table(table.get_add_actions(flatten=True))
    assert sorted(actions.column("max.offset").to_pylist()) == [1, 2]


def test_an_iceberg_file_has_metrics_of_its_columns(tmp_path: Path) -> None:
    lake = Lake("iceberg", tmp_path)
    schema, batch = with_column("key", StringType(), pa.string(), ["a", "a", None])
    lake.commit(FIRST, batch, schema=schema, partition_by=("key",))
    assert isinstance(lake.table, IcebergLake)
    files = lake.table.table().inspect.files().to_pylist()
    metrics = [each["readable_metrics"] for each in files]
    bounds = sorted(
        (each["offset"]["lower_bound"], each["offset"]["upper_bound"]) for each in metrics
    )
    assert bounds == [(0, 1), (2, 2)]
    assert sorted(each["key"]["null_value_count"] for each in metrics) == [0, 1]
