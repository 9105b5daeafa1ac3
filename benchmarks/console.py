"""The budgets of the console: start, memory, a live tail, searches, a long list, a browser.

`python -m benchmarks.console` prints a table and then the same figures as JSON; `--write` puts them
into RESULTS.md. Memory and CPU time are those of the console's process. A search runs in a child
process; its CPU time, with its start, is counted. Figures of a busy machine have no verdict.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import httpx
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import console_browser, report
from benchmarks.console_figure import Figure
from benchmarks.console_metrics import metrics_cost
from benchmarks.processes import BUSY_CORES, TICKS_PER_S, busy_cores, cpu_seconds, resident_mb
from headrace.testing.running import RunningBroker
from tests.support.headrace_console import HeadraceConsole

RESULTS = Path(__file__).with_name("console.json")
STARTS = 5
VIEWERS = 10
TAIL_RATE = 1_000
TAIL_SECONDS = 10.0
SEARCHED_RECORDS = 500_000
LISTED_TOPICS = 1_000
LISTS = 10


def starts(bootstrap: str, folder: Path) -> Iterator[Figure]:
    ready_s: list[float] = []
    memory_mb: list[float] = []
    for _ in range(STARTS):
        begin = time.perf_counter()
        with HeadraceConsole(bootstrap, folder) as console:
            ready_s.append(time.perf_counter() - begin)
            assert console.http.get("/topics").status_code == 200
            time.sleep(2)
            memory_mb.append(resident_mb(console.pid))
    yield Figure("ready after start", statistics.median(ready_s), "s", 0.5)
    yield Figure("resident memory, idle", statistics.median(memory_mb), "MB", 60)


@contextmanager
def viewers(console: HeadraceConsole, topic: str, count: int) -> Iterator[None]:
    """Clients that follow the topic and read what they get."""
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(httpx.Client(base_url=f"{console.url}/api", timeout=60))
            stream = stack.enter_context(client.stream("GET", f"/topics/{topic}/tail"))
            lines = stream.iter_lines()
            while "ready" not in next(lines):
                pass
            threading.Thread(target=_drain, args=(lines,), daemon=True).start()
        yield


def _drain(lines: Iterator[str]) -> None:
    try:
        for _ in lines:
            pass
    except (httpx.HTTPError, httpx.StreamError):
        return  # the measurement has closed the stream


def tails(console: HeadraceConsole, topic: str) -> Iterator[Figure]:
    for count in (1, VIEWERS):
        with viewers(console, topic, count):
            _produce_at_rate(console.bootstrap, topic, 2.0)
            before = cpu_seconds(console.pid)
            begin = time.perf_counter()
            _produce_at_rate(console.bootstrap, topic, TAIL_SECONDS)
            share = (cpu_seconds(console.pid) - before) / (time.perf_counter() - begin)
            memory = resident_mb(console.pid)
        if count == 1:
            yield Figure(
                f"tail of {TAIL_RATE:,} records/s, server", share * 100, "% of a core", 2.5
            )
        else:
            yield Figure(f"resident memory, {VIEWERS} viewers", memory, "MB", 80)


def _produce_at_rate(bootstrap: str, topic: str, seconds: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    begin = time.perf_counter()
    sent = 0
    while (passed := time.perf_counter() - begin) < seconds:
        while sent < passed * TAIL_RATE:
            producer.produce(topic, value=_order(sent))
            sent += 1
        producer.poll(0)
        time.sleep(0.01)
    producer.flush(60)


def _order(number: int) -> str:
    return json.dumps({"order": number, "customer": f"customer {number % 1000}", "text": "x" * 130})


def searches(console: HeadraceConsole, topic: str) -> Iterator[Figure]:
    producer = Producer({"bootstrap.servers": console.bootstrap, "linger.ms": 50})
    for number in range(SEARCHED_RECORDS):
        producer.produce(topic, value=_order(number), partition=number % 2)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(120)
    literal = {"kind": "text", "q": "a text that is nowhere"}
    yield Figure(
        "search, literal", _rate(console, topic, literal), "records/CPU s", 1e6, most=False
    )
    field = {"kind": "expression", "q": "value.order < 0"}
    yield Figure("search, JSON field", _rate(console, topic, field), "records/CPU s", 150e3, False)


def _rate(console: HeadraceConsole, topic: str, query: dict[str, str]) -> float:
    """Records per CPU second of the console and its search process; everything is searched."""
    before = _cpu_with_children(console.pid)
    scanned = 0
    with console.http.stream("GET", f"/topics/{topic}/search", params=query, timeout=600) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                scanned = int(json.loads(line[6:]).get("progress", {}).get("scanned", scanned))
    time.sleep(1)  # until the console has waited for its search process
    spent = _cpu_with_children(console.pid) - before
    assert scanned >= SEARCHED_RECORDS, f"only {scanned} records were searched"
    return scanned / spent


def _cpu_with_children(pid: int) -> float:
    """CPU time of a process and of those of its children that have ended."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in after_name[11:15]) / TICKS_PER_S


