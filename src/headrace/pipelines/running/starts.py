"""The streaming queries of a program, started one after the other.

Spark gives each Python process of a data source ten seconds to start. Queries that are planned at
the same time start theirs at the same time, and on a busy machine some are too late. So a query is
started only when the first planning of the one before it has ended.
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
# What a query's status says when it has planned and has nothing to do.
WAITING = ("Waiting for data to arrive", "Waiting for next trigger")

_log = logging.getLogger(__name__)


class Starts:
    """Changes PySpark's readers and writers of streams so that they wait, and notes the queries."""

    def __init__(self) -> None:
        # Whether the program has got so far as to use a stream.
        self.streaming = False
        # Queries whose next start would not find the checkpoint of this one.
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
    """Wait until the query's first planning is over, in whatever way, but not for ever."""
    deadline = time.monotonic() + PLANNED_WITHIN_S
    while query is not None and not _planned(query):
        if time.monotonic() > deadline:
            _log.warning(
                "the query %s has not planned its first batch within %d s; the next one starts "
                "beside it",
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
        # Spark names the group of a query's jobs after its run.
        return bool(context.statusTracker().getJobIdsForGroup(str(query.runId)))
    except Exception:
        # The session ends; what the program does next is not to fail because of this look.
        return True


def has_checkpoint(query: Any) -> bool:
    """Whether the same program, started again, would find the checkpoint of this query."""
    try:
        path = str(query._jsq.streamingQuery().resolvedCheckpointRoot())
    except Exception:
        # A program must not fail because Spark does not say where the checkpoint is.
        _log.warning("cannot find the checkpoint of the query %s", query.id, exc_info=True)
        return False
    return lasting(path, query.name)


def lasting(checkpoint: str, name: str | None) -> bool:
    """Whether a checkpoint's path is the same in every run.

    Without a location and a name Spark makes one up: `<root>/<uuid>`, or a temporary folder.
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
