"""The queries of one driver: start, stop, and what is true of each."""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headrace.connect.host.failures import failure_of
from headrace.connect.host.finished_epochs import commit_finished
from headrace.connect.host.letter_topics import create_letter_topic
from headrace.connect.host.letters.queue import LetterQueue
from headrace.connect.host.letters.runs import LetterRuns
from headrace.connect.host.outcomes import EpochOutcome
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.sink_query import epoch_writer, topic_options, topic_rows
from headrace.connect.host.source_letters import refused_rows
from headrace.connect.host.source_query import source_rows
from headrace.connect.host.table_query import table_writer
from headrace.connect.host.work import ConnectorWork
from headrace.connect.hosting import ConnectorPlan
from headrace.connect.plugin import Connector, Source, TableSink
from headrace.connect.plugins import Plugins
from headrace.connect.secrets import SecretSources
from headrace.pipelines.host.driver_session import make_active
from headrace.pipelines.host.retries import FailureKind
from headrace.pipelines.running import progress
from headrace.pipelines.sink.takeover import take_over_writes

STARTS_AT_ONCE = 2
"""Spark waits only ten seconds for a Python process, so that many starts at once would fail."""
LOOK_S = 0.25

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HostedQuery:
    """A connector in this driver."""

    plan: ConnectorPlan
    state: str = "starting"
    """starting, running or ended."""
    query: Any = None
    start_ended: threading.Event = field(default_factory=threading.Event)
    """The query runs, or could not be started."""
    sentence: str | None = None
    trace: str | None = None
    kind: FailureKind = FailureKind.UNKNOWN
    records: int = 0
    failed_records: int = 0
    lag: int | None = None
    last_record_at: int | None = None
    epoch_at: float = field(default_factory=time.monotonic)
    """When an epoch ended, or nothing was waiting."""
    batch: int = -1
    topics: list[str] = field(default_factory=list)
    is_source: bool = False
    when_stopped: Callable[[], None] | None = None
    interval_ms: int = Connector.interval_ms

    def report(self) -> dict[str, object]:
        return {
            "state": self.state,
            "sentence": self.sentence,
            "trace": self.trace,
            "kind": self.kind,
            "records": self.records,
            "failed_records": self.failed_records,
            "lag": self.lag,
            "last_record_at": self.last_record_at,
            "quiet_s": round(time.monotonic() - self.epoch_at, 3),
            "interval_ms": self.interval_ms,
            "topics": self.topics,
        }

    def epoch_ended(self, outcome: EpochOutcome) -> None:
        """Called in the thread of the query."""
        self.failed_records += outcome.failed
        outcome.log(self.plan.name)


