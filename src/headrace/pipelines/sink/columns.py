"""The columns of the sink, which are those of Spark's Kafka sink, and rows by partition.

    value      string or binary, required; null is a tombstone; with value.format of any type
    key        string or binary; with key.format of any type
    topic      string; the option `topic` overrides it
    partition  integer; if it is null or missing, Kafka's default partitioner is used
    headers    list of (key string, value binary)
    record_timestamp  timestamp of the record; if it is null or missing, the time of the write

Other columns are ignored, as in Spark's sink; the source's column `timestamp` is one of them.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.client.errors import ClientError
from headrace.pipelines.sink import partitioner
from headrace.pipelines.sink.encoding import RecordArrays, encode_headers
from headrace.types import TopicPartition

EXPECTED = {
    "value": "string or binary",
    "key": "string or binary",
    "topic": "string",
    "partition": "int",
    "headers": "array<struct<key: string, value: binary>>",
    "record_timestamp": "timestamp",
}


class ColumnError(ClientError):
    """A column is missing or has the wrong type."""


def check_schema(
    schema: StructType, topic: str | None, typed: frozenset[str] = frozenset()
) -> None:
    """ColumnError unless the sink can write rows of this schema. Typed columns are of any type."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        found = ", ".join(types) or "none"
        raise ColumnError(
            f"the DataFrame has no column 'value' ({EXPECTED['value']}); its columns are: {found}"
        )
    if topic is None and "topic" not in types:
        raise ColumnError(
            "no topic: set .option(\"topic\", ...) or a column 'topic' of type string"
        )
    for name, expected in EXPECTED.items():
        if name in types and name not in typed and not _fits(name, types[name]):
            if isinstance(types[name], StructType):
                expected += f", or {name}.format for a typed column"
            raise ColumnError(
                f"the column {name!r} is {types[name].simpleString()}; expected {expected}"
            )


def _fits(name: str, kind: DataType) -> bool:
    if name == "headers":
        return (
            isinstance(kind, ArrayType)
            and isinstance(kind.elementType, StructType)
            and [field.name for field in kind.elementType.fields] == ["key", "value"]
            and isinstance(kind.elementType.fields[0].dataType, StringType)
            and isinstance(kind.elementType.fields[1].dataType, BinaryType)
        )
    if name == "partition":
        return isinstance(kind, IntegerType)
    if name == "record_timestamp":
        return isinstance(kind, TimestampType)
    return isinstance(kind, StringType) or (name != "topic" and isinstance(kind, BinaryType))


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Records [first, last) of `columns` go to this partition."""

    partition: TopicPartition
    columns: RecordArrays
    first: int
    last: int


class RowSorter:
    """Assigns rows to partitions. Rows without a key go to one partition, the next at each call."""

    def __init__(self, topic: str | None, partitions: Callable[[str], int], start: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._turn = start

    def shares(self, batch: pa.RecordBatch) -> Iterator[PartitionRecords]:
        """All rows, by partition, in their order."""
        for topic, rows in self._by_topic(batch):
            yield from self._by_partition(topic, rows)
        self._turn += 1

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise ColumnError(
                "a row has null in the column 'topic', and there is no option topic to replace it"
            )
        names = pc.unique(topics).to_pylist()
        for name in names:
            yield name, batch if len(names) == 1 else batch.filter(pc.equal(topics, name))

    def _by_partition(self, topic: str, rows: pa.RecordBatch) -> Iterator[PartitionRecords]:
        columns = _columns(rows)
        count = self._partitions(topic)
        wanted = self._chosen(topic, rows, columns, count)
        if wanted is None or (len(wanted) and (wanted == wanted[0]).all()):
            single = self._turn % count if wanted is None else int(wanted[0])
            yield PartitionRecords(TopicPartition(topic, single), columns, 0, len(columns))
            return
        order = np.argsort(wanted, kind="stable")
        ordered, columns = wanted[order], columns.take(order)
        bounds = np.concatenate(([0], np.flatnonzero(np.diff(ordered)) + 1, [len(ordered)]))
        for first, last in itertools.pairwise(bounds):
            place = TopicPartition(topic, int(ordered[first]))
            yield PartitionRecords(place, columns, int(first), int(last))

    def _chosen(
        self, topic: str, rows: pa.RecordBatch, columns: RecordArrays, count: int
    ) -> npt.NDArray[np.int32] | None:
        """The partition of each row; None if all rows go to one partition."""
        named = _column(rows, "partition")
        keys = columns.keys
        if named is None and (keys is None or keys.null_count == len(keys)):
            return None
        wanted = np.full(len(columns), self._turn % count, np.int32)
        if keys is not None:
            keyed = pc.is_valid(keys).to_numpy(zero_copy_only=False)
            wanted = np.where(keyed, partitioner.by_key(keys, count), wanted)
        if named is not None:
            said = pc.is_valid(named).to_numpy(zero_copy_only=False)
            numbers = named.fill_null(0).to_numpy(zero_copy_only=False)
            wanted = np.where(said, numbers, wanted)
            wrong = wanted[(wanted < 0) | (wanted >= count)]
            if len(wrong):
                raise ColumnError(
                    f"the column 'partition' has {wrong[0]}; topic {topic} has 0 to {count - 1}"
                )
        return wanted.astype(np.int32)


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    return None if index < 0 else rows.column(index)


def _columns(rows: pa.RecordBatch) -> RecordArrays:
    keys, headers = _column(rows, "key"), _column(rows, "headers")
    times = _column(rows, "record_timestamp")
    return RecordArrays(
        None if keys is None else keys.cast(pa.binary()),
        rows.column("value").cast(pa.binary()),
        None if headers is None else encode_headers(headers),
        None if times is None else _milliseconds(times),
    )


def _milliseconds(times: pa.Array) -> pa.Int64Array:
    micros = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    found = micros.fill_null(0).to_numpy(zero_copy_only=False) // 1000
    return pa.array(found, pa.int64(), mask=np.asarray(micros.is_null()))
