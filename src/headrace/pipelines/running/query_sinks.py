"""Where a streaming query writes: kind of sink, topic, table or path, and output mode.

Spark's progress has only a text for the sink, which for most sinks names a Java class. The running
query knows more: its plan has the sink's options. Only the options that name the target are read;
all others, which may hold passwords, stay where they are. The plan is Spark's own class, so that
everything here is tried and never required: without it, the text is interpreted.
"""

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from headrace.pipelines.running.progress import SinkTarget, without_secrets

log = logging.getLogger(__name__)

FindExecution = Callable[[str], Any]
"""Finds the running query, Spark's StreamExecution, by its id; None if there is none."""

_KINDS = {
    "headrace": "headrace",
    "headrace-delta": "delta",
    "headrace-iceberg": "iceberg",
    "headrace-parquet": "parquet",
    "console": "console",
    "noop-table": "noop",
    "MemorySink": "memory",
    "ForeachSink": "foreach",
    "KafkaTable": "kafka",
}
"""Kinds by the names of sinks."""
_TEXTS = (
    (re.compile(r"FileSink\[(?P<path>.*)\]"), "file"),
    (re.compile(r"DeltaSink\[(?P<path>.*)\]"), "delta"),
    (re.compile(r"ForeachBatchSink"), "foreachBatch"),
    (re.compile(r"MemorySink"), "memory"),
    (re.compile(r"NoopTable"), "noop"),
    (re.compile(r".*\.ConsoleTable\$.*"), "console"),
    (re.compile(r".*\.ForeachWriterTable.*"), "foreach"),
    (re.compile(r".*\$KafkaTable@.*"), "kafka"),
    (re.compile(r"org\.apache\.iceberg\..*"), "iceberg"),
)
"""Kinds by the texts of sinks in Spark's progress."""
OTHER = "other"
LOOK_S = 0.1
"""How often new queries of a Connect server are looked for."""


def executions(spark: Any) -> FindExecution:
    """Finds the queries that run in the Java of this process, in whatever session."""
    if not hasattr(spark, "_jsparkSession"):
        return HeldExecutions(lambda: _active(spark))

    def find(id_: str) -> Any:
        from pyspark import SparkContext

        active = _active(spark)
        jvm = SparkContext._jvm
        return None if active is None else active.get(jvm.java.util.UUID.fromString(id_))

    return find


def _active(spark: Any) -> Any:
    """Spark's map of the queries that run; None if its Java is elsewhere."""
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    if jvm is None:
        return None  # a Connect client whose server is elsewhere
    if hasattr(spark, "_jsparkSession"):
        session = spark._jsparkSession
    else:
        session = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    return session.sharedState().activeStreamingQueries()


class HeldExecutions:
    """The queries that a Spark Connect server in this process runs.

    Connect does not tell of the start of a query that its server has started, as declarative
    pipelines do, and a query that ends soon is gone when its progress arrives. So a thread looks
    for new queries, and holds them until they are asked for.
    """

    def __init__(self, active: Callable[[], Any]) -> None:
        self._active = active
        self._held: dict[str, Any] = {}
        self._seen: set[str] = set()
        threading.Thread(target=self._watch, name="query-sinks", daemon=True).start()

    def __call__(self, id_: str) -> Any:
        return self._held.pop(id_, None)

    def _watch(self) -> None:
        while True:
            try:
                active = self._active()
                for execution in [] if active is None else list(active.values()):
                    id_ = str(execution.id().toString())
                    if id_ not in self._seen:
                        self._seen.add(id_)
                        self._held[id_] = execution
            except Exception:
                # The session is not there yet, or Java has ended.
                log.debug("the running queries could not be listed", exc_info=True)
            time.sleep(LOOK_S)


def from_text(description: str | None) -> SinkTarget | None:
    """What the text of a sink tells."""
    if not description:
        return None
    for pattern, kind in _TEXTS:
        if found := pattern.fullmatch(description):
            path = found.groupdict().get("path")
            return SinkTarget(kind, path=path and without_secrets(path))
    return SinkTarget(OTHER)


def from_execution(execution: Any, description: str | None) -> SinkTarget | None:
    """What a running query knows of its sink, which has to have planned its first batch."""
    known = from_text(description)
    try:
        mode = str(execution.outputMode().toString()).lower()
        plan = execution.logicalPlan()
        if plan.getClass().getSimpleName() == "WriteToMicroBatchDataSourceV1":
            table = plan.catalogTable()
            name = table.get().identifier().unquotedString() if table.isDefined() else None
            kind = known.kind if known else OTHER
            return SinkTarget(kind, None, name, known.path if known else None, mode)
        name = str(execution.sink().name())
        options = {
            option: str(found.get())
            for option in ("topic", "table", "path")
            if (found := plan.writeOptions().get(option)).isDefined()
        }
    except Exception:
        # Another version of Spark may have other classes.
        log.debug("the sink of a query could not be looked at", exc_info=True)
        return known
    return _of_table(name, options, mode, known)


def _of_table(
    name: str, options: Mapping[str, str], mode: str, known: SinkTarget | None
) -> SinkTarget:
    """The target of a sink that Spark calls a table."""
    kind = _KINDS.get(name) or (known.kind if known else OTHER)
    topic = table = path = None
    if name in ("headrace", "KafkaTable"):
        topic = options.get("topic")
    elif name in ("headrace-delta", "headrace-parquet"):
        path = options.get("path") or options.get("table")
    elif name == "headrace-iceberg":
        table = options.get("table") or options.get("path")
    elif name not in _KINDS:
        # A table of a catalog has its identifier as its name.
        table, path = name, options.get("path")
    return SinkTarget(kind, topic, table, path and without_secrets(path), mode)
