"""Prometheus's text format and its histogram, for the broker and the services."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

LATENCY_BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0,
)  # fmt: skip
"""Upper bounds of buckets for times from a tenth of a millisecond to ten seconds."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """Counts values by size. Not thread-safe."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float] = LATENCY_BOUNDS_S) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The lines of one histogram; `labels` as `label_text` gives them."""
        before = f"{labels}," if labels else ""
        after = f"{{{labels}}}" if labels else ""
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{before}le="{bound}"}} {total}'
        yield f"{name}_sum{after} {self._sum}"
        yield f"{name}_count{after} {total}"


def head(name: str, kind: str, doc: str) -> list[str]:
    """The lines before the values of a metric."""
    return [f"# HELP {name} {_escaped_doc(doc)}", f"# TYPE {name} {kind}"]


def line(name: str, labels: str, value: float) -> str:
    """The line of one value."""
    return f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"


def label_text(names: Sequence[str], values: Sequence[str]) -> str:
    """What stands between the braces."""
    return ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_doc(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
