"""Spark in the driver process, and everything that it does for the service."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from headrace.client.config import client_config
from headrace.pipelines.host.driver_loop import Send
from headrace.pipelines.host.driver_session import make_active, start_session
from headrace.pipelines.host.fork_server import ForkServer
from headrace.sql.host.analysis import analysed
from headrace.sql.host.batch import batch_result
from headrace.sql.host.comparing import comparison
from headrace.sql.host.copying import copy_rows
from headrace.sql.host.functions import check_functions
from headrace.sql.host.processing_log import ProcessingLog
from headrace.sql.host.progress_listener import StatementListener
from headrace.sql.host.pushes import Pushes
from headrace.sql.host.queries import SqlQueries
from headrace.sql.host.replacing import check_replacement
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.hosting import ComparedTopic, FunctionSpec, QuerySpec, RowCopy
from headrace.sql.plans import QueryPlan
from headrace.sql.sources import SqlSource

SPARK_SETTINGS = {
    # Offsets in checkpoints are by the names of sources: a query can get another source.
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    # Expressions that fail are null, as in ksqlDB.
    "spark.sql.ansi.enabled": "false",
    "spark.sql.timeType.enabled": "true",
}


class SqlSession:
    """The session of a driver."""

    def __init__(self, settings: SqlDriverSettings, workers: ForkServer, send: Send) -> None:
        self._settings = settings
        self._spark: SparkSession = start_session(
            "sql",
            settings.bootstrap,
            settings.master,
            settings.folder,
            {**SPARK_SETTINGS, **settings.spark},
            workers,
        )
        self._listener = StatementListener(self._spark, settings)
        processing_log = ProcessingLog(client_config(settings.client), settings.processing_log)
        self.queries = SqlQueries(self.own_session, settings, self._listener, processing_log)
        self.pushes = Pushes(self.own_session, settings, send)

    def own_session(self) -> Any:
        """A session with views and functions of its own, for the present thread."""
        own = self._spark.newSession()
        make_active(own)
        return own

    def stop_all(self) -> None:
        self.pushes.end_all()
        self.queries.stop_all()

    def analyse(
        self, plan: QueryPlan, sources: Sequence[SqlSource], functions: Sequence[FunctionSpec]
    ) -> dict[str, object]:
        """The types of the columns, and Spark's plan."""
        check_functions(functions, self._settings)
        return analysed(self.own_session(), plan, sources, functions)

    def batch(
        self,
        plan: QueryPlan,
        sources: Sequence[SqlSource],
        functions: Sequence[FunctionSpec],
        limit: int | None,
    ) -> dict[str, object]:
        """The rows of a query over what is in the topics now."""
        check_functions(functions, self._settings)
        return batch_result(self.own_session(), self._settings, plan, sources, functions, limit)

    def compare(
        self,
        left: ComparedTopic,
        right: ComparedTopic,
        ignore: Sequence[str],
        tolerance: Mapping[str, float],
    ) -> dict[str, object]:
        """The differences between two topics."""
        return comparison(self.own_session(), self._settings, left, right, ignore, tolerance)

    def copy(self, copy: RowCopy) -> None:
        """Make one topic equal to another."""
        copy_rows(self.own_session(), self._settings, copy)

    def check_replace(self, spec: QuerySpec) -> None:
        """QueryRefused if the query cannot continue with its checkpoint."""
        check_functions(spec.functions, self._settings)
        check_replacement(self.own_session(), self._settings, spec)
