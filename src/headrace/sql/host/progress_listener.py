"""The progress of statements for `headrace spark queries`."""

from dataclasses import replace
from typing import Any

from headrace.pipelines.running.listener import ProgressListener
from headrace.pipelines.running.progress import Query, SinkTarget
from headrace.pipelines.running.progress_topic import Publisher
from headrace.sql.host.settings import SqlDriverSettings


class StatementListener(ProgressListener):
    """Publishes the topics of statements too, which Spark does not know of all."""

    def __init__(self, spark: Any, settings: SqlDriverSettings) -> None:
        context = spark.sparkContext
        publisher = Publisher(settings.bootstrap, settings.client)
        super().__init__(publisher, None, context.appName, context.applicationId)
        self._targets: dict[str, SinkTarget] = {}

    def writes(self, query: str, topic: str, mode: str) -> None:
        """Note where a query writes, before it starts."""
        self._targets[query] = SinkTarget("headrace", topic, mode=mode)

    def _sink_target(self, query: Query) -> SinkTarget | None:
        return self._targets.get(query.name or "") or super()._sink_target(query)

    def _new(self, id_: str, run: str, name: str | None, at_ms: int) -> Query:
        made = super()._new(id_, run, name, at_ms)
        return replace(made, sink_target=self._targets.get(name or ""))
