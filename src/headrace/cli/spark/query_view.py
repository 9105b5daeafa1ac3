"""Streaming queries as `headrace spark queries` shows them: a table, live or not, or JSON."""

import json
import sys
import time
from typing import TYPE_CHECKING

from headrace.cli import client, output
from headrace.client.topics import describe_topics
from headrace.pipelines.running.progress import Query, QueryState
from headrace.pipelines.running.progress_topic import TOPIC, QueryWatcher

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.cli.client import ClusterOptions

READ_TIMEOUT_S = 10.0
REDRAW_S = 0.5
STYLES = {QueryState.RUNNING: "green", QueryState.FAILED: "bold red", QueryState.STOPPED: "dim"}


def show(cluster: "ClusterOptions", *, watch: bool, everything: bool, as_json: bool) -> None:
    """Show the queries; with `watch` show updates, too."""
    with client.admin(cluster) as connected:
        exists = bool(describe_topics(connected, [TOPIC]))
    if not exists and not watch:
        _print([], as_json)
        return
    # librdkafka waits for a topic that does not exist yet.
    reader = client.consumer(cluster, {"topic.metadata.refresh.interval.ms": 1000})
    try:
        watcher = QueryWatcher(reader)
        if exists and not watcher.catch_up(READ_TIMEOUT_S):
            raise client.unreachable(cluster, f"{TOPIC} could not be read to its end")
        if not watch:
            _print(chosen(watcher, everything), as_json)
        elif as_json:
            _follow_lines(watcher, everything)
        else:
            _follow(watcher, everything)
    finally:
        reader.close()


def chosen(watcher: QueryWatcher, everything: bool) -> list[Query]:
    """The queries to show: running ones first, sorted by name."""
    found = [each for each in watcher.queries.values() if everything or each.state.alive]
    return sorted(found, key=lambda each: (not each.state.alive, each.application, each.title))


def _print(queries: list[Query], as_json: bool) -> None:
    if as_json:
        output.print_json([each.as_json() for each in queries])
    elif queries:
        output.console().print(drawn(queries, _now_ms()))
    else:
        output.note("No streaming queries are running. `headrace spark run APP.PY` starts some.")


def _follow_lines(watcher: QueryWatcher, everything: bool) -> None:
    told: dict[str, Query] = {}
    while True:
        for query in chosen(watcher, everything=True):
            ended_now = query.id in told and told[query.id].state.alive
            if told.get(query.id) != query and (everything or query.state.alive or ended_now):
                print(json.dumps(query.as_json(), ensure_ascii=False), flush=True)
            told[query.id] = query
        watcher.advance(REDRAW_S)


def _follow(watcher: QueryWatcher, everything: bool) -> None:
    from rich.live import Live

    console = output.console()
    if not sys.stdout.isatty():
        while True:
            console.print(drawn(chosen(watcher, everything), _now_ms()))
            console.file.flush()
            watcher.advance(2.0)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(drawn(chosen(watcher, everything), _now_ms()), refresh=True)
            watcher.advance(REDRAW_S)


def drawn(queries: list[Query], now_ms: int) -> "RenderableType":
    """The table of queries."""
    from rich.markup import escape

    rows = []
    for each in queries:
        style = STYLES.get(each.state, "")
        state = f"[{style}]{each.state}[/]" if style else str(each.state)
        rows.append(
            (
                escape(each.title),
                escape(each.application),
                state if each.error is None else f"{state} {escape(each.error)}",
                output.number(each.input_rows_per_s),
                output.number(each.processed_rows_per_s),
                output.number(each.lag_records),
                output.number(each.batch),
                output.number(each.batch_ms),
                output.number(each.state_rows),
                output.size(each.state_bytes),
                ago(now_ms - each.time_ms),
                escape(f"{each.restarts}: {each.restart_reason}") if each.restarts else "-",
            )
        )
    columns = (
        "Query", "Program", "State", "In/s", "Done/s", "Lag", "Batch", "ms",
        "Keys", "Size", "Seen", "Restarts",
    )  # fmt: skip
    return output.table(columns, rows, numbers=columns[3:-1])


def ago(ms: int) -> str:
    """A duration before now, in the largest unit that fits."""
    seconds = max(ms, 0) // 1000
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
