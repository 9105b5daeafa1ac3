"""The streaming query of a table sink: rows that fit the table are written, others are refused.

Tasks write files and the driver commits them once for each epoch, as the Spark sinks of lake tables
do (`pipelines/lake/writers.py`). Here an epoch is a function of `foreachBatch`, so that a task can
take out the records that fail.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import AtomicType, DataType, StructType

from headrace.connect.converters.options import PARTS, converter_of
from headrace.connect.converters.reading import read_records
from headrace.connect.host.dead_letters import TASK_PUT, ReplayEpoch
from headrace.connect.host.outcomes import run
from headrace.connect.host.refusals import Refusals
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.sink_query import EpochEnd, changed
from headrace.connect.host.work import ConnectorWork
from headrace.connect.plugin import PermanentError, TableSink
from headrace.pipelines.lake.columns import ColumnsDiffer
from headrace.pipelines.sink.epoch import task_number

ROW = "_row"
"""The columns of the table, as a struct."""


def table_writer(
    rows: Any,
    work: ConnectorWork,
    settings: DriverSettings,
    ended: EpochEnd,
    replay: str | None = None,
) -> tuple[Any, Callable[[Any, int], None]]:
    """The rows of the query, and the function that writes an epoch of them.

    It runs where Spark's local properties name the query and the epoch.
    """
    sink = work.connector()
    assert isinstance(sink, TableSink)
    records = _table_rows(rows, work, sink)
    made: list[Any] = []

    def write(batch: Any, epoch: int) -> None:
        try:
            write_epoch(batch, epoch)
        except ColumnsDiffer as error:
            raise PermanentError(str(error)) from error

    def write_epoch(batch: Any, epoch: int) -> None:
        if not made:
            schema = records.schema[ROW].dataType
            sink.begin(batch.sparkSession, schema)
            made.append(_spark_writer(sink, schema))
        again = None if replay is None else ReplayEpoch(replay, epoch)
        outcome = run(batch, TableWork(work, made[0], settings.kafka_options(), again))
        made[0].commit(outcome.messages, epoch)
        if outcome.messages:
            sink.committed(batch.sparkSession, outcome.messages[0].epoch)
        ended(outcome)

    return records, write


def _spark_writer(sink: TableSink, schema: StructType) -> Any:
    """The writer of Spark's sink, whose parts are called here: tasks write, the driver commits."""
    package = importlib.import_module(f"pyspark_{sink.spark_format.replace('-', '_')}")
    return package.DefaultSource(dict(sink.table_options())).streamWriter(schema, False)


@dataclass(frozen=True, slots=True)
class TableWork:
    """What each task of an epoch does. Picklable; called by Spark with the task's batches."""

    work: ConnectorWork
    writer: Any
    kafka: Mapping[str, str] = field(repr=False)
    replay: ReplayEpoch | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        refusals = Refusals(self.work, task_number(), self.kafka, self.replay)
        written = 0

        def good_rows() -> Iterator[pa.RecordBatch]:
            nonlocal written
            for batch in batches:
                good = refusals.take_out(batch)
                written += good.num_rows
                yield pa.RecordBatch.from_struct_array(good.column(ROW))

        files = self.writer.write(good_rows())
        yield refusals.stored(written, files)


def _table_rows(rows: Any, work: ConnectorWork, sink: TableSink) -> Any:
    """The records with a column `_row`: the fields of the value, and where the record is from."""
    from pyspark.sql import functions as f

    if any(converter_of(work.config, part).has_declared_schemas for part in PARTS):
        raise PermanentError(
            "a table needs records of one schema, and a converter with schemas.enable=true finds "
            "it in each record: set value.converter.schemas.enable=false and value.schema, or use "
            "a registry"
        )
    records = changed(read_records(rows, work.config, sink.columns), work)
    kind = records.schema["value"].dataType
    if not isinstance(kind, StructType):
        raise PermanentError(
            "the values have no fields, so that they are no rows of a table: set value.schema "
            "(such as 'id bigint, name string') for JSON, or use a converter with a schema"
        )
    records = records.where(f.col("value").isNotNull() | f.col("_error").isNotNull())
    columns, problems = _fitted(kind, sink.table_schema())
    origin = [f.col(of).alias(name) for name, of in sink.origin.items() if name not in kind.names]
    good = f.col("_error").isNull()
    problem = f.when(good, f.coalesce(*problems)) if problems else f.lit(None).cast("string")
    records = records.withColumn("_problem", problem).withColumn(ROW, f.struct(*columns, *origin))
    stage = f.when(f.col("_problem").isNotNull(), TASK_PUT).otherwise(f.col("_stage"))
    others = [name for name in records.columns if name not in (ROW, "_problem", "key", "value")]
    new = {"_error": f.coalesce("_error", "_problem").alias("_error"), "_stage": stage}
    return records.select(
        *(new[name].alias(name) if name in new else f.col(name) for name in others), ROW
    )


def _fitted(kind: StructType, table: pa.Schema | None) -> tuple[list[Any], list[Any]]:
    """The columns in the types of the table, and why a record does not fit, if it does not."""
    from pyspark.sql import functions as f

    columns, problems = [], []
    for each in kind.fields:
        old = f.col("value")[each.name]
        index = -1 if table is None else table.get_field_index(each.name)
        if table is None or index < 0:
            columns.append(old.alias(each.name))
            continue
        there = table.field(index)
        wanted = from_arrow_type(there.type, prefer_timestamp_ntz=True)
        new = old.try_cast(wanted) if _can_cast(each.dataType, wanted) else old
        if new is not old:
            why = f.lit(f"the value does not fit the column {each.name} {wanted.simpleString()}")
            problems.append(f.when(old.isNotNull() & new.isNull(), why))
        if not there.nullable:
            why = f.lit(f"the column {each.name} of the table must have a value")
            problems.append(f.when(old.isNull(), why))
        columns.append(new.alias(each.name))
    if table is not None:
        missing = [f for f in table if not f.nullable and f.name not in kind.names]
        missing = [f.name for f in missing if f.name not in ("topic", "partition", "offset")]
        if missing:
            raise PermanentError(
                f"the table requires the column {missing[0]}, which the records do not have: add "
                "it with a transform, or let the table have rows without it"
            )
    return columns, problems


def _can_cast(have: DataType, wanted: DataType) -> bool:
    """Whether single values may fit a column of another type."""
    return have != wanted and isinstance(have, AtomicType) and isinstance(wanted, AtomicType)