def topic_lists(console: HeadraceConsole) -> Iterator[Figure]:
    admin = AdminClient({"bootstrap.servers": console.bootstrap})
    wanted = [NewTopic(f"listed-{number:04}", 1, 1) for number in range(LISTED_TOPICS)]
    for future in admin.create_topics(wanted).values():
        future.result(120)
    took_ms: list[float] = []
    for _ in range(LISTS):
        begin = time.perf_counter()
        topics = console.http.get("/topics").json()["topics"]
        names = [row["name"] for row in topics][:40]
        console.http.post("/topic-numbers", json={"topics": names}).raise_for_status()
        took_ms.append((time.perf_counter() - begin) * 1000)
        assert len(topics) >= LISTED_TOPICS
    title = f"list of {LISTED_TOPICS:,} topics with numbers of 40, server"
    yield Figure(title, statistics.median(took_ms), "ms", 400)


def measured(folder: Path) -> Iterator[Figure]:
    with closing(RunningBroker()) as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics(
            [NewTopic("followed", 2, 1), NewTopic("searched", 2, 1)]
        ).values():
            future.result(60)
        yield from starts(bootstrap, folder)
        for rows, topic in ((tails, "followed"), (searches, "searched")):
            with HeadraceConsole(bootstrap, folder) as console:
                yield from rows(console, topic)
        with HeadraceConsole(bootstrap, folder) as console:
            produce = partial(_produce_at_rate, bootstrap, "followed")
            yield from console_browser.tail_in_browser(console, "followed", TAIL_RATE, produce)
        with HeadraceConsole(bootstrap, folder) as console:
            yield from topic_lists(console)
            yield from console_browser.first_paints(console)
    yield from metrics_cost()


def table(busy: float, figures: Sequence[Figure]) -> list[str]:
    lines = ["| what | measured | budget | |", "|---|---|---|---|"]
    for each in figures:
        verdict = "" if busy > BUSY_CORES else "holds" if each.holds else "**missed**"
        sign = "≤" if each.most else "≥"
        value = f"{each.value:,.0f}" if each.value >= 100 else f"{each.value:.3g}"
        lines.append(
            f"| {each.title} | {value} {each.unit} | {sign} {each.budget:,.7g} | {verdict} |"
        )
    return lines


def markdown() -> list[str]:
    """The section of RESULTS.md."""
    lines = [
        "",
        "## The console",
        "",
        "`headrace console` and its budgets: start, memory, a live tail, searches, a long list and",
        "what Debian's Chromium spends on a tail. The last row is about a broker: what its metrics",
        "cost.",
        "Take the figures on a quiet machine: `python -m benchmarks.console --write`. With more",
        f"than {BUSY_CORES} cores busy, the table has no verdicts. The weight of the pages",
        "is checked in `tests/console/test_weight.py`.",
    ]
    if not RESULTS.exists():
        return [*lines, "Not measured on a quiet machine yet."]
    found = json.loads(RESULTS.read_text())
    figures = [Figure(**each) for each in found["figures"]]
    busy = f"{found['busy_cores']:.2f} cores were busy before."
    return [*lines, busy, "", *table(found["busy_cores"], figures)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write RESULTS.md")
    options = parser.parse_args()
    busy = busy_cores()
    with tempfile.TemporaryDirectory() as folder:
        figures = list(measured(Path(folder)))
    document = json.dumps(
        {"busy_cores": busy, "figures": [asdict(each) for each in figures]}, indent=1
    )
    print(*table(busy, figures), document, sep="\n")
    if options.write:
        RESULTS.write_text(document + "\n")
        report.write_markdown()


if __name__ == "__main__":
    main()