class Queries:
    """All queries of a Spark session."""

    def __init__(self, spark: Any, settings: DriverSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._queries: dict[str, HostedQuery] = {}
        self._plugins = Plugins()
        self._lock = threading.Lock()
        self._starters = ThreadPoolExecutor(STARTS_AT_ONCE, "start")
        self.letter_runs = LetterRuns(settings.letter_run, self.make_active)
        self.looked_at = time.monotonic()
        threading.Thread(target=self._look_for_ever, daemon=True, name="look").start()

    # ------------------------------------------------------------------------------- dead letters

    def letter_queue(self, plan: ConnectorPlan) -> LetterQueue:
        """The dead letters of a connector, for the present thread."""
        self.make_active()
        return LetterQueue(self._spark, self._settings, self.work_of(plan))

    # ----------------------------------------------------------------------------------- queries

    def start(self, plan: ConnectorPlan) -> None:
        """Begin to start a connector; it must not run yet."""
        hosted = HostedQuery(plan)
        with self._lock:
            self._queries[plan.name] = hosted
        self._starters.submit(self._start, hosted)

    def stop(self, name: str) -> None:
        """End a connector; returns when it writes nothing more."""
        with self._lock:
            hosted = self._queries.pop(name, None)
        if hosted is None:
            return
        # A query that is being started writes as soon as it runs.
        hosted.start_ended.wait()
        if hosted.query is not None:
            hosted.query.stop()
            if hosted.when_stopped is not None:
                hosted.when_stopped()

    def stop_all(self) -> None:
        """End all connectors at the same time."""
        with self._lock:
            names = list(self._queries)
        with ThreadPoolExecutor(max(1, len(names)), "stop") as pool:
            list(pool.map(self.stop, names))

    def report(self) -> dict[str, object]:
        with self._lock:
            return {name: hosted.report() for name, hosted in self._queries.items()}

    # ----------------------------------------------------------------------------------- starts

    def _start(self, hosted: HostedQuery) -> None:
        try:
            if self._is_wanted(hosted):
                self._run(hosted)
        finally:
            hosted.start_ended.set()

    def _run(self, hosted: HostedQuery) -> None:
        try:
            query = self._started(hosted)
        except BaseException as error:
            log.warning("connector %s did not start", hosted.plan.name, exc_info=True)
            self._end(hosted, error)
            return
        with self._lock:
            hosted.query = query
            hosted.state = "running"
            hosted.epoch_at = time.monotonic()
            wanted = self._queries.get(hosted.plan.name) is hosted
        if not wanted:
            query.stop()

    def _is_wanted(self, hosted: HostedQuery) -> bool:
        with self._lock:
            return self._queries.get(hosted.plan.name) is hosted

    def _started(self, hosted: HostedQuery) -> Any:
        plan = hosted.plan
        work = self.work_of(plan)
        found = work.plugin_class()
        checkpoint = self._checkpoint(plan)
        create_letter_topic(work.config, self._settings.client)
        self.make_active()
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", plan.name)
        hosted.interval_ms = int(plan.config.get("poll.interval.ms") or found.interval_ms)
        if issubclass(found, Source):
            source = work.connector()
            assert isinstance(source, Source)
            hosted.is_source = True
            hosted.topics = sorted({stream.topic for stream in source.streams()})
            writer = self._source_writer(work)
        else:
            writer = self._sink_writer(work, hosted, checkpoint)
            options = topic_options(work, self._settings)
            hosted.when_stopped = partial(commit_finished, options, checkpoint)
        return (
            writer.queryName(plan.name)
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime=f"{hosted.interval_ms} milliseconds")
            .start()
        )

    def work_of(self, plan: ConnectorPlan) -> ConnectorWork:
        """The connector of a plan, for tasks."""
        found = self._plugins.find(plan.config["connector.class"]).kind
        return ConnectorWork(
            plan.name,
            f"{found.__module__}:{found.__qualname__}",
            plan.config,
            SecretSources(**self._settings.secrets),
            f"{self._checkpoint(plan).absolute()}-files",
        )

    def _checkpoint(self, plan: ConnectorPlan) -> Path:
        return self._settings.connector_folder(plan.name) / str(plan.generation)

    def make_active(self) -> None:
        """Called by each thread that uses Spark."""
        make_active(self._spark)

    def _source_writer(self, work: ConnectorWork) -> Any:
        options = {
            **self._settings.kafka_options(),
            "delivery": "exactly-once",
            "ledgerTopic": self._settings.offsets_topic,
            "ledgerOwner": uuid.uuid4().hex,
            "transactionalIdPrefix": f"connect-{work.name}",
        }
        # Another worker may have run the connector, and may not know yet that it no longer does.
        take_over_writes(options)
        rows = source_rows(self._spark, work, self._settings)
        return rows.writeStream.format("headrace").options(**options)

    def _sink_writer(self, work: ConnectorWork, hosted: HostedQuery, checkpoint: Path) -> Any:
        is_new = not (checkpoint / "offsets").exists()
        rows = topic_rows(self._spark, work, self._settings, from_group=is_new)
        settings, ended = self._settings, hosted.epoch_ended
        if issubclass(work.plugin_class(), TableSink):
            records, write = table_writer(rows, work, settings, ended)
        else:
            generation = hosted.plan.generation
            records, write = epoch_writer(rows, work, settings, generation, ended)
        return records.writeStream.foreachBatch(write)

    # ------------------------------------------------------------------------------------ truth

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                running = [each for each in self._queries.values() if each.state == "running"]
            for hosted in running:
                try:
                    self._look(hosted)
                except Exception:
                    log.warning("cannot look at query %s", hosted.plan.name, exc_info=True)
            self.looked_at = time.monotonic()

    def _look(self, hosted: HostedQuery) -> None:
        query = hosted.query
        if not query.isActive:
            self._end(hosted, query.exception())
            return
        last = query.lastProgress
        status = query.status
        if last is not None and last["batchId"] != hosted.batch:
            hosted.batch = last["batchId"]
            found = progress.advanced(_QUERY, last)
            hosted.epoch_at = time.monotonic()
            rows = found.rows - (_offset_rows(last) if hosted.is_source else 0)
            if hosted.is_source:
                hosted.epoch_ended(refused_rows(last))
            hosted.records += rows
            hosted.lag = found.lag_records
            hosted.topics = hosted.topics or sorted({t for s in found.sources for t in s.topics})
            if rows > 0:
                hosted.last_record_at = found.time_ms
        elif not status["isTriggerActive"] and not status["isDataAvailable"]:
            hosted.epoch_at = time.monotonic()

    def _end(self, hosted: HostedQuery, error: BaseException | None) -> None:
        with self._lock:
            hosted.state = "ended"
            if error is not None:
                failure = failure_of(error)
                hosted.sentence, hosted.trace = failure.sentence, failure.trace
                hosted.kind = failure.kind


def _offset_rows(last: Mapping[str, Any]) -> int:
    """How many of an epoch's rows are offsets of a source: one for each partition that was read."""
    rows = 0
    for each in last["sources"]:
        before = _position(each["startOffset"])
        rows += sum(at != before.get(key) for key, at in _position(each["endOffset"]).items())
    return rows


def _position(stored: Any) -> Mapping[str, Any]:
    """An offset as Spark reports it: JSON text, or a value."""
    found = json.loads(stored) if isinstance(stored, str) and stored else stored
    return found if isinstance(found, Mapping) else {}


_QUERY = progress.Query("", "", None, "", "", 0, 0)
