"""Metrics of streaming queries for Prometheus, in Spark's own metrics registry.

Spark's servlet serves its metrics registry, which has no lag. Accumulators can be registered there,
so each metric is an accumulator that is changed by the difference to its last value. This works for
classic sessions only: a Connect client has no local Java.
"""

import re
from typing import Any

from headrace.pipelines.running.progress import Query


class Gauges:
    """One accumulator for each metric of each query."""

    def __init__(self, session: Any) -> None:
        context = session.sparkContext
        self._jvm = context._jvm
        # A Scala object whose class has methods of the same name, so it has no static methods.
        sources = getattr(self._jvm.org.apache.spark.metrics.source, "DoubleAccumulatorSource$")
        self._sources = getattr(sources, "MODULE$")
        self._context = context._jsc.sc()
        self._shown: dict[str, tuple[Any, float]] = {}

    def show(self, query: Query) -> None:
        """Set the metrics of a query."""
        for name, value in values(query).items():
            accumulator, before = self._shown.get(name) or (self._register(name), 0.0)
            accumulator.add(value - before)
            self._shown[name] = accumulator, value

    def _register(self, name: str) -> Any:
        accumulator = self._context.doubleAccumulator(name)
        named = self._jvm.java.util.HashMap()
        named.put(name, accumulator)
        self._sources.register(self._context, self._jvm.PythonUtils.toScalaMap(named))
        return accumulator


def values(query: Query) -> dict[str, float]:
    """The metrics of a query by their names in Prometheus."""
    found: dict[str, float | None] = {
        "lag_records": query.lag_records,
        "input_rows_per_second": query.input_rows_per_s,
        "processed_rows_per_second": query.processed_rows_per_s,
        "rows_total": query.rows_total,
        "batch_ms": query.batch_ms,
        "state_rows": query.state_rows,
        "state_bytes": query.state_bytes,
        "late_rows_total": query.late_rows,
        "running": int(query.state.alive),
    }
    for source in query.sources:
        for topic, lag in source.topics.items():
            found[f"{_word(topic)}.lag_records"] = lag
    return {
        f"headrace.{_word(query.title)}.{name}": float(value)
        for name, value in found.items()
        if value is not None
    }


def _word(text: str) -> str:
    """A name without dots, which would add a level."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)
