"""Draws the terminal output of the demo: places, queries and alerts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from house_rules import PLACES
from picture import Average
from rich.box import ROUNDED, SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headrace.pipelines.running.progress import Query

BARS = "▁▂▃▄▅▆▇█"
SPARK_MINUTES = 24
ALERTS_SHOWN = 6
STYLES = {
    "server room": "bright_red",
    "greenhouse": "green",
    "cold store": "bright_blue",
    "office": "magenta",
}


@dataclass(frozen=True)
class View:
    """Everything that is drawn, at one moment."""

    remark: str
    produced: int
    produced_per_s: float
    waiting: int
    # The averages of each sensor, oldest first.
    averages: Mapping[str, Sequence[Average]]
    alerts: Sequence[Average]
    queries: Sequence[Query]


def drawn(view: View) -> RenderableType:
    head = Text.assemble(
        ("Headrace", "bold"),
        "   readings ",
        (f"{view.produced:,}", "bold cyan"),
        ("  ", ""),
        (f"{view.produced_per_s:,.0f}/s", "cyan"),
        "   waiting ",
        (f"{view.waiting:,}", "bold yellow" if view.waiting > 5 * view.produced_per_s else "cyan"),
        "   alerts ",
        (f"{len(view.alerts)}", "bold red" if view.alerts else "cyan"),
    )
    return Group(
        Text(),
        head,
        Text(view.remark, style="dim"),
        Panel(_air(view), title="averages of the last minute", title_align="left", box=ROUNDED),
        Panel(_queries(view.queries), title="Spark", title_align="left", box=ROUNDED),
        Panel(_alerts(view.alerts), title="alerts", title_align="left", box=ROUNDED),
    )


def line(view: View, second: float) -> str:
    """The same in one line, for output that cannot be redrawn."""
    last = view.alerts[-1] if view.alerts else None
    news = f", last: {last.place} {last.alert} at {last.minute:%H:%M}" if last else ""
    averages = sum(len(each) for each in view.averages.values())
    return (
        f"{second:5.0f} s  {view.produced:,} readings at {view.produced_per_s:,.0f}/s, "
        f"{view.waiting:,} wait, {averages} averages, {len(view.alerts)} alerts{news}"
        f" ({view.remark})"
    )


def _air(view: View) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)
    for heading in ("place", "sensor", "minute", "°C", "", "% humidity", ""):
        number = heading in ("°C", "% humidity")
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for place in PLACES:
        for index, sensor in enumerate(place.sensors):
            rows = view.averages.get(sensor, ())
            name = Text(place.name if index == 0 else "", style=STYLES[place.name])
            if not rows:
                table.add_row(name, sensor, Text("waiting for Spark", style="dim"))
                continue
            last, recent = rows[-1], rows[-SPARK_MINUTES:]
            table.add_row(
                name,
                sensor,
                f"{last.minute:%H:%M}",
                _judged(last.temperature, place.coldest, place.warmest),
                _sparkline([each.temperature for each in recent], STYLES[place.name]),
                _judged(last.humidity, place.driest, place.dampest),
                _sparkline([each.humidity for each in recent], "cyan"),
            )
    return table


def _judged(value: float, low: float, high: float) -> Text:
    return Text(f"{value:.1f}", style="" if low <= value <= high else "bold red")


def _sparkline(values: Sequence[float], style: str) -> Text:
    low, high = min(values), max(values)
    # Noise of a degree should not look large.
    span = max(high - low, 6.0)
    marks = (BARS[min(int((value - low) / span * len(BARS)), len(BARS) - 1)] for value in values)
    return Text("".join(marks), style=style)


def _queries(queries: Sequence[Query]) -> RenderableType:
    if not queries:
        return Text("Spark is starting; the readings wait in the log", style="dim")
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)
    for heading in ("query", "state", "rows/s", "rows", "lag", "batch", "ms", "keys in state"):
        left = heading in ("query", "state")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for query in queries:
        table.add_row(
            query.title,
            Text(query.state, style="green" if query.state.alive else "bold red"),
            f"{query.input_rows_per_s or 0:,.0f}",
            f"{query.rows_total:,}",
            "-" if query.lag_records is None else f"{query.lag_records:,}",
            "-" if query.batch is None else f"{query.batch:,}",
            "-" if query.batch_ms is None else f"{query.batch_ms:,}",
            f"{query.state_rows:,}",
        )
    return table


def _alerts(alerts: Sequence[Average]) -> RenderableType:
    if not alerts:
        return Text("none so far", style="dim")
    lines = [
        Text.assemble(
            (f"{each.minute:%H:%M}  ", "dim"),
            (f"{each.place:<12}", STYLES[each.place]),
            f"{each.sensor:<9}",
            (f"{each.alert:<9}", "bold red"),
            f"{each.temperature:.1f} °C  {each.humidity:.0f} %",
        )
        for each in reversed(alerts[-ALERTS_SHOWN:])
    ]
    return Group(*lines)
