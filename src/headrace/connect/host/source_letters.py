"""Dead letters of sources: rows that cannot be transformed or converted.

They are records of the same query, so that they are in the same transaction as the other records
of their epoch. The value is the row of the source as JSON, which a replay reads again.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.connect.error_handling import ErrorHandling
from headrace.connect.host.dead_letters import (
    KEY_CONVERTER,
    NOT_CONVERTED,
    PREFIX,
    TRANSFORMATION,
    VALUE_CONVERTER,
    class_of,
)
from headrace.connect.host.outcomes import EpochOutcome
from headrace.connect.host.refusals import ATTEMPT, LETTER_ID
from headrace.connect.host.work import ConnectorWork

SOURCE_ROW, SOURCE_TOPIC = "_source", "_source_topic"
"""Columns: the row as the source gave it, and the topic of its stream."""
LETTER_VALUE = "_letter_value"
"""The value of a dead letter that is replayed."""
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""With these the row that is read is equal to the one that was written."""
_OBSERVED = "refused"


def with_letters(records: DataFrame, work: ConnectorWork, stream: str) -> DataFrame:
    """The records, with dead letters in place of those that failed.

    Without a topic for them they are left out, and without tolerance they fail the query. How many
    there are is in the progress of the query.
    """
    if "_error" not in records.columns:
        return records
    handling = ErrorHandling.of(work.config)
    failed = F.col("_error").isNotNull()
    if not handling.tolerant:
        problem = F.concat(
            F.lit("PermanentError: a record of the source failed ("),
            F.col("_stage"),
            F.lit("): "),
            F.col("_error"),
            F.lit(". Set errors.tolerance=all to go on without such records, and "),
            F.lit("errors.deadletterqueue.topic.name to keep them"),
        )
        value = F.when(failed, F.raise_error(problem)).otherwise(F.col("value"))
        return records.withColumn("value", value)
    records = records.observe(
        f"{_OBSERVED}-{stream}",
        F.count_if(failed).alias("failed"),
        F.max(F.concat_ws(": ", "_stage", "_error") if handling.logs else F.lit(None)).alias("why"),
    )
    if handling.topic is None:
        return records.where(~failed)
    new = {
        "topic": F.lit(handling.topic),
        "partition": F.lit(None).cast("int"),
        "key": F.lit(None).cast("binary"),
        "value": _value(records),
        "headers": _headers(records, work) if handling.has_headers else F.lit(None),
    }
    return records.withColumns(
        {
            name: F.when(failed, column).otherwise(F.col(name))
            for name, column in new.items()
            if name in records.columns
        }
    )


def _value(records: DataFrame) -> Column:
    if LETTER_VALUE in records.columns:
        return F.col(LETTER_VALUE)
    return F.to_json(F.col(SOURCE_ROW), JSON_OPTIONS).cast("binary")


def _headers(records: DataFrame, work: ConnectorWork) -> Column:
    classes = F.create_map(
        *(
            F.lit(text)
            for stage in (KEY_CONVERTER, VALUE_CONVERTER, TRANSFORMATION)
            for text in (stage, class_of(stage, work.config))
        )
    )
    before = F.col(ATTEMPT) if ATTEMPT in records.columns else F.lit(0)
    letter_id = F.col(LETTER_ID) if LETTER_ID in records.columns else F.lit(None)
    own = {
        "topic": F.col(SOURCE_TOPIC),
        "connector.name": F.lit(work.name),
        "task.id": F.spark_partition_id(),
        "stage": F.col("_stage"),
        "class.name": classes[F.col("_stage")],
        "exception.class.name": F.lit(NOT_CONVERTED),
        "exception.message": F.col("_error"),
        "exception.stacktrace": F.concat(F.lit(f"{NOT_CONVERTED}: "), F.col("_error")),
        "id": F.coalesce(letter_id, F.uuid()),
        "attempt": F.coalesce(before, F.lit(0)) + 1,
    }
    return F.array(
        *(
            F.struct(
                F.lit(f"{PREFIX}{name}").alias("key"),
                column.cast("string").cast("binary").alias("value"),
            )
            for name, column in own.items()
        )
    )


def refused_rows(last: Mapping[str, Any]) -> EpochOutcome:
    """How many rows of an epoch failed, by the progress of the query."""
    outcome = EpochOutcome()
    for name, row in (last.get("observedMetrics") or {}).items():
        if name.startswith(f"{_OBSERVED}-"):
            outcome.failed += row["failed"] or 0
            outcome.examples += [row["why"]] if row["why"] else []
    return outcome
