"""The queries of statements in this driver."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.connect.host.failures import QueryFailure, failure_of
from headrace.pipelines.host.hosted_queries import HostedQueries, HostedQuery
from headrace.pipelines.host.retries import FailureKind
from headrace.pipelines.running import progress
from headrace.sql.host.analysis import output_mode
from headrace.sql.host.bad_records import bad_records
from headrace.sql.host.functions import check_functions
from headrace.sql.host.output import EpochWriter, append_options
from headrace.sql.host.plan_frames import plan_rows
from headrace.sql.host.processing_log import ProcessingLog
from headrace.sql.host.progress_listener import StatementListener
from headrace.sql.host.replacing import remember_plan
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.views import streaming_views
from headrace.sql.host.writing import written_rows
from headrace.sql.hosting import EPOCHS, QueryRefused, QuerySpec
from headrace.sql.plans import DELETED

TRIGGER_MS = "trigger.ms"
"""The property with the time between the beginnings of two epochs."""
DEFAULT_TRIGGER_MS = 200

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class HostedStatement(HostedQuery):
    """A query in this driver, with what its epochs have told."""

    spec: QuerySpec
    rows: int = 0
    rate: float = 0.0
    lag: int | None = None
    watermark: int | None = None
    late_rows: int = 0
    bad_records: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    ended_at: int | None = None
    last_row_at: int | None = None

    def report(self) -> dict[str, object]:
        return {
            **HostedQuery.report(self),
            "rows": self.rows,
            "rate": self.rate,
            "lag": self.lag,
            "watermark": self.watermark,
            "late_rows": self.late_rows,
            "bad_records": self.bad_records,
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "epoch": None if self.batch < 0 else self.batch,
            "epoch_at": self.ended_at,
            "last_row_at": self.last_row_at,
        }


class SqlQueries:
    """All queries of a Spark session."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        settings: SqlDriverSettings,
        listener: StatementListener,
        processing_log: ProcessingLog,
    ) -> None:
        self._session = session
        self._settings = settings
        self._listener = listener
        self._processing_log = processing_log
        self._hosted = HostedQueries(self._begin, self._take, _failure)

    @property
    def looked_at(self) -> float:
        return self._hosted.looked_at

    def start(self, spec: QuerySpec) -> None:
        """Begin to start a query; it must not run yet."""
        self._hosted.start(HostedStatement(spec.id, spec=spec))

    def stop(self, query: str) -> None:
        """End a query; returns when it writes nothing more."""
        self._hosted.stop(query)

    def stop_all(self) -> None:
        """End all queries at the same time."""
        self._hosted.stop_all()

    def report(self) -> dict[str, object]:
        return self._hosted.report()

    # ----------------------------------------------------------------------------------- starts

    def _begin(self, hosted: HostedStatement) -> Any:
        spec, settings = hosted.spec, self._settings
        check_functions(spec.functions, settings)
        spark = self._session()
        spark.streams.addListener(self._listener)
        self._listener.writes(spec.id, spec.target.topic, output_mode(spec.plan))
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", spec.id)
        views = streaming_views(spark, settings, spec.properties, f"sql-{spec.id}")
        rows = plan_rows(spark, spec.plan, spec.sources, spec.functions, views)
        checkpoint = settings.checkpoint(spec.id, spec.generation)
        writer = self._writer(rows, spec, checkpoint)
        remember_plan(checkpoint, spec)
        interval = int(spec.properties.get(TRIGGER_MS, DEFAULT_TRIGGER_MS))
        return (
            writer.queryName(spec.id)
            .option("checkpointLocation", str(checkpoint.absolute()))
            .trigger(processingTime=f"{interval} milliseconds")
            .start()
        )

    def _writer(self, rows: DataFrame, spec: QuerySpec, checkpoint: Path) -> Any:
        plan = spec.plan
        mode = output_mode(plan)
        if mode == "append" and plan.emit_final and DELETED in rows.columns:
            # A window is written once: there is nothing to delete.
            rows = rows.where(f"not {DELETED}")
        records = written_rows(rows, plan, spec.target)
        if mode == "update" or EPOCHS in spec.properties:
            write = EpochWriter(spec.target, self._settings, checkpoint)
            return records.writeStream.outputMode(mode).foreachBatch(write)
        options = append_options(spec.target, self._settings, checkpoint)
        return records.writeStream.outputMode("append").format("headrace").options(**options)

    # ------------------------------------------------------------------------------------ truth

    def _take(self, hosted: HostedStatement, last: Mapping[str, Any]) -> None:
        found = progress.advanced(_QUERY, last)
        hosted.rows += found.rows
        hosted.rate = found.processed_rows_per_s or 0.0
        hosted.lag = found.lag_records
        hosted.late_rows += found.late_rows
        hosted.state_rows, hosted.state_bytes = found.state_rows, found.state_bytes
        hosted.watermark = None if found.watermark is None else progress.time_ms(found.watermark)
        hosted.ended_at = found.time_ms + (found.batch_ms or 0)
        if found.rows:
            hosted.last_row_at = hosted.ended_at
        count, examples = bad_records(last)
        hosted.bad_records += count
        if count:
            self._processing_log.add(hosted.name, count, examples)


def _failure(error: BaseException) -> QueryFailure:
    if isinstance(error, QueryRefused):
        return QueryFailure(str(error), str(error), FailureKind.PERMANENT)
    return failure_of(error)


_QUERY = progress.Query("", "", None, "", "", 0, 0)
