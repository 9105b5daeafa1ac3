"""The values of a broker's metrics, and the page of `/metrics` that shows them.

A metric that is not in the table (`table.py`) cannot be set. Labels are kept in the order of
the row. The page is made in steps, so that a scrape does not hold up requests.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from headrace.broker.metrics.table import METRICS, Metric
from headrace.prometheus import Histogram, head, label_text, line
from headrace.wire.steps import Steps

Labels: TypeAlias = tuple[str, ...]
Series: TypeAlias = Iterable[tuple[Labels, float | Histogram]]

MOST_SERIES = 10_000
"""How many values of one counter are told apart. Clients choose some of the labels."""
_STRIDE = 64
"""Values between two yields."""
_LINES = 1000
"""Lines in one piece of the page."""


class Metrics:
    """The values of all metrics of one broker."""

    def __init__(self) -> None:
        self._rows: list[Metric] = list(METRICS)
        self._values: dict[str, dict[Labels, float]] = {row.name: {} for row in METRICS}
        self._sources: dict[str, Callable[[], Series]] = {}
        self._preparations: list[Callable[[], Steps[None]]] = []
        self._texts: list[Callable[[], Steps[str]]] = []

    def extend(self, rows: Iterable[Metric]) -> None:
        """Show more metrics."""
        for row in rows:
            self._rows.append(row)
            self._values[row.name] = {}

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Let a counter grow. Labels beyond a limit are counted together, as empty ones."""
        values = self._values[name]
        if labels not in values and len(values) >= MOST_SERIES:
            labels = ("",) * len(labels)
        values[labels] = values.get(labels, 0) + amount

    def set(self, name: str, value: float, *labels: str) -> None:
        """Say what a gauge shows."""
        self._values[name][labels] = value

    def get(self, name: str, *labels: str) -> float:
        """What a counter or a gauge shows that is not watched."""
        return self._values[name].get(labels, 0)

    def clear(self, name: str) -> None:
        """Forget all values of a gauge."""
        self._values[name].clear()

    def watch(self, name: str, source: Callable[[], float]) -> None:
        """Register a callback that returns the value of a metric without labels at each scrape."""
        self.watch_series(name, lambda: [((), source())])

    def watch_each(self, name: str, source: Callable[[], Mapping[str, float | Histogram]]) -> None:
        """Likewise for a metric with one label: the values by that."""
        self.watch_series(name, lambda: [((key,), value) for key, value in source().items()])

    def watch_series(self, name: str, source: Callable[[], Series]) -> None:
        """Likewise for any labels. The source may be a generator: the loop runs in between."""
        assert name in self._values, name
        self._sources[name] = source

    def append(self, text: Callable[[], Steps[str]]) -> None:
        """Register a callback that returns further metrics as text at each scrape."""
        self._texts.append(text)

    def prepare(self, steps: Callable[[], Steps[None]]) -> None:
        """Register what has to be done before the sources are asked."""
        self._preparations.append(steps)

    def prepare_steps(self) -> Steps[None]:
        """Bring what sources show up to date."""
        for steps in self._preparations:
            yield from steps()

    def render_steps(self) -> Steps[list[bytes]]:
        """Everything in Prometheus' text format, in pieces: the page may have megabytes."""
        yield from self.prepare_steps()
        lines: list[str] = []
        pieces: list[bytes] = []
        for row in self._rows:
            lines += head(row.name, row.kind, row.doc)
            for count, (labels, value) in enumerate(self._series(row)):
                # A value without labels may stand beside others: of all of them.
                text = label_text(row.labels, labels) if labels else ""
                if isinstance(value, Histogram):
                    lines += value.lines(row.name, text)
                else:
                    lines.append(line(row.name, text, value))
                if len(lines) > _LINES:
                    pieces.append(_joined(lines))
                    lines.clear()
                if not count % _STRIDE:
                    yield
        if lines:
            pieces.append(_joined(lines))
        for more in self._texts:
            text = yield from more()
            pieces.append(text.encode())
        return pieces

    def _series(self, row: Metric) -> Series:
        source = self._sources.get(row.name)
        if source is not None:
            return source()
        values = self._values[row.name]
        if not row.labels:
            values.setdefault((), 0)
        return list(values.items())


def _joined(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
