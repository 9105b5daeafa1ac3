"""python -m benchmarks.registry: our registry and Apicurio in turns, on one broker."""

import argparse
import itertools
import json
import platform
import statistics
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from benchmarks.processes import busy_cores, machine, resident_mb
from benchmarks.registry import contenders, load
from benchmarks.registry.contenders import APICURIO, Contender
from tests.support.headrace_broker import HeadraceBroker

HERE = Path(__file__).resolve().parent
SCHEMAS = 200
QUIET_CORES = 0.2
BUSY = (
    "",
    "Other work ran beside it: ratios near 1 say nothing, and absolute figures are too low.",
)


def schema(number: int, fields: int = 10) -> str:
    """A record of the usual size; every second field may be missing."""
    columns = [
        {"name": f"field_{n}", "type": "string" if n % 2 else ["null", "long"], "default": None}
        for n in range(fields)
    ]
    for column in columns[1::2]:
        column["default"] = ""
    return json.dumps(
        {"type": "record", "name": f"Order{number}", "namespace": "shop", "fields": columns}
    )


def body(text: str) -> bytes:
    return json.dumps({"schema": text}).encode()


def registrations(side: Contender, counter: "itertools.count[int]") -> Iterator[bytes]:
    """New schemas, each under a subject of its own."""
    for number in counter:
        path = f"{side.prefix}/subjects/new-{number}/versions"
        yield load.request("POST", path, body(schema(number)))


def known_registrations(side: Contender) -> Iterator[bytes]:
    """What producers do at every start: register what is registered already."""
    for number in itertools.cycle(range(SCHEMAS)):
        path = f"{side.prefix}/subjects/known-{number}/versions"
        yield load.request("POST", path, body(schema(number)))


def lookups(side: Contender, ids: list[int]) -> Iterator[bytes]:
    for schema_id in itertools.cycle(ids):
        yield load.request("GET", f"{side.prefix}/schemas/ids/{schema_id}")


def checks(side: Contender, counter: "itertools.count[int]") -> Iterator[bytes]:
    """A new schema each time, which adds a field with a default: compatible."""
    for number in counter:
        text = schema(number % SCHEMAS, 11).replace("field_10", f"extra_{number}")
        subject = f"known-{number % SCHEMAS}"
        path = f"{side.prefix}/compatibility/subjects/{subject}/versions/latest"
        yield load.request("POST", path, body(text))


@dataclass(slots=True)
class Figures:
    """All rounds of one registry."""

    start_s: list[float] = field(default_factory=list)
    idle_mb: float = 0.0
    loaded_mb: float = 0.0
    rates: dict[str, list[load.Rate]] = field(default_factory=dict)


def ask(side: Contender, method: str, path: str, content: bytes) -> dict[str, object]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{side.port}{side.prefix}{path}", data=content, method=method
    )
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, object] = json.loads(answer.read())
        return found


def prepare(side: Contender) -> list[int]:
    ask(side, "PUT", "/config", b'{"compatibility":"BACKWARD"}')
    made = [
        ask(side, "POST", f"/subjects/known-{number}/versions", body(schema(number)))
        for number in range(SCHEMAS)
    ]
    return [int(str(each["id"])) for each in made]


def work(
    side: Contender, ids: list[int], counter: "itertools.count[int]"
) -> dict[str, Iterator[bytes]]:
    return {
        "registration of a new schema": registrations(side, counter),
        "registration of a known schema": known_registrations(side),
        "lookup by id": lookups(side, ids),
        "compatibility check": checks(side, counter),
    }


def compare(seconds: float, rounds: int, warm_seconds: float) -> dict[str, Figures]:
    """Both in turns, warm; starts and memory besides."""
    figures: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        folder = Path(name)
        with HeadraceBroker(folder / "broker") as broker:
            sides = [contenders.headrace(broker.bootstrap), contenders.apicurio(broker.bootstrap)]
            jobs: dict[str, dict[str, Iterator[bytes]]] = {}
            try:
                for side in sides:
                    figures[side.name] = Figures()
                    for again in range(2):
                        started = side.start(folder / f"{side.name}.log")
                        figures[side.name].start_s.append(started)
                        if not again:
                            side.stop()
                    figures[side.name].idle_mb = resident_mb(side.pid)
                    jobs[side.name] = work(side, prepare(side), itertools.count(1000))
                for side in sides:
                    for requests in jobs[side.name].values():
                        load.run(side.port, requests, warm_seconds)
                for _ in range(rounds):
                    for what in jobs[sides[0].name]:
                        for side in sides:
                            rate = load.run(side.port, jobs[side.name][what], seconds)
                            figures[side.name].rates.setdefault(what, []).append(rate)
                for side in sides:
                    figures[side.name].loaded_mb = resident_mb(side.pid)
            finally:
                for side in sides:
                    side.stop()
    return figures


def table(figures: dict[str, Figures]) -> list[str]:
    """The rows of RESULTS.md."""
    ours, theirs = figures["Headrace"], figures["Apicurio"]

    def median(rates: list[load.Rate], what: str) -> float:
        return statistics.median(getattr(each, what) for each in rates)

    lines = [
        "| what | unit | Apicurio | Headrace | ratio |",
        "|---|---|---|---|---|",
    ]
    for name in ours.rates:
        for what, unit in (("per_second", "req/s"), ("p99_ms", "ms, p99")):
            a, b = median(theirs.rates[name], what), median(ours.rates[name], what)
            lines.append(f"| {name} | {unit} | {a:,.1f} | {b:,.1f} | **{b / a:.2f}** |")
    for name, unit, a, b in (
        ("start to first answer", "s", min(theirs.start_s), min(ours.start_s)),
        ("memory, idle", "MB", theirs.idle_mb, ours.idle_mb),
        ("memory after the load", "MB", theirs.loaded_mb, ours.loaded_mb),
    ):
        lines.append(f"| {name} | {unit} | {a:,.2f} | {b:,.2f} | **{b / a:.2f}** |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registry", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="one measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often they take turns")
    parser.add_argument("--warm-seconds", type=float, default=6.0, help="of each kind, before")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md")
    options = parser.parse_args()
    contenders.fetch_apicurio()
    busy = busy_cores()
    figures = compare(options.seconds, options.rounds, options.warm_seconds)
    lines = table(figures)
    print("\n".join(lines))
    if options.write:
        text = [
            "# The schema registry beside Apicurio Registry",
            "",
            (
                f"`python -m benchmarks.registry --write`, {date.today()}, {machine()}, "
                f"Python {platform.python_version()}, Apicurio {APICURIO} with KafkaSQL storage. "
                f"{busy:.1f} cores were busy before the run."
            ),
            "",
            (
                f"Both keep their data in topics of the same Headrace broker. {load.CONNECTIONS} "
                f"connections, one request under way on each; medians of {options.rounds} rounds "
                f"of {options.seconds:.0f} s in turns, after {options.warm_seconds:.0f} s each. "
                "Avro records of 10 fields. For milliseconds, seconds and megabytes less is better."
            ),
            "",
            *lines,
            *(BUSY if busy > QUIET_CORES else ()),
            "",
        ]
        (HERE / "RESULTS.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
