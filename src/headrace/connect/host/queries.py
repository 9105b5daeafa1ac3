"""The queries of one driver: start, stop, and what is true of each."""

import json
import uuid
from collections.abc import Mapping
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
from headrace.connect.host.packs import (
    PACKS_FORMAT,
    PackedTopics,
    packed_records,
    packings,
)
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.sink_query import epoch_writer, topic_options, topic_rows
from headrace.connect.host.source_letters import refused_rows
from headrace.connect.host.source_query import source_rows, source_streams
from headrace.connect.host.table_query import table_writer
from headrace.connect.host.work import ConnectorWork
from headrace.connect.hosting import ConnectorPlan
from headrace.connect.plugin import Connector, Source, TableSink
from headrace.connect.plugins import Plugins
from headrace.connect.secrets import SecretSources
from headrace.pipelines.host.driver_session import make_active
from headrace.pipelines.host.hosted_queries import HostedQueries, HostedQuery
from headrace.pipelines.host.obstacles import Obstacles
from headrace.pipelines.running import progress
from headrace.pipelines.sink.takeover import take_over_writes


@dataclass(slots=True, kw_only=True)
class HostedConnector(HostedQuery):
    """A connector in this driver."""

    plan: ConnectorPlan
    records: int = 0
    failed_records: int = 0
    lag: int | None = None
    last_record_at: int | None = None
    topics: list[str] = field(default_factory=list)
    is_source: bool = False
    interval_ms: int = Connector.interval_ms

    def report(self) -> dict[str, object]:
        return {
            **HostedQuery.report(self),
            "records": self.records,
            "failed_records": self.failed_records,
            "lag": self.lag,
            "last_record_at": self.last_record_at,
            "interval_ms": self.interval_ms,
            "topics": self.topics,
        }

    def epoch_ended(self, outcome: EpochOutcome) -> None:
        """Called in the thread of the query."""
        self.failed_records += outcome.failed
        outcome.log(self.plan.name)

    def take(self, last: Mapping[str, Any]) -> None:
        """Add the progress of an epoch."""
        found = progress.advanced(_QUERY, last)
        rows = found.rows
        if self.is_source:
            packed = packed_records(last)
            rows = rows - _offset_rows(last) if packed is None else packed
        if self.is_source:
            self.epoch_ended(refused_rows(last))
        self.records += rows
        self.lag = found.lag_records
        self.topics = self.topics or sorted({t for s in found.sources for t in s.topics})
        if rows > 0:
            self.last_record_at = found.time_ms


class Queries:
    """All queries of a Spark session."""

    def __init__(self, spark: Any, settings: DriverSettings, obstacles: Obstacles) -> None:
        self._spark = spark
        self._settings = settings
        self._plugins = Plugins()
        spark.dataSource.register(PackedTopics)
        self._hosted = HostedQueries(self._started, HostedConnector.take, failure_of, obstacles)
        self.letter_runs = LetterRuns(settings.letter_run, self.make_active)

    @property
    def looked_at(self) -> float:
        return self._hosted.looked_at

    # ------------------------------------------------------------------------------- dead letters

    def letter_queue(self, plan: ConnectorPlan) -> LetterQueue:
        """The dead letters of a connector, for the present thread."""
        self.make_active()
        return LetterQueue(self._spark, self._settings, self.work_of(plan))

    # ----------------------------------------------------------------------------------- queries

    def start(self, plan: ConnectorPlan) -> None:
        """Begin to start a connector; it must not run yet."""
        self._hosted.start(HostedConnector(plan.name, plan=plan))

    def stop(self, name: str) -> None:
        """End a connector; returns when it writes nothing more."""
        self._hosted.stop(name)

    def stop_all(self) -> None:
        """End all connectors at the same time."""
        self._hosted.stop_all()

    def report(self) -> dict[str, object]:
        return self._hosted.report()

    def _started(self, hosted: HostedConnector) -> Any:
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
            **self._settings.tracing_options(),
            "delivery": "exactly-once",
            "ledgerTopic": self._settings.offsets_topic,
            "ledgerOwner": uuid.uuid4().hex,
            "transactionalIdPrefix": f"connect-{work.name}",
        }
        # Another worker may have run the connector, and may not know yet that it no longer does.
        take_over_writes(options)
        source = work.connector()
        assert isinstance(source, Source)
        streams = source_streams(source, self._settings)
        packed = packings(streams, work.config, self._settings.offsets_topic)
        rows = source_rows(self._spark, work, self._settings, streams, packed)
        sink = "headrace" if packed is None else PACKS_FORMAT
        return rows.writeStream.format(sink).options(**options)

    def _sink_writer(self, work: ConnectorWork, hosted: HostedConnector, checkpoint: Path) -> Any:
        is_new = not (checkpoint / "offsets").exists()
        rows = topic_rows(self._spark, work, self._settings, from_group=is_new)
        settings, ended = self._settings, hosted.epoch_ended
        if issubclass(work.plugin_class(), TableSink):
            records, write = table_writer(rows, work, settings, ended)
        else:
            generation = hosted.plan.generation
            records, write = epoch_writer(rows, work, settings, generation, ended)
        return records.writeStream.foreachBatch(write)


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
