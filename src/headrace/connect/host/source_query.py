"""The streaming query of a source connector: its rows, transforms, converters, the topics."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.connect.converters.writing import write_records
from headrace.connect.host.packs import PACKED_RECORDS_AN_EPOCH, PACKED_SCHEMA, Packing, observed
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.source_letters import SOURCE_ROW, SOURCE_TOPIC, with_letters
from headrace.connect.host.source_reader import (
    OFFSET_COLUMN,
    StreamWork,
    data_source_class,
    row_ddl,
)
from headrace.connect.host.stored_offsets import source_offsets
from headrace.connect.host.work import ConnectorWork
from headrace.connect.plugin import (
    HEADERS_TYPE,
    PermanentError,
    Source,
    SourceStream,
)
from headrace.connect.transforms.applying import apply
from headrace.connect.transforms.headers import no_headers, present_headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_AN_EPOCH = 100_000


def source_streams(source: Source, settings: DriverSettings) -> Sequence[SourceStream]:
    """The streams of a source; PermanentError if it cannot run here."""
    if source.on_driver and not settings.master.startswith("local"):
        raise PermanentError(
            f"{type(source).__name__} stores what it receives in files of the driver's machine: "
            "set headrace.spark.master=local[*], or run this connector in a worker of its own"
        )
    streams = source.streams()
    topics = [stream.topic for stream in streams]
    if len(set(topics)) < len(topics):
        raise PermanentError(f"two streams of the connector have the same topic: {sorted(topics)}")
    return streams


def source_rows(
    spark: "SparkSession",
    work: ConnectorWork,
    settings: DriverSettings,
    streams: Sequence[SourceStream],
    packings: Sequence[Packing] | None,
) -> "DataFrame":
    """The records of all streams of a source, as the topic sink takes them; or packs of them."""
    start = source_offsets(settings.client, settings.offsets_topic, work.name)
    frames = [
        _stream_records(
            spark,
            work,
            settings,
            index,
            stream,
            start,
            None if packings is None else packings[index],
        )
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
    packing: Packing | None,
) -> Any:
    format_name = f"headrace-connect-{work.name}-{index}"
    usual = RECORDS_AN_EPOCH if packing is None else PACKED_RECORDS_AN_EPOCH
    limit = int(work.config.get("headrace.batch.max.rows") or usual)
    spool = str(settings.spool(work.name))
    stream_work = StreamWork(work, stream.topic, start, limit, spool, packing)
    ddl = row_ddl(stream.schema) if packing is None else PACKED_SCHEMA
    spark.dataSource.register(data_source_class(format_name, ddl, stream_work))
    rows = spark.readStream.format(format_name).load()
    if packing is not None:
        return observed(rows, stream.topic)
    records = stream_records(rows, work.config, stream, OFFSET_COLUMN)
    return _with_offsets(with_letters(records, work, stream.topic), settings)


def stream_records(rows: Any, config: Mapping[str, str], stream: SourceStream, *others: str) -> Any:
    """Rows with a column `value` as records, after transforms and converters.

    `_source` has the row as it was. `others` are columns that are kept.
    """
    from pyspark.sql import functions as f

    records = rows.select(
        f.lit(stream.topic).alias("topic"),
        f.lit(None).cast("int").alias("partition"),
        f.lit(None).cast("bigint").alias("offset"),
        f.current_timestamp().alias("timestamp"),
        _key(stream).alias("key"),
        (f.col("value")[stream.value] if stream.value else f.col("value")).alias("value"),
        _headers(stream).alias("headers"),
        f.col("value").alias(SOURCE_ROW),
        f.lit(stream.topic).alias(SOURCE_TOPIC),
        *others,
    )
    return write_records(apply(records, config), config, stream.topic)


def _key(stream: SourceStream) -> Any:
    from pyspark.sql import functions as f

    columns = [f.col("value")[name].alias(name) for name in stream.key]
    if not columns:
        return f.lit(None).cast("string")
    return columns[0] if len(columns) == 1 else f.struct(*columns)


def _headers(stream: SourceStream) -> Any:
    from pyspark.sql import functions as f

    found = f.col("value")[stream.headers] if stream.headers else f.lit(None)
    return found.cast(HEADERS_TYPE)


def _with_offsets(records: Any, settings: DriverSettings) -> Any:
    """The records, with the offset rows as records of the offsets topic."""
    from pyspark.sql import functions as f

    reached = f.col(OFFSET_COLUMN)
    is_offset = reached.isNotNull()
    return records.select(
        f.when(is_offset, f.lit(settings.offsets_topic)).otherwise(f.col("topic")).alias("topic"),
        *(
            f.when(is_offset, reached[part].cast("binary")).otherwise(f.col(part)).alias(part)
            for part in ("key", "value")
        ),
        f.when(is_offset, no_headers()).otherwise(present_headers()).alias("headers"),
    )
