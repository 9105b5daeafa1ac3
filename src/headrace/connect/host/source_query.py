"""The streaming query of a source connector: its rows, transforms, converters, the topics."""

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.connect.converters.writing import write_records
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.source_reader import OFFSET_COLUMN, StreamWork, data_source_class
from headrace.connect.host.stored_offsets import source_offsets
from headrace.connect.host.work import ConnectorWork
from headrace.connect.plugin import DEAD_LETTERS, PermanentError, Source, SourceStream
from headrace.connect.transforms.applying import apply

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_AN_EPOCH = 100_000


def source_rows(
    spark: "SparkSession", work: ConnectorWork, settings: DriverSettings
) -> "DataFrame":
    """The records of all streams of a source, as the topic sink takes them."""
    source = work.connector()
    assert isinstance(source, Source)
    if work.config.get(DEAD_LETTERS):
        raise PermanentError(f"sources have no dead letters yet; remove {DEAD_LETTERS}")
    streams = source.streams()
    topics = [stream.topic for stream in streams]
    if len(set(topics)) < len(topics):
        raise PermanentError(f"two streams of the connector have the same topic: {sorted(topics)}")
    start = source_offsets(settings.client, settings.offsets_topic, work.name)
    frames = [
        _stream_records(spark, work, settings, index, stream, start)
        for index, stream in enumerate(streams)
    ]
    return reduce(lambda one, other: one.unionByName(other), frames)


def _stream_records(
    spark: Any,
    work: ConnectorWork,
    settings: DriverSettings,
    index: int,
    stream: SourceStream,
    start: Mapping[str, Mapping[str, Any]],
) -> Any:
    from pyspark.sql import functions as f

    format_name = f"headrace-connect-{work.name}-{index}"
    limit = int(work.config.get("headrace.batch.max.rows") or RECORDS_AN_EPOCH)
    spark.dataSource.register(
        data_source_class(format_name, stream.schema, StreamWork(work, stream.topic, start, limit))
    )
    rows = spark.readStream.format(format_name).load()
    records = rows.select(
        f.lit(stream.topic).alias("topic"),
        f.lit(None).cast("int").alias("partition"),
        f.lit(None).cast("bigint").alias("offset"),
        f.current_timestamp().alias("timestamp"),
        _key(stream).alias("key"),
        (f.col("value")[stream.value] if stream.value else f.col("value")).alias("value"),
        f.lit(None).cast("array<struct<key:string,value:binary>>").alias("headers"),
        f.col(OFFSET_COLUMN),
    )
    changed = apply(records, work.config)
    return _with_offsets(write_records(changed, work.config, stream.topic), work, settings)


def _key(stream: SourceStream) -> Any:
    from pyspark.sql import functions as f

    columns = [f.col("value")[name].alias(name) for name in stream.key]
    if not columns:
        return f.lit(None).cast("string")
    return columns[0] if len(columns) == 1 else f.struct(*columns)


def _with_offsets(records: Any, work: ConnectorWork, settings: DriverSettings) -> Any:
    """The records, with the offset rows as records of the offsets topic."""
    from pyspark.sql import functions as f

    reached = f.col(OFFSET_COLUMN)
    is_offset = reached.isNotNull()
    topic, key, value = f.col("topic"), f.col("key"), f.col("value")
    if "_error" in records.columns:
        records, topic, value = _without_errors(records, work)
    return records.select(
        f.when(is_offset, f.lit(settings.offsets_topic)).otherwise(topic).alias("topic"),
        f.when(is_offset, reached["key"].cast("binary")).otherwise(key.cast("binary")).alias("key"),
        f.when(is_offset, reached["value"].cast("binary"))
        .otherwise(value.cast("binary"))
        .alias("value"),
        f.when(~is_offset, f.col("headers")).alias("headers"),
    )


def _without_errors(records: Any, work: ConnectorWork) -> Any:
    """Records that cannot be converted are left out, or fail the query."""
    from pyspark.sql import functions as f

    failed = f.col("_error").isNotNull()
    topic, value = f.col("topic"), f.col("value")
    if work.config.get("errors.tolerance", "none") != "all":
        problem = f.concat(f.lit("PermanentError: a record of the source: "), f.col("_error"))
        return records, topic, f.when(failed, f.raise_error(problem)).otherwise(value)
    return records.where(~failed), topic, value
