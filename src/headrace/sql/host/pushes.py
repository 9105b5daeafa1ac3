"""Push queries: their rows are sent to the service until it has enough.

The service takes a chunk of rows before the next ones are sent, so that a slow client makes its own
query wait, and nothing else.
"""

import logging
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.connect.host.failures import failure_of
from headrace.pipelines.host.driver_loop import Send
from headrace.sql.host.analysis import described, output_mode
from headrace.sql.host.functions import check_functions
from headrace.sql.host.json_values import json_rows
from headrace.sql.host.plan_frames import plan_rows, result_rows
from headrace.sql.host.refusals import refusals
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.views import streaming_views
from headrace.sql.hosting import FunctionSpec
from headrace.sql.plans import DELETED, QueryPlan
from headrace.sql.sources import SqlSource

ROWS_A_CHUNK = 500
CHUNKS_AHEAD = 4
"""Chunks that are sent before the service has taken the first of them."""
INTERVAL_MS = 100
FOLDER = ".pushes"

log = logging.getLogger(__name__)


class Pushes:
    """All push queries of this driver."""

    def __init__(
        self, session: Callable[[], SparkSession], settings: SqlDriverSettings, send: Send
    ) -> None:
        self._session = session
        self._settings = settings
        self._send = send
        self._folder = Path(settings.folder).absolute() / FOLDER
        # Those of a driver that was killed.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._running: dict[str, _Push] = {}
        self._lock = threading.Lock()

    def start(
        self,
        push: str,
        plan: QueryPlan,
        sources: Sequence[SqlSource],
        functions: Sequence[FunctionSpec],
        properties: Mapping[str, str],
    ) -> dict[str, object]:
        """Start a query, and return its columns; QueryRefused."""
        check_functions(functions, self._settings)
        spark = self._session()
        with refusals():
            views = streaming_views(spark, self._settings, properties)
            rows = plan_rows(spark, plan, sources, functions, views)
            if DELETED in rows.columns:
                rows = rows.where(f"not {DELETED}")
            result = result_rows(rows, plan)
        running = _Push(push, plan.limit, self._send, self._folder / uuid.uuid4().hex)
        with self._lock:
            self._running[push] = running
        try:
            with refusals():
                running.run(result, output_mode(plan), lambda: self._forget(push))
        except BaseException:
            self._forget(push)
            raise
        return {"columns": described(result)}

    def taken(self, push: str) -> None:
        """The service has taken a chunk."""
        running = self._running.get(push)
        if running is not None:
            running.credit.release()

    def end(self, push: str) -> None:
        """End a query; nothing is sent of it afterwards."""
        running = self._running.get(push)
        if running is not None:
            running.stop()

    def end_all(self) -> None:
        for each in list(self._running):
            self.end(each)

    def _forget(self, push: str) -> None:
        with self._lock:
            self._running.pop(push, None)


class _Push:
    """One push query."""

    def __init__(self, name: str, limit: int | None, send: Send, folder: Path) -> None:
        self._name = name
        self._left = limit
        self._send = send
        self._folder = folder
        self.credit = threading.Semaphore(CHUNKS_AHEAD)
        self._ended = threading.Event()
        """The client has all rows, or has gone."""
        self._query: Any = None
        self._started = threading.Event()

    def run(self, rows: DataFrame, mode: str, ended: Callable[[], None]) -> None:
        """Start the query; `ended` is called at its end."""
        writer = rows.writeStream.outputMode(mode).foreachBatch(self._write)
        writer = writer.option("checkpointLocation", str(self._folder))
        writer = writer.queryName(f"push-{self._name}")
        self._query = writer.trigger(processingTime=f"{INTERVAL_MS} milliseconds").start()
        self._started.set()
        threading.Thread(target=self._watch, args=(ended,), daemon=True).start()

    def stop(self) -> None:
        self._ended.set()
        self.credit.release()
        if self._query is not None:
            self._query.stop()

    def _write(self, rows: DataFrame, epoch: int) -> None:
        if self._ended.is_set():
            return
        found = rows if self._left is None else rows.limit(self._left)
        sent = list(json_rows(found.toArrow(), rows.schema))
        for start in range(0, len(sent), ROWS_A_CHUNK):
            self.credit.acquire()
            if self._ended.is_set():
                return
            self._send({"push": self._name, "rows": sent[start : start + ROWS_A_CHUNK]})
        if self._left is not None:
            self._left -= len(sent)
            if self._left <= 0:
                self._ended.set()
                # A query cannot stop itself within an epoch.
                threading.Thread(target=self._query_stopped, daemon=True).start()

    def _query_stopped(self) -> None:
        self._started.wait()
        self._query.stop()

    def _watch(self, ended: Callable[[], None]) -> None:
        error: str | None = None
        try:
            self._query.awaitTermination()
        except Exception as found:
            if not self._ended.is_set():
                error = failure_of(found).sentence
        ended()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._send({"push": self._name, "end": True, "error": error})
