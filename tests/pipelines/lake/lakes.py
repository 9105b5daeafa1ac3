"""Tables for tests: rows as the source gives them, and both kinds of lake behind one name."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.pipelines.lake.delta import DeltaLake
from headrace.pipelines.lake.files import TaskFiles
from headrace.pipelines.lake.folders import FolderRule
from headrace.pipelines.lake.iceberg import IcebergLake, in_warehouse
from headrace.pipelines.lake.parquet import ParquetLake
from headrace.pipelines.lake.views import TableView, open_view
from headrace.pipelines.lake.writers import LakeSink
from headrace.pipelines.sink.epoch import Epoch

SPARK_SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("value", BinaryType()),
    ]
)
ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "Europe/Zurich")),
        ("value", pa.binary()),
    ]
)


def rows(offsets: Iterable[int], partition: int = 0, topic: str = "orders") -> pa.RecordBatch:
    listed = list(offsets)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([topic] * len(listed), pa.string()),
            pa.array([partition] * len(listed), pa.int32()),
            pa.array(listed, pa.int64()),
            pa.array([1_700_000_000_000_000 + o for o in listed], ARROW_SCHEMA.field(3).type),
            pa.array([b"value %d" % o for o in listed], pa.binary()),
        ],
        schema=ARROW_SCHEMA,
    )


class Lake:
    """A table in a folder, and what a test does with it."""

    def __init__(self, kind: str, home: Path) -> None:
        self.kind = kind
        self.home = home
        self.table: DeltaLake | IcebergLake = (
            DeltaLake(str(home / "orders"))
            if kind == "delta"
            else in_warehouse(str(home), "sales.orders")
        )

    def sink(
        self,
        schema: StructType = SPARK_SCHEMA,
        *,
        overwrite: bool = False,
        partition_by: tuple[str, ...] | None = None,
    ) -> LakeSink:
        return LakeSink(self.table, schema, overwrite, partition_by)

    def commit(
        self,
        epoch: Epoch,
        *batches: pa.RecordBatch,
        schema: StructType = SPARK_SCHEMA,
        partition_by: tuple[str, ...] | None = None,
    ) -> list[TaskFiles]:
        """One task a batch."""
        sink = self.sink(schema, partition_by=partition_by)
        files = [sink.write(epoch, iter([batch])) for batch in batches]
        sink.commit(files)
        return files

    def read(self) -> pa.Table:
        if isinstance(self.table, DeltaLake):
            return self.table.table().to_pyarrow_table()
        return self.table.table().scan().to_arrow()

    def offsets(self) -> list[int]:
        return sorted(self.read().column("offset").to_pylist())

    def data_files(self) -> set[str]:
        return {str(path.relative_to(self.home)) for path in self.home.rglob("data/**/*.parquet")}

    def view(self) -> TableView:
        if self.kind == "delta":
            return open_view(str(self.home / "orders"))
        return open_view("sales.orders", warehouse=str(self.home))


class PlainFiles:
    """Parquet files without a table's log, in folders by partition."""

    def __init__(self, home: Path) -> None:
        self.root = home / "orders"
        self.table = ParquetLake(str(self.root), FolderRule(fields=("partition",)))

    def sink(self) -> LakeSink:
        return LakeSink(self.table, SPARK_SCHEMA, False)

    def commit(self, epoch: Epoch, *batches: pa.RecordBatch) -> None:
        """One task a batch."""
        sink = self.sink()
        sink.commit([sink.write(epoch, iter([batch])) for batch in batches])

    def offsets(self) -> list[int]:
        found = ds.dataset(self.root, partitioning="hive").to_table()
        return sorted(found.column("offset").to_pylist())
