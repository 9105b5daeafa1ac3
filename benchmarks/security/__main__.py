"""python -m benchmarks.security: what security costs, beside a secured Apache Kafka."""

import argparse
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from benchmarks import blaster, report, sides
from benchmarks.__main__ import compare
from benchmarks.processes import Rate, busy_cores
from benchmarks.rows import FULL, QUICK, Effort, Row, warm_jvm
from benchmarks.security.brokers import SecuredSides
from benchmarks.security.report import TITLES, SecurityResults, cells
from benchmarks.security.rows import LONG_ROWS, OWN_ROWS, SMALL, all_rows, produces
from tests.support import java

QUICK_ROW_S = 20.0
"""How long a row of a quick run may take before it begins its last round."""


def arguments() -> argparse.Namespace:
    names = [row.name for row in all_rows()]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.security", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs: under eight minutes")
    parser.add_argument(
        "--only",
        action="append",
        metavar="ROW",
        choices=names,
        help=f"only this row; repeatable. One of: {', '.join(names)}",
    )
    parser.add_argument("--rounds", type=int, help="how often the two brokers take turns")
    parser.add_argument("--seconds", type=float, help="how long one measurement takes")
    parser.add_argument("--headrace-only", action="store_true", help="without Kafka")
    parser.add_argument("--write", action="store_true", help="write results.json and RESULTS.md")
    return parser.parse_args()


def effort_of(options: argparse.Namespace) -> Effort:
    # Kafka is warm after its first row; the rows are alike.
    quick = replace(QUICK, max_warm_runs=3, most_row_s=QUICK_ROW_S)
    effort = quick if options.quick else replace(FULL, rounds=5)
    return replace(
        effort,
        seconds=options.seconds or effort.seconds,
        rounds=options.rounds or effort.rounds,
    )


def warm(running: SecuredSides, effort: Effort) -> None:
    """Let Kafka compile what the rows use."""
    kafka = running["kafka"]
    warm_jvm(kafka, effort.jvm_warm_s / 2)
    longer = replace(effort, seconds=effort.jvm_warm_s / 2)
    produces(SMALL, 50, 8, megabytes=False)(kafka, longer)


def measure(
    row: Row, running: SecuredSides, effort: Effort, names: tuple[sides.SideName, ...]
) -> report.Measured:
    """One row on the sides that it needs."""
    if row in OWN_ROWS:
        names = ("headrace",)
    if row.name in LONG_ROWS:
        effort = replace(effort, rounds=1 if effort.rounds <= QUICK.rounds else 3, max_warm_runs=0)
    busy = busy_cores(1.0)
    done, settled = compare(row, running, effort, names, lambda: None)
    return report.Measured(
        row.name,
        [float(rate) for rate in done.get("kafka", done["headrace"])],
        [float(rate) for rate in done["headrace"]],
        settled or effort.max_warm_runs < FULL.max_warm_runs,
        busy,
        _cpu_us(done.get("kafka", [])),
        _cpu_us(done["headrace"]),
    )


def _cpu_us(rounds: list[float]) -> list[float]:
    return [rate.cpu_us for rate in rounds if isinstance(rate, Rate)]


def main() -> None:
    options = arguments()
    if not options.headrace_only and (reason := java.missing()) is not None:
        raise SystemExit(f"benchmarks need Apache Kafka: {reason}")
    blaster.build(tls=True)
    effort = effort_of(options)
    names: tuple[sides.SideName, ...] = ("headrace",) if options.headrace_only else sides.NAMES
    results = SecurityResults.load() if options.only else SecurityResults()
    results.quick = options.quick
    console = Console()
    table = Table(*TITLES)
    running = SecuredSides()
    try:
        rows = [row for row in all_rows() if not options.only or row.name in options.only]
        if "kafka" in names and any(row not in OWN_ROWS for row in rows):
            warm(running, effort)
        for row in rows:
            measured = results.rows[row.name] = measure(row, running, effort, names)
            alone = row in OWN_ROWS or len(names) < 2
            console.print(", ".join(cells(row, measured, alone)))
            table.add_row(*cells(row, measured, alone))
            if options.write:  # after each row, so that a run that ends early leaves its rows
                results.write()
                report.write_markdown()
    finally:
        running.stop()
    console.print(table)


if __name__ == "__main__":
    main()
