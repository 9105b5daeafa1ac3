"""Streams and tables as DataFrames: over their topics, or empty ones for an analysis."""

import json
from collections.abc import Callable, Mapping
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipelines.typed.options import URL
from headrace.sql.host.bad_records import with_bad_records
from headrace.sql.host.reading import PROBLEM, read_rows, source_columns, view_schema
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.hosting import END, MAX_OFFSETS, START, QueryRefused
from headrace.sql.sources import REGISTERED, Format, SqlSource

MakeView: TypeAlias = Callable[[SqlSource, str], DataFrame]
"""Makes the rows of a source for a view of this name."""
FORMATS = {Format.AVRO: "avro", Format.JSON_SR: "json", Format.PROTOBUF: "protobuf"}
"""The names of formats in the options of the Spark source and sink."""
RECORDS_AN_EPOCH = 500_000


def streaming_views(
    spark: SparkSession,
    settings: SqlDriverSettings,
    properties: Mapping[str, str],
    group: str | None = None,
) -> MakeView:
    """Views of streaming queries. `group` is the consumer group that shows the query."""

    def make(source: SqlSource, view: str) -> DataFrame:
        options = {**_options(source, settings), "startingOffsets": _start(source, properties)}
        if not source.is_table:
            # A table is complete before the first row of a stream is joined with it.
            options["maxOffsetsPerTrigger"] = properties.get(MAX_OFFSETS, str(RECORDS_AN_EPOCH))
        if END in properties:
            end = json.loads(properties[END])
            options["endingOffsets"] = json.dumps({source.topic: end[source.topic]})
        if group is not None:
            options["group.id"] = group
            # The inputs of a query are members of one group.
            options["kafka.group.instance.id"] = f"{group}-{view}"
        reader = spark.readStream.name(f"source_{view}").format("headrace")
        records = reader.options(**options).load()
        return with_bad_records(read_rows(records, source), source, view)

    return make


def batch_views(
    spark: SparkSession,
    settings: SqlDriverSettings,
    ends: Mapping[str, Mapping[str, int]] | None = None,
) -> MakeView:
    """Views of what is in the topics now: of tables the latest row of each key.

    `ends` are offsets by topic and partition up to which topics are read.
    """

    def make(source: SqlSource, view: str) -> DataFrame:
        options = {**_options(source, settings), "startingOffsets": "earliest"}
        if ends is not None and source.topic in ends:
            options["endingOffsets"] = json.dumps({source.topic: dict(ends[source.topic])})
        records = spark.read.format("headrace").options(**options).load()
        if source.is_table:
            others = [name for name in records.columns if name != "key"]
            latest = F.max_by(F.struct(*others), F.col("offset")).alias("latest")
            found = records.where(F.col("key").isNotNull()).groupBy("key").agg(latest)
            records = found.select("key", "latest.*").where(F.col("value").isNotNull())
        return read_rows(records, source).where(F.col(PROBLEM).isNull()).drop(PROBLEM)

    return make


def empty_views(spark: SparkSession) -> MakeView:
    """Streaming views without rows; no topic is read, and no registry is asked."""

    def make(source: SqlSource, view: str) -> DataFrame:
        nothing = spark.readStream.name(f"source_{view}").format("rate").load()
        return nothing.select(
            *(
                F.lit(None).cast(each.dataType).alias(each.name)
                for each in view_schema(source).fields
            )
        )

    return make


def _options(source: SqlSource, settings: SqlDriverSettings) -> dict[str, str]:
    return {
        **settings.kafka_options(),
        **registered_options(source, settings),
        "subscribe": source.topic,
        "kafka.isolation.level": "read_committed",
        "columns": ",".join(source_columns(source)),
    }


def registered_options(source: SqlSource, settings: SqlDriverSettings) -> dict[str, str]:
    """The options for keys and values with a schema; QueryRefused without a registry."""
    parts = [
        (name, form)
        for name, form, columns in (
            ("key", source.key_format, source.keys),
            ("value", source.value_format, source.values),
        )
        if form in REGISTERED and columns
    ]
    if not parts:
        return {}
    if not settings.registry.get(URL):
        raise QueryRefused(
            f"{source.name} has the format {parts[0][1]}, which needs a schema registry: set "
            "schema.registry.url for the server"
        )
    return {**settings.registry, **{f"{name}.format": FORMATS[form] for name, form in parts}}


def _start(source: SqlSource, properties: Mapping[str, str]) -> str:
    """Where the first epoch begins: tables are read from their beginning."""
    start = properties.get(START, "latest")
    if source.is_table:
        return "earliest"
    if not start.lstrip().startswith("{"):
        return start
    offsets = json.loads(start)
    # It has the topics of all inputs, and partitions that are new begin at their beginning.
    return (
        json.dumps({source.topic: offsets[source.topic]}) if source.topic in offsets else "earliest"
    )
