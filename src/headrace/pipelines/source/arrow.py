"""Columns of records as Arrow, in the types that Spark expects of the source."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.schemas.columns.pieces import byte_array
from headrace.types import TopicPartition
from headrace.wire.batch_columns import BatchColumns, decode_headers

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER),
}
SPARK_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}
LOG_APPEND_TIME = 1


def spark_schema(names: tuple[str, ...], typed: Mapping[str, DataType]) -> StructType:
    """The source's schema, with other types for columns that are typed."""
    types = SPARK_TYPES | dict(typed)
    return StructType([StructField(name, types[name]) for name in names])


def record_batch(
    columns: BatchColumns,
    partition: TopicPartition,
    names: tuple[str, ...],
    typed: Mapping[str, pa.Array],
) -> pa.RecordBatch:
    """The named columns; all bytes are copied, so the payload may be reused."""
    count = len(columns)
    make: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: byte_array(columns.payload, columns.key_at, columns.key_length),
        "value": lambda: byte_array(columns.payload, columns.value_at, columns.value_length),
        "topic": lambda: pa.repeat(pa.scalar(partition.topic), count),
        "partition": lambda: pa.repeat(pa.scalar(partition.partition, pa.int32()), count),
        "offset": lambda: pa.array(columns.offset),
        "timestamp": lambda: pa.array(columns.timestamp_ms * 1000).view(TYPES["timestamp"]),
        "timestampType": lambda: pa.array(columns.append_time.astype(np.int32)),
        "headers": lambda: headers_array(columns),
    }
    arrays = [typed[name] if name in typed else make[name]() for name in names]
    fields = [
        pa.field(name, array.type if name in typed else TYPES[name])
        for name, array in zip(names, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def headers_array(columns: BatchColumns) -> pa.Array:
    """Lists of name and value; null if a record has none, as in Spark's own source."""
    found = decode_headers(columns)
    count = len(columns)
    if not len(found.name_at):
        return pa.nulls(count, TYPES["headers"])
    raw_names = byte_array(columns.payload, found.name_at, found.name_length)
    try:
        names = raw_names.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [bytes(name).decode("utf-8", "replace") for name in raw_names.to_pylist()]
        names = pa.array(texts, pa.string())
    values = byte_array(columns.payload, found.value_at, found.value_length)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(found.counts, out=ends[1:])
    offsets = pa.array(ends, mask=np.append(found.counts == 0, False))
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER))
    return pa.ListArray.from_arrays(offsets, pairs, type=TYPES["headers"])
