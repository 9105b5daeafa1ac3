"""python -m benchmarks.connect: Connect beside Kafka Connect, the same JSON on both, in turns.

Rows are counted by the clock and by CPU time of the worker with all its processes, without broker
and database. The first round of each row is not counted: it warms both. CPU time also tells
something on a busy machine; there the table has no verdicts.
"""

import argparse
import json
import shutil
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.blaster import WORK
from benchmarks.connect.rows import (
    LATENCIES,
    MANY,
    ROWS,
    Bench,
    ConnectRow,
    Cost,
    LatencyRow,
    memory_of_many,
)
from benchmarks.connect.workers import NAMES, Worker
from benchmarks.processes import BUSY_CORES, busy_cores
from benchmarks.sides import fresh_broker
from tests.support.databases import PostgresqlServer, postgresql_programs
from tests.support.java import kafka_version

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
MEMORY = "memory"
"""The name of the row with many connectors."""


@dataclass(slots=True)
class ConnectResults:
    """All rounds of all rows, by the name of the worker."""

    busy_cores: dict[str, float] = field(default_factory=dict)
    """How busy the machine was before the run that measured a row, by the name of the row."""
    rounds: dict[str, dict[str, list[Cost]]] = field(default_factory=dict)
    latencies: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Seconds by row and worker."""
    ready_s: dict[str, float] = field(default_factory=dict)
    memory_mb: dict[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls) -> "ConnectResults":
        if not RESULTS.exists():
            return cls()
        stored = json.loads(RESULTS.read_text())
        stored["rounds"] = {
            row: {side: [Cost(**each) for each in costs] for side, costs in sides.items()}
            for row, sides in stored["rounds"].items()
        }
        return cls(**stored)

    def was_busy(self, row: str) -> bool:
        return self.busy_cores[row] > BUSY_CORES

    def write(self) -> None:
        RESULTS.write_text(json.dumps(asdict(self), indent=1) + "\n")
        report.write_markdown()


def ratio(rounds: dict[str, list[Cost]], figure: Callable[[Cost], float]) -> float:
    """Ours divided by theirs: the median over the rounds."""
    pairs = zip(rounds["headrace"], rounds["kafka"], strict=True)
    return statistics.median(figure(ours) / figure(theirs) for ours, theirs in pairs)


def table(results: ConnectResults) -> list[str]:
    lines = [
        "| connector | Kafka Connect, rows/s | Headrace | ratio | goal | rows/CPU s | | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        if (rounds := results.rounds.get(row.name)) is None:
            continue
        lines.append(_line(row, rounds, results.was_busy(row.name)))
    if results.latencies:
        lines += ["", "| seconds | Kafka Connect, p50 | p95 | Headrace, p50 | p95 | goal, p50 |"]
        lines.append("|---|---|---|---|---|---|")
    for limit in LATENCIES:
        if (found := results.latencies.get(limit.name)) is not None:
            lines.append(_latency_line(limit, found, results.was_busy(limit.name)))
    if results.memory_mb:
        theirs, ours = (results.memory_mb[name] for name in NAMES)
        lines += ["", f"Memory with {MANY} file sources: {theirs:,.0f} MB and {ours:,.0f} MB, "]
        lines[-1] += f"ratio {ours / theirs:.2f} (goal: at most 3)."
    if results.ready_s:
        theirs, ours = (results.ready_s[name] for name in NAMES)
        lines += ["", f"The REST interface answers after {theirs:.2f} s and {ours:.2f} s."]
    return lines


def _line(row: ConnectRow, rounds: dict[str, list[Cost]], busy: bool) -> str:
    by_clock = ratio(rounds, lambda each: each.rows_per_s)
    by_cpu = ratio(rounds, lambda each: each.rows_per_cpu_s)
    verdict = "" if busy else ", holds" if by_clock >= row.goal else ", **missed**"
    cells = [f"{row.title}, {rounds['headrace'][0].rows:,} rows, {len(rounds['headrace'])} rounds"]
    cells += [_median([each.rows_per_s for each in rounds[name]]) for name in NAMES]
    cells += [f"**{by_clock:.2f}**", f"≥ {row.goal:g}{verdict}"]
    cells += [_median([each.rows_per_cpu_s for each in rounds[name]]) for name in NAMES]
    return "| " + " | ".join([*cells, f"{by_cpu:.2f}"]) + " |"


def _latency_line(row: LatencyRow, found: dict[str, list[float]], busy: bool) -> str:
    median = statistics.median(found["headrace"])
    verdict = "" if busy else ", holds" if median <= row.most_s else ", **missed**"
    cells = [row.title]
    for name in NAMES:
        ordered = sorted(found[name])
        cells += [f"{statistics.median(ordered):.2f}", f"{ordered[int(len(ordered) * 0.95)]:.2f}"]
    return "| " + " | ".join([*cells, f"≤ {row.most_s:g}{verdict}"]) + " |"


def _median(values: Sequence[float]) -> str:
    return report.number(statistics.median(values))


def markdown() -> list[str]:
    """The section of RESULTS.md."""
    lines = [
        "",
        "## Connectors",
        "",
        f"`headrace connect` beside Kafka Connect {kafka_version()} with Debezium's connectors:",
        "the same configurations on one broker, warm, in turns. CPU time is that of the worker",
        "with all its processes. Repeat with `python -m benchmarks.connect --write`.",
    ]
    results = ConnectResults.load()
    if not results.rounds:
        return [*lines, "Not measured yet."]
    busy = f"A row has no verdict if more than {BUSY_CORES} cores were busy before its run."
    return [*lines, busy, "", *table(results)]


def measure(options: argparse.Namespace) -> ConnectResults:
    results = ConnectResults.load() if options.only else ConnectResults()
    busy = busy_cores()
    if postgresql_programs() is None:
        raise SystemExit("PostgreSQL is missing: make tools")
    folder = WORK / "connect"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        broker = stack.enter_context(fresh_broker("headrace", "connect"))
        broker.start()
        server = stack.enter_context(PostgresqlServer())
        bench = Bench(f"127.0.0.1:{broker.port}", folder, server, options.scale)
        workers = [Worker(name, bench.bootstrap, folder / name) for name in NAMES]
        for worker in workers:
            stack.callback(worker.stop)
            results.ready_s[worker.name] = worker.ready_s
        for row in ROWS:
            if options.only and row.name not in options.only:
                continue
            rounds: dict[str, list[Cost]] = {name: [] for name in NAMES}
            for number in range(options.rounds + 1):
                for worker in workers if number % 2 else workers[::-1]:
                    done = row.measure(bench, worker)
                    print(row.name, worker.name, f"{done.rows_per_s:,.0f} rows/s", flush=True)
                    if number:
                        rounds[worker.name].append(done)
            results.rounds[row.name] = rounds
            results.busy_cores[row.name] = busy
        for limit in LATENCIES:
            if options.only and limit.name not in options.only:
                continue
            results.latencies[limit.name] = {
                worker.name: limit.measure(bench, worker) for worker in workers
            }
            results.busy_cores[limit.name] = busy
            print(limit.name, results.latencies[limit.name], flush=True)
        if not options.only or MEMORY in options.only:
            for worker in workers:
                results.memory_mb[worker.name] = memory_of_many(bench, worker)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.connect", description=__doc__)
    names = [*(row.name for row in (*ROWS, *LATENCIES)), MEMORY]
    parser.add_argument("--only", action="append", choices=names, help="only this row; repeatable")
    parser.add_argument("--rounds", type=int, default=5, help="how often the workers take turns")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual rows")
    parser.add_argument("--write", action="store_true", help="write results.json and RESULTS.md")
    options = parser.parse_args()
    results = measure(options)
    print(*table(results), sep="\n")
    if options.write:
        results.write()


if __name__ == "__main__":
    main()
