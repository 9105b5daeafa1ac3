"""results.json, and from it RESULTS.md and the picture."""

import json
import platform
import statistics
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.growth import Figure
from benchmarks.processes import BUSY_CORES, machine
from benchmarks.rows import ROWS, Row
from tests.support.java import kafka_version

HERE = Path(__file__).resolve().parent
JSON = HERE / "results.json"
MARKDOWN = HERE / "RESULTS.md"
PICTURE = HERE / "results.svg"


@dataclass(frozen=True, slots=True)
class Measured:
    """All rounds of one row."""

    name: str
    kafka: list[float]
    headrace: list[float]
    warm: bool
    """Whether both had stopped getting faster before the first round."""
    busy_cores: float
    """What else ran on the machine before the row."""
    kafka_cpu_us: list[float] = field(default_factory=list)
    headrace_cpu_us: list[float] = field(default_factory=list)
    """CPU of the broker for one request in each round, in rows that measure it."""

    @property
    def doubt(self) -> str | None:
        """Why the row proves nothing, or None."""
        if not self.warm:
            return "had not settled"
        if self.busy_cores > BUSY_CORES:
            return f"{self.busy_cores:.1f} cores were busy"
        return None

    @property
    def ratio(self) -> float:
        """The median of the ratios of neighbouring rounds."""
        return statistics.median(h / k for h, k in zip(self.headrace, self.kafka, strict=True))


@dataclass(slots=True)
class Results:
    """Everything that was measured, row by row."""

    about: dict[str, str] = field(default_factory=dict)
    rows: dict[str, Measured] = field(default_factory=dict)
    growth: dict[str, tuple[str, list[Figure]]] = field(default_factory=dict)

    @classmethod
    def load(cls) -> "Results":
        results = cls()
        if JSON.exists():
            stored: dict[str, Any] = json.loads(JSON.read_text())
            results.about = stored["about"]
            results.rows = {name: Measured(**row) for name, row in stored["rows"].items()}
            results.growth = {
                name: (row["title"], [Figure(**figure) for figure in row["figures"]])
                for name, row in stored["growth"].items()
            }
        return results

    def write(self) -> None:
        """Writes all three files."""
        self.about = about()
        stored = {
            "about": self.about,
            "rows": {name: asdict(row) for name, row in self.rows.items()},
            "growth": {
                name: {"title": title, "figures": [asdict(figure) for figure in figures]}
                for name, (title, figures) in self.growth.items()
            },
        }
        JSON.write_text(json.dumps(stored, indent=1) + "\n")
        write_markdown()
        picture(self)


def write_markdown() -> None:
    """Write RESULTS.md from the stored figures of all benchmarks."""
    MARKDOWN.write_text(markdown(Results.load()))


def about() -> dict[str, str]:
    """What the numbers depend on."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return {
        "date": date.today().isoformat(),
        "machine": machine(),
        "python": platform.python_version(),
        "java": said.splitlines()[0].split('"')[1] if '"' in said else "unknown",
        "kafka": kafka_version(),
    }


def holds(row: Row, measured: Measured) -> bool | None:
    """Whether the row's bar is reached; None where there is no bar, or doubt about the numbers."""
    if row.bar is None or measured.doubt is not None:
        return None
    reached = statistics.median(measured.headrace) if row.absolute else measured.ratio
    return reached >= row.bar if row.better == "higher" else reached <= row.bar


def bar_text(row: Row) -> str:
    if row.bar is None:
        return "-"
    sign = "≥" if row.better == "higher" else "≤"
    return f"{sign} {row.bar:g} {row.unit}".rstrip() if row.absolute else f"{sign} {row.bar:g}"


def number(value: float) -> str:
    """Three significant digits, thousands with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def spread(values: list[float]) -> str:
    """The median, and the range where there is one."""
    middle = number(statistics.median(values))
    if len(values) < 2:
        return middle
    return f"{middle} ({number(min(values))} to {number(max(values))})"


def markdown(results: Results) -> str:
    about_ = results.about
    lines = [
        "# Headrace beside Apache Kafka",
        "",
        f"Measured on {about_['date']}: {about_['machine']};",
        f"Python {about_['python']}, Java {about_['java']},",
        f"Apache Kafka {about_['kafka']} with a heap of 1 GiB.",
        "",
        "Both brokers and the client share the machine. Kafka is warmed with the same load until",
        "it gets no faster; then the two take turns on fresh topics, and the ratio is the median",
        "over the rounds. A row without a verdict was measured on a busy machine or unsettled.",
        "Numbers are medians with their range. Repeat with `make bench`.",
        "",
        "![Ratios to Apache Kafka](results.svg)",
        "",
        "| work | unit | Apache Kafka | Headrace | ratio | bar | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        if (measured := results.rows.get(row.name)) is None:
            continue
        verdict = {True: "holds", False: "**missed**", None: measured.doubt or ""}[
            holds(row, measured)
        ]
        lines.append(
            f"| {row.title} | {row.unit} | {spread(measured.kafka)} | {spread(measured.headrace)} "
            f"| **{measured.ratio:.2f}** | {bar_text(row)} | {verdict} |"
        )
    from benchmarks import cluster, compaction, console, second_broker, spark
    from benchmarks.connect import __main__ as connect
    from benchmarks.security import report as security

    lines += second_broker.markdown()
    lines += spark.markdown()
    lines += compaction.markdown()
    lines += cluster.markdown()
    lines += security.markdown()
    lines += connect.markdown()
    lines += console.markdown()
    if results.growth:
        lines += ["", "## Cost growth", "", "Headrace alone.", ""]
    for title, figures in results.growth.values():
        lines += [f"### {title}", "", "| | |", "|---|---|"]
        lines += [f"| {f.title} | {number(f.value)} {f.unit} |" for f in figures]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def picture(results: Results) -> None:
    """How many times better than Kafka, a bar a row, with a mark where the bar is set."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    rows = [(row, results.rows[row.name]) for row in ROWS if row.name in results.rows]
    rows.reverse()
    if not rows:
        return
    times_better = [
        measured.ratio if row.better == "higher" else 1 / measured.ratio for row, measured in rows
    ]
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(rows) + 1.4))
    colours = [
        "#b0b0b0" if m.doubt else "#c0392b" if holds(row, m) is False else "#1f6f8b"
        for row, m in rows
    ]
    axes.barh([row.title for row, _ in rows], times_better, color=colours, height=0.62)
    for place, ((row, measured), value) in enumerate(zip(rows, times_better, strict=True)):
        if row.bar is not None:
            bar = row.bar / statistics.median(measured.kafka) if row.absolute else row.bar
            mark = bar if row.better == "higher" else 1 / bar
            axes.plot([mark, mark], [place - 0.4, place + 0.4], color="black", linewidth=2)
        axes.text(value * 1.04, place, f"{value:.2g}x", va="center", fontsize=9)
    axes.axvline(1, color="grey", linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, *times_better) * 0.9, max(times_better) * 1.6)
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 5, 10, 20, 50) if tick <= max(times_better) * 1.6]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.set_title(f"Headrace beside Apache Kafka {results.about['kafka']}: times better")
    axes.set_xlabel(
        "dashed: as Kafka; black mark: the bar; red: missed; grey: busy machine or not settled"
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})
    pyplot.close(figure)
