"""The metrics that clients have pushed, for Prometheus.

A metric keeps Kafka's name with underscores in place of dots. Its labels are the client's id and
instance id, then the attributes that the client pushed. Deltas are added up, so that counters
only grow. A gauge that a push no longer has is removed. Names without
`org.apache.kafka.` get the prefix `client_`: a client cannot push a metric that looks like one of
the broker's. The number of series is bounded, in total and per client; what does not fit is
dropped and counted.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from headrace.apis.telemetry.subscriptions import AskedMetrics, PushingClient
from headrace.types import encode_uuid
from headrace.wire.otlp import MetricPoint
from headrace.wire.steps import Steps

MAX_NAME_CHARACTERS = 200
MAX_LABELS_CHARACTERS = 2000

_KAFKA = "org_apache_kafka_"
_OTHER = "client_"
_POINTS_PER_STEP = 20
_STRIDE = 64
"""Lines of the page between two yields."""
_NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_]")
_LEFT_OUT = ("client_id", "client_instance_id", "group_member_id")
"""Attributes that do not become labels: those of the broker, and one that changes often."""


class PushedSeries:
    """All series of one client."""

    __slots__ = ("count", "gone", "labels", "names", "pushes")

    def __init__(self, client: PushingClient) -> None:
        self.labels = (
            f'client_id="{_escaped(client.client_id)}",'
            f'client_instance_id="{encode_uuid(client.instance_id)}"'
        )
        self.names: dict[str, dict[str, int]] = {}
        """By the name of the metric and the text of the labels: the last push that had it."""
        self.pushes = 0
        self.count = 0
        self.gone = False
        """Whether the client was forgotten, so that nothing more is stored for it."""


class _Family:
    """The series of all clients with one name."""

    __slots__ = ("counter", "values")

    def __init__(self, counter: bool) -> None:
        self.counter = counter
        self.values: dict[str, float] = {}


class SeriesTable:
    """The pushed series of all clients."""

    def __init__(self, max_series: int, max_series_of_client: int) -> None:
        self._max_series = max_series
        self._max_series_of_client = max_series_of_client
        self._families: dict[str, _Family] = {}
        self.count = 0
        self.dropped: Counter[str] = Counter()
        """Data points that were not stored, by the reason."""

    def store(
        self, series: PushedSeries, asked: AskedMetrics, points: Iterable[MetricPoint]
    ) -> Steps[None]:
        """Store the data points of a push."""
        series.pushes += 1
        for number, point in enumerate(points):
            if number % _POINTS_PER_STEP == _POINTS_PER_STEP - 1:
                yield
            if series.gone:
                return
            reason = self._store(series, asked, point)
            if reason:
                self.dropped[reason] += 1
        yield from self._remove_old_gauges(series)

    def _remove_old_gauges(self, series: PushedSeries) -> Steps[None]:
        for name in list(series.names):
            yield
            if series.gone:
                return
            family, known = self._families[name], series.names[name]
            if family.counter:
                continue
            for labels in [one for one, push in known.items() if push < series.pushes]:
                del known[labels], family.values[labels]
                series.count -= 1
                self.count -= 1
            if not known:
                del series.names[name]
            if not family.values:
                del self._families[name]

    def forget(self, series: PushedSeries) -> None:
        """Remove the series of a client."""
        for name, known in series.names.items():
            family = self._families[name]
            for labels in known:
                del family.values[labels]
            if not family.values:
                del self._families[name]
        self.count -= series.count
        series.names, series.count, series.gone = {}, 0, True

    def render(self) -> Steps[str]:
        """Everything in Prometheus' text format."""
        lines = []
        for name, family in [*self._families.items()]:
            lines.append(f"# TYPE {name} {'counter' if family.counter else 'gauge'}")
            for labels, value in [*family.values.items()]:
                lines.append(f"{name}{{{labels}}} {_number(value)}")
                if not len(lines) % _STRIDE:
                    yield
            yield
        return "\n".join(lines) + "\n" if lines else ""

    def _store(self, series: PushedSeries, asked: AskedMetrics, point: MetricPoint) -> str:
        """Store one data point; returns the reason if it is dropped."""
        if len(point.name) > MAX_NAME_CHARACTERS:
            return "name"
        if not asked.includes(point.name):
            return "not_subscribed"
        name = _metric_name(point.name)
        labels = series.labels + _labels(point.attributes)
        if len(labels) > MAX_LABELS_CHARACTERS:
            return "labels"
        family = self._families.get(name)
        if family is not None and family.counter != point.counter:
            return "type"
        if family is None or labels not in family.values:
            if self.count >= self._max_series:
                return "max_series"
            if series.count >= self._max_series_of_client:
                return "max_series_per_client"
            if family is None:
                family = self._families[name] = _Family(point.counter)
            family.values[labels] = 0
            series.count += 1
            self.count += 1
        series.names.setdefault(name, {})[labels] = series.pushes
        family.values[labels] = family.values[labels] + point.value if point.delta else point.value
        return ""


@lru_cache(1024)
def _metric_name(name: str) -> str:
    clean = _NOT_IN_NAMES.sub("_", name)
    return clean if clean.startswith(_KAFKA) else _OTHER + clean


@lru_cache(1024)
def _label_name(name: str) -> str:
    """A label's name; Prometheus uses names such as `__name__` itself."""
    clean = _NOT_IN_NAMES.sub("_", name[:MAX_NAME_CHARACTERS])
    return clean if clean[:1].isalpha() else f"label_{clean}"


def _labels(attributes: Iterable[tuple[str, str]]) -> str:
    """Labels after the client's own; of several with the same name the last is used."""
    found = {_label_name(name): value for name, value in attributes}
    return "".join(
        f',{name}="{_escaped(value)}"' for name, value in found.items() if name not in _LEFT_OUT
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, int) or math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
