"""A source connector as a Python data source of Spark.

The driver's reader asks the connector how far each epoch goes; tasks read these ranges as Arrow
batches. At the end of a range a task adds a row with the offset that was reached: the row becomes
a record of the offsets topic in the same transaction as the range.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from headrace.connect.host.packs import Packing
from headrace.connect.host.work import (
    ConnectorWork,
    offset_record_key,
    offset_record_value,
    partition_key,
)
from headrace.connect.plugin import Source, SourceOffset, SourcePartition
from headrace.connect.push.spooled_source import SpooledSource, spooled
from headrace.pipelines.worker_socket import SentToTasks

OFFSET_COLUMN = "_offset"
"""Null in rows of the source; else key and value of a record of the offsets topic."""
ROWS_A_BATCH = 10_000

StreamPosition = dict[str, SourceOffset | None]


class ConnectorDataSource(DataSource):  # type: ignore[misc]
    """One stream of a source connector; `data_source_class` makes the class for each."""

    format_name: ClassVar[str]
    ddl: ClassVar[str]
    stream: ClassVar["StreamWork"]

    @classmethod
    def name(cls) -> str:
        return cls.format_name

    def schema(self) -> str:
        return self.ddl

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return ConnectorStreamReader(self.stream, schema)


def row_ddl(ddl: str) -> str:
    """The columns of a stream whose rows are not packed."""
    return f"value struct<{ddl}>, {OFFSET_COLUMN} struct<key: string, value: string>"


class StreamWork:
    """Which stream of a connector is read, and where it begins."""

    def __init__(
        self,
        work: ConnectorWork,
        topic: str,
        start: Mapping[str, SourceOffset],
        rows_an_epoch: int,
        spool: str,
        packing: Packing | None = None,
    ) -> None:
        """`start` has the stored offsets by partition key, for a new checkpoint.

        `spool` is the folder for the messages of a push source. `packing` is None if each row of
        Spark is a row of the stream.
        """
        self.work = work
        self.topic = topic
        self.start = start
        self.rows_an_epoch = rows_an_epoch
        self.spool = spool
        self.packing = packing


def data_source_class(format_name: str, ddl: str, stream: StreamWork) -> type[ConnectorDataSource]:
    """A class of its own: options of a data source are visible in plans, its class is not."""
    values = {"format_name": format_name, "ddl": ddl, "stream": stream}
    return type("OneConnectorDataSource", (ConnectorDataSource,), values)


class RangePartition(InputPartition):  # type: ignore[misc]
    """One task's range."""

    def __init__(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> None:
        self.partition = partition
        self.start = start
        self.end = end


class ConnectorStreamReader(SentToTasks, DataSourceStreamReader):  # type: ignore[misc]
    """Spark has one on the driver, and sends copies to tasks."""

    def __init__(self, stream: StreamWork, schema: StructType) -> None:
        self._stream = stream
        self._schema = schema
        self._source: Source | None = None
        self._committed: StreamPosition = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_source": None, "_committed": {}}

    def _connector(self) -> Source:
        if self._source is None:
            found = self._stream.work.connector()
            assert isinstance(found, Source)
            self._source = spooled(found, Path(self._stream.spool))
        return self._source

    def initialOffset(self) -> StreamPosition:
        return dict(self._stream.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: StreamPosition, limit: ReadLimit) -> StreamPosition:
        source = self._connector()
        self._commit(start)
        partitions = [
            (key, each)
            for stream in source.streams()
            if stream.topic == self._stream.topic
            for each in stream.partitions
            if not source.is_finished(each, start.get(key := partition_key(each)))
        ]
        rows = max(1, self._stream.rows_an_epoch // max(1, len(partitions)))
        end = dict(start)
        for key, each in partitions:
            reached = source.latest(each, start.get(key), rows)
            if reached is not None:
                end[key] = dict(reached)
        return end

    def partitions(self, start: StreamPosition, end: StreamPosition) -> list[RangePartition]:
        return [
            RangePartition(json.loads(key), start.get(key), reached)
            for key, reached in end.items()
            if reached is not None and reached != start.get(key)
        ]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        found = self._connector().read(partition.partition, partition.start, partition.end)
        key = offset_record_key(self._stream.work.name, partition.partition)
        value = offset_record_value(partition.end)
        packing = self._stream.packing
        if packing is not None:
            for rows in _batches(found, packing.row):
                yield from packing.packs(rows)
            yield packing.offset(key, value)
            return
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        for rows in _batches(found, arrow.field("value").type):
            nothing = pa.nulls(len(rows), arrow.field(OFFSET_COLUMN).type)
            yield pa.RecordBatch.from_arrays([rows, nothing], schema=arrow)
        reached = {"key": key, "value": value}
        yield pa.RecordBatch.from_pylist([{"value": None, OFFSET_COLUMN: reached}], schema=arrow)

    def commit(self, end: StreamPosition) -> None:
        self._commit(end)

    def _commit(self, end: StreamPosition) -> None:
        """An epoch is in the checkpoint; Spark tells it late, or asks for the next one first."""
        source = self._connector()
        for key, reached in end.items():
            if reached is not None and reached != self._committed.get(key):
                source.commit(json.loads(key), reached)
        self._committed = dict(end)

    def stop(self) -> None:
        if isinstance(self._source, SpooledSource):
            self._source.close()
        self._source = None


def _batches(
    found: Iterable[Mapping[str, object] | pa.RecordBatch], kind: pa.StructType
) -> Iterator[pa.StructArray]:
    """The rows as struct arrays; dictionaries are collected into batches."""
    pending: list[Any] = []
    for each in found:
        if isinstance(each, pa.RecordBatch):
            if pending:
                yield pa.array(pending, kind)
                pending = []
            yield _struct(each, kind)
            continue
        pending.append(each)
        if len(pending) == ROWS_A_BATCH:
            yield pa.array(pending, kind)
            pending = []
    if pending:
        yield pa.array(pending, kind)


def _struct(batch: pa.RecordBatch, kind: pa.StructType) -> pa.StructArray:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    columns = [batch.column(field.name).cast(field.type) for field in fields]
    return pa.StructArray.from_arrays(columns, fields=fields)
