"""python -m benchmarks: compare Headrace with Apache Kafka and measure how its costs grow."""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import blaster, report, sides
from benchmarks.growth import GROWTH_ROWS, QUICK_SIZE, Figure, GrowthRow, Size
from benchmarks.processes import BUSY_CORES, busy_cores
from benchmarks.rows import FULL, QUICK, ROWS, Effort, Row, warm_jvm
from tests.support import java


def arguments() -> argparse.Namespace:
    names = [row.name for row in ROWS] + [row.name for row in GROWTH_ROWS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs, smaller growth rows")
    parser.add_argument(
        "--only",
        action="append",
        metavar="ROW",
        choices=names,
        help=f"only this row; repeatable. One of: {', '.join(names)}",
    )
    parser.add_argument("--rounds", type=int, help="how often the two brokers take turns")
    parser.add_argument("--seconds", type=float, help="how long one measurement takes")
    parser.add_argument("--log-gb", type=float, help="size of the large log (20)")
    parser.add_argument("--no-growth", action="store_true", help="only the comparison")
    parser.add_argument(
        "--headrace-only", action="store_true", help="without Kafka, for profiling; writes nothing"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write RESULTS.md even after a quick or partial run (a whole run always does)",
    )
    return parser.parse_args()


def effort_of(options: argparse.Namespace) -> Effort:
    effort = QUICK if options.quick else FULL
    return replace(
        effort,
        seconds=options.seconds or effort.seconds,
        rounds=options.rounds or effort.rounds,
    )


def warm_up(row: Row, broker: sides.Broker, effort: Effort) -> bool:
    """Repeats a row until two runs in a row bring no more than 5 %; False when it never settles."""
    if row.measure is None:
        return True
    best, idle_runs = 0.0, 0
    end = time.monotonic() + effort.most_row_s / 4
    for _ in range(effort.max_warm_runs):
        if time.monotonic() > end:
            break
        value = row.measure(broker, effort)
        speed = value if row.better == "higher" else 1 / value
        idle_runs = 0 if speed > best * 1.05 else idle_runs + 1
        best = max(best, speed)
        if idle_runs == 2:
            return True
    return False


def compare(
    row: Row,
    running: sides.Sides,
    effort: Effort,
    names: tuple[sides.SideName, ...],
    step: Callable[[], None],
) -> tuple[dict[sides.SideName, list[float]], bool]:
    """Warm-up, then both in turns: a list of rounds for each, and whether all were warm."""
    measured: dict[sides.SideName, list[float]] = {name: [] for name in names}
    warm = True
    end = time.monotonic() + effort.most_row_s
    for name in names if row.measure is not None else ():
        warm = warm_up(row, running[name], effort) and warm
    step()
    for done in range(effort.rounds):
        if done and time.monotonic() > end:
            break
        for name in names:
            if row.measure is not None:
                measured[name].append(row.measure(running[name], effort))
            elif row.measure_alone is not None:
                measured[name].append(row.measure_alone(name))
            step()
    return measured, warm


def run_rows(
    rows: list[Row],
    growth: list[GrowthRow],
    effort: Effort,
    size: Size,
    names: tuple[sides.SideName, ...],
    results: report.Results,
    keep: Callable[[], None],
) -> None:
    """Measure row by row; `keep` is called after each, so that a failure costs only one."""
    running = sides.Sides()
    console = Console()
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    task = progress.add_task("", total=len(rows) * (1 + effort.rounds * len(names)) + len(growth))
    with progress:
        try:
            if rows:
                progress.update(task, description="touching memory")
                sides.warm_memory(4000)
            if "kafka" in names and any(row.measure for row in rows):
                progress.update(task, description="warming Kafka")
                warm_jvm(running["kafka"], effort.jvm_warm_s)
            for row in rows:
                progress.update(task, description=row.title)
                busy = busy_cores()
                done, warm = compare(row, running, effort, names, lambda: progress.advance(task))
                console.print(line_of(row, done))
                if len(names) == 2:
                    results.rows[row.name] = report.Measured(
                        row.name, done["kafka"], done["headrace"], warm, busy
                    )
                    keep()
        finally:
            running.stop()
        for grown in growth:
            progress.update(task, description=grown.title(size))
            busy = busy_cores()
            figures = grown.measure(size)
            if busy > BUSY_CORES:
                figures.append(Figure("cores that other work kept busy at its start", busy, ""))
            results.growth[grown.name] = (grown.title(size), figures)
            keep()
            for figure in figures:
                value = f"{report.number(figure.value)} {figure.unit}"
                console.print(f"{grown.title(size)}: {figure.title} {value}")
            progress.advance(task)


def line_of(row: Row, done: dict[sides.SideName, list[float]]) -> str:
    parts = [f"{name} {report.spread(values)}" for name, values in done.items()]
    line = f"{row.title}: {', '.join(parts)} {row.unit}"
    if len(done) == 2:
        measured = report.Measured(row.name, done["kafka"], done["headrace"], True, 0)
        line += f"; ratio {measured.ratio:.2f} (bar {report.bar_text(row)})"
    return line


def show(results: report.Results, rows: list[Row]) -> None:
    table = Table("work", "unit", "Kafka", "Headrace", "ratio", "bar", "")
    for row in rows:
        if (measured := results.rows.get(row.name)) is None:
            continue
        verdict = {True: "[green]holds", False: "[red]missed", None: measured.doubt or ""}
        table.add_row(
            row.title,
            row.unit,
            report.number(statistics.median(measured.kafka)),
            report.number(statistics.median(measured.headrace)),
            f"{measured.ratio:.2f}",
            report.bar_text(row),
            verdict[report.holds(row, measured)],
        )
    Console().print(table)


def main() -> None:
    options = arguments()
    names: tuple[sides.SideName, ...] = ("headrace",) if options.headrace_only else sides.NAMES
    if (reason := java.missing()) is not None:
        raise SystemExit(f"benchmarks need Apache Kafka: {reason}")
    blaster.build()
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    growth = [row for row in GROWTH_ROWS if not options.only or row.name in options.only]
    if options.no_growth:
        growth = []
    size = QUICK_SIZE if options.quick else Size()
    if options.log_gb:
        size = replace(size, log_gb=options.log_gb)
    whole = not (options.quick or options.only or options.no_growth or options.headrace_only)
    results = report.Results.load() if options.only else report.Results()
    writes = whole or (options.write and not options.headrace_only)
    keep = results.write if writes else lambda: None
    run_rows(rows, growth, effort_of(options), size, names, results, keep)
    if len(names) == 2 and rows:
        show(results, rows)
    if writes:
        print(f"written: {report.MARKDOWN.name}, {report.PICTURE.name} in benchmarks/")


if __name__ == "__main__":
    main()
