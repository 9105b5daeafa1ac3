"""Starts the streaming queries of a program one after the other.

Spark gives each Python process of a data source ten seconds to start. Queries that are planned at
the same time start their processes at the same time, and on a busy machine some are too late. So a
query is started only when the first planning of the previous one has ended.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

PLANNED_WITHIN_S = 60.0
LOOK_S = 0.05
# The status of a query that has planned and is idle.
WAITING = ("Waiting for data to arrive", "Waiting for next trigger")

_log = logging.getLogger(__name__)


class Starts:
    """Changes PySpark's stream readers and writers so that they wait, and records queries."""

    def __init__(self) -> None:
        # Whether the program has used a stream.
        self.streaming = False
        # Queries that would not find their checkpoint after a restart.
        self.without_checkpoint: list[str] = []
        self._last: Any = None
        self._turn = threading.RLock()

    def watch(self) -> None:
        """Change PySpark's classes in this process."""
        from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

        for name in ("load", "table"):
            setattr(DataStreamReader, name, self._planned(getattr(DataStreamReader, name)))
        for name in ("start", "toTable"):
            setattr(DataStreamWriter, name, self._started(getattr(DataStreamWriter, name)))

    def _planned(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def plan(reader: Any, *words: Any, **named: Any) -> Any:
            with self._turn:
                self.streaming = True
                wait_until_planned(self._last)
                return original(reader, *words, **named)

        return plan

    def _started(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(writer: Any, *words: Any, **named: Any) -> Any:
            with self._turn:
                self.streaming = True
                wait_until_planned(self._last)
                self._last = query = original(writer, *words, **named)
                if not has_checkpoint(query):
                    self.without_checkpoint.append(query.name or str(query.id))
                return query

        return start


def wait_until_planned(query: Any) -> None:
    """Wait until the query's first planning has ended, with a time-out."""
    deadline = time.monotonic() + PLANNED_WITHIN_S
    while query is not None and not _planned(query):
        if time.monotonic() > deadline:
            _log.warning(
                "the query %s has not planned its first batch within %d s; starting the next query",
                query.name or query.id,
                PLANNED_WITHIN_S,
            )
            return
        time.sleep(LOOK_S)


def _planned(query: Any) -> bool:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    try:
        if context is None or context._jsc is None or not query.isActive:
            return True
        if query.lastProgress is not None or query.status["message"] in WAITING:
            return True
        # The job group of a query is its run id.
        return bool(context.statusTracker().getJobIdsForGroup(str(query.runId)))
    except Exception:
        # The session is ending; the program must not fail because of this check.
        return True


def has_checkpoint(query: Any) -> bool:
    """Whether a restarted program would find the checkpoint of this query."""
    try:
        path = str(query._jsq.streamingQuery().resolvedCheckpointRoot())
    except Exception:
        # A program must not fail because the checkpoint's location is unknown.
        _log.warning("cannot find the checkpoint of the query %s", query.id, exc_info=True)
        return False
    return lasting(path, query.name)


def lasting(checkpoint: str, name: str | None) -> bool:
    """Whether a checkpoint's path is the same in every run.

    Without a location and a name Spark generates one: `<root>/<uuid>`, or a temporary folder.
    """
    last = PurePosixPath(checkpoint).name
    if last.startswith("temporary-"):
        return False
    if name is not None:
        return True
    try:
        return str(uuid.UUID(last)) != last
    except ValueError:
        return True
