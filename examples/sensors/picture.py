"""The picture of a run: temperature and humidity of every place with their alerts, and the flow."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from house_rules import PLACES, Place

INK = "#1f2933"
FAINT = "#9aa5b1"
PAPER = "#fbfaf7"
ALERT = "#d64545"
COLOURS = {
    "server room": "#c05621",
    "greenhouse": "#2f855a",
    "cold store": "#2b6cb0",
    "office": "#6b46c1",
}


@dataclass(frozen=True)
class Average:
    """A row of the table."""

    minute: datetime
    sensor: str
    place: str
    readings: int
    temperature: float
    humidity: float
    alert: str | None


@dataclass(frozen=True)
class Flow:
    """The state of the run at one moment."""

    second: float
    produced_per_s: float
    processed_per_s: float
    lag_records: int


def draw(rows: Sequence[Average], flows: Sequence[Flow], title: str, path: Path) -> None:
    """Write the picture as PNG."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    style = {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "axes.facecolor": PAPER,
        "figure.facecolor": PAPER,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):
        figure = pyplot.figure(figsize=(13, 9), dpi=110)
        grid = figure.add_gridspec(
            3, len(PLACES), height_ratios=(1.25, 1, 0.8), hspace=0.42, wspace=0.24,
            left=0.06, right=0.975, top=0.87, bottom=0.07,
        )  # fmt: skip
        for column, place in enumerate(PLACES):
            mine = [row for row in rows if row.place == place.name]
            above = figure.add_subplot(grid[0, column])
            below = figure.add_subplot(grid[1, column], sharex=above)
            _air(above, mine, place, "temperature", (place.coldest, place.warmest), "°C")
            _air(below, mine, place, "humidity", (place.driest, place.dampest), "%")
            above.set_title(place.name, loc="left", fontweight="bold", color=COLOURS[place.name])
            names = f"━ {place.sensors[0]}   ╍ {place.sensors[1]}"
            above.set_title(names, loc="right", fontsize=8, color=COLOURS[place.name])
            if column == 0:
                above.set_ylabel("temperature, °C")
                below.set_ylabel("humidity, %")
        half = len(PLACES) // 2
        _rates(figure.add_subplot(grid[2, :half]), flows)
        _waiting(figure.add_subplot(grid[2, half:]), flows)
        alerts = sum(row.alert is not None for row in rows)
        figure.text(0.06, 0.945, title, fontsize=16, fontweight="bold")
        figure.text(
            0.06, 0.915,
            f"{sum(row.readings for row in rows):,} readings, {len(rows):,} averages of a minute, "
            f"{alerts} alerts (red). Shaded: what each place should be like.",
            color=FAINT,
        )  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
        pyplot.close(figure)


def _air(
    axes: Any, rows: list[Average], place: Place, field: str, limits: tuple[float, float], unit: str
) -> None:
    from matplotlib.dates import DateFormatter, MinuteLocator

    low, high = limits
    axes.axhspan(low, high, color=COLOURS[place.name], alpha=0.08, linewidth=0)
    for index, sensor in enumerate(place.sensors):
        mine = sorted((row for row in rows if row.sensor == sensor), key=lambda row: row.minute)
        times = [row.minute for row in mine]
        values = [getattr(row, field) for row in mine]
        dashes = "-" if index == 0 else (0, (4, 1.5))
        axes.plot(times, values, color=COLOURS[place.name], linewidth=1.4, linestyle=dashes)
        out = [(row.minute, getattr(row, field)) for row in mine if _outside(row, field, limits)]
        if out:
            axes.plot(*zip(*out, strict=True), "o", color=ALERT, markersize=4, zorder=3)
    axes.annotate(
        f"{high:g} {unit}", (0, high), xycoords=("axes fraction", "data"), fontsize=7, color=FAINT,
        xytext=(2, 2), textcoords="offset points",
    )  # fmt: skip
    axes.margins(x=0.03)
    axes.xaxis.set_major_locator(MinuteLocator(range(0, 60, _minutes_between_ticks(rows))))
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    axes.grid(axis="y", color=FAINT, alpha=0.2, linewidth=0.6)


def _minutes_between_ticks(rows: Sequence[Average]) -> int:
    """The minutes between ticks, for at most four ticks."""
    times = [row.minute for row in rows]
    span = (max(times) - min(times)).total_seconds() / 60 if times else 0
    return next((step for step in (1, 2, 5, 10, 15, 20, 30) if span / step <= 3.5), 60)


def _outside(row: Average, field: str, limits: tuple[float, float]) -> bool:
    low, high = limits
    return row.alert is not None and not low <= getattr(row, field) <= high


def _rates(axes: Any, flows: Sequence[Flow]) -> None:
    seconds = [flow.second for flow in flows]
    done = [flow.processed_per_s for flow in flows]
    axes.plot(seconds, [flow.produced_per_s for flow in flows], color=INK, linewidth=1.6)
    axes.plot(seconds, done, color=COLOURS["greenhouse"], linewidth=1.6)
    axes.set_title("readings a second", loc="left", fontweight="bold")
    axes.text(0.5, 1.05, "produced", color=INK, transform=axes.transAxes, fontsize=9)
    axes.text(
        0.66, 1.05, "processed", color=COLOURS["greenhouse"], transform=axes.transAxes, fontsize=9
    )
    _seconds(axes)


def _waiting(axes: Any, flows: Sequence[Flow]) -> None:
    seconds = [flow.second for flow in flows]
    waiting = [flow.lag_records for flow in flows]
    axes.fill_between(seconds, waiting, color=COLOURS["cold store"], alpha=0.3, linewidth=0)
    axes.set_title("readings that wait in the log", loc="left", fontweight="bold")
    _seconds(axes)


def _seconds(axes: Any) -> None:
    axes.set_xlabel("seconds of the run")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color=FAINT, alpha=0.2, linewidth=0.6)
