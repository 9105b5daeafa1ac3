"""Spark's listener for streaming queries: publishes events to the progress topic and the gauges.

It runs in the driver, called by Spark after each batch. Errors here are logged and never reach the
query.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from headrace.client.errors import ClientError
from headrace.errors import KafkaError
from headrace.pipelines.cluster_client import BOOTSTRAP_VARIABLE
from headrace.pipelines.delegation_tokens import use_kafka_clusters
from headrace.pipelines.running import progress, session
from headrace.pipelines.running.gauges import Gauges
from headrace.pipelines.running.progress import Query, SinkTarget
from headrace.pipelines.running.progress_topic import Publisher
from headrace.pipelines.running.query_sinks import (
    FindExecution,
    executions,
    from_execution,
    from_text,
)
from headrace.pipelines.running.restarts import Restarts
from headrace.pipelines.sink.output_modes import explained

log = logging.getLogger(__name__)


class ProgressListener(StreamingQueryListener):  # type: ignore[misc]  # PySpark's types are not followed
    """Tracks the state of the session's queries and publishes it."""

    def __init__(
        self,
        publisher: Publisher,
        gauges: Gauges | None,
        name: str,
        id_: str,
        find_execution: FindExecution = lambda _: None,
    ) -> None:
        self._restarts = Restarts.from_environment(os.environ)
        self._publisher = publisher
        self._gauges = gauges
        self._application = name
        self._application_id = id_
        self._queries: dict[str, Query] = {}
        self._find_execution = find_execution
        self._executions: dict[str, Any] = {}
        """Running queries whose sink is not known yet, by the id of the query."""
        self._changed = threading.Condition()

    def onQueryStarted(self, event: Any) -> None:
        at = progress.time_ms(event.timestamp)
        id_ = str(event.id)
        # A query that ends soon is not found later.
        self._executions[id_] = self._found_execution(id_)
        self._tell(self._new(id_, str(event.runId), event.name, at))

    def onQueryProgress(self, event: Any) -> None:
        found = json.loads(event.progress.json)
        known = self._known(found["id"], found["runId"], progress.time_ms(found["timestamp"]))
        advanced = progress.advanced(known, found)
        self._tell(replace(advanced, sink_target=self._sink_target(advanced)))

    def _sink_target(self, query: Query) -> SinkTarget | None:
        """Where the query writes: its plan is looked at once, after its first batch."""
        execution = self._executions.pop(query.id, None)
        if execution is None and query.sink_target is None:
            # Spark Connect does not tell of the start of queries that its server has started.
            execution = self._found_execution(query.id)
        if execution is not None:
            return from_execution(execution, query.sink)
        return query.sink_target or from_text(query.sink)

    def _found_execution(self, id_: str) -> Any:
        try:
            return self._find_execution(id_)
        except Exception:
            log.debug("query %s cannot be looked at", id_, exc_info=True)
            return None

    def onQueryIdle(self, event: Any) -> None:
        at = progress.time_ms(event.timestamp)
        self._tell(progress.idle(self._known(str(event.id), str(event.runId), at), at))

    def onQueryTerminated(self, event: Any) -> None:
        at = time.time_ns() // 1_000_000
        known = self._known(str(event.id), str(event.runId), at)
        self._executions.pop(known.id, None)
        error = event.exception and explained(event.exception)
        ended = progress.ended(known, at, error)
        if error != event.exception:
            # The program's traceback has only Spark's message.
            log.error("query %s failed: %s", ended.title, ended.error)
        self._tell(ended)

    def wait_for_ends(self, timeout_s: float) -> None:
        """Wait until the end of every query is known and all records are sent."""
        with self._changed:
            self._changed.wait_for(
                lambda: not any(each.state.alive for each in self._queries.values()), timeout_s
            )
        self._publisher.flush(timeout_s)

    def _known(self, id_: str, run: str, at_ms: int) -> Query:
        return self._queries.get(id_) or self._new(id_, run, None, at_ms)

    def _new(self, id_: str, run: str, name: str | None, at_ms: int) -> Query:
        return Query(
            id_,
            run,
            name,
            self._application,
            self._application_id,
            at_ms,
            at_ms,
            restarts=self._restarts.count,
            restart_reason=self._restarts.reason,
        )

    def _tell(self, query: Query) -> None:
        with self._changed:
            self._queries[query.id] = query
            self._changed.notify_all()
        self._publisher.publish(query)
        if self._gauges is not None:
            self._gauges.show(query)


def publish_progress(
    spark: Any, bootstrap: str, properties: Mapping[str, str] | None = None
) -> ProgressListener:
    """Publish the progress of all streaming queries of a SparkSession from now on.

    `headrace spark run` calls it automatically; other programs may call it themselves.
    """
    publisher = Publisher(bootstrap, properties or {})
    if "connect" in type(spark).__module__:
        name = spark.conf.get("spark.app.name", "")
        listener = ProgressListener(publisher, None, name, "", executions(spark))
    else:
        context = spark.sparkContext
        listener = ProgressListener(
            publisher, Gauges(spark), context.appName, context.applicationId, executions(spark)
        )
    spark.streams.addListener(listener)
    return listener


def watch_sessions(environment: Mapping[str, str] = os.environ) -> list[ProgressListener]:
    """Attach a listener to every session of the program.

    The returned list grows with the sessions. The program does not change: it calls
    `SparkSession.builder.getOrCreate()` as usual.
    """
    from pyspark.sql import SparkSession

    listeners: list[ProgressListener] = []
    seen: list[Any] = []
    original = SparkSession.Builder.getOrCreate

    def get_or_create(builder: Any) -> Any:
        spark = original(builder)
        if not any(spark is each for each in seen):
            seen.append(spark)
            try:
                listeners.append(_attach(spark, environment))
            except Exception:
                # A program must not fail because its progress cannot be published.
                log.warning("progress of queries will not be published", exc_info=True)
            _use_kafka_clusters(spark)
        return spark

    SparkSession.Builder.getOrCreate = get_or_create
    return listeners


def _use_kafka_clusters(spark: Any) -> None:
    """Log in to the clusters of spark.kafka.clusters.*, which not all queries may need."""
    if "connect" in type(spark).__module__:
        return
    try:
        use_kafka_clusters(spark)
    except (KafkaError, ClientError) as error:
        log.warning("spark.kafka.clusters.* are not used: %s", error)


def _attach(spark: Any, environment: Mapping[str, str]) -> ProgressListener:
    from headrace.settings.files import read_properties

    properties = {}
    if path := environment.get(session.CLIENT_CONFIG_VARIABLE):
        text = Path(path).read_text("utf-8")
        properties = {name: value for _, name, value in read_properties(text)}
    return publish_progress(spark, environment[BOOTSTRAP_VARIABLE], properties)
