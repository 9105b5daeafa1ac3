"""Streaming queries as the topic `__headrace_queries` has them, with their figures over time.

One reader for all pages: it starts when a page first asks, replays what the topic still has and
then follows it. Nothing is stored; the history is as long as the topic's open segment and what
came since the console started.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.client.cluster import Cluster
from headrace.client.topics import describe_topics
from headrace.console.cluster_threads import ClusterThreads
from headrace.console.records.reading import PageBudget, read_bounds, read_records
from headrace.pipelines.running.progress import Query
from headrace.pipelines.running.progress_topic import TOPIC, parse_query
from headrace.service.errors import HttpError
from headrace.types import TopicPartition

INTERVAL_S = 1.0
FIRST_ANSWER_S = 5.0
"""How long a page waits for the first records."""
MOST_RECORDS_AT_ONCE = 2_000
MOST_QUERIES = 1_000
MOST_POINTS = 800
SILENT_AFTER_MS = 60_000
"""Spark reports every 10 s that a query waits for data; a batch may take longer than this."""

_log = logging.getLogger("headrace.console")


@dataclass(frozen=True, slots=True)
class QueryPoint:
    """Figures of a query after a batch; unknown ones are None."""

    time_ms: int
    input_rows_per_s: float | None
    processed_rows_per_s: float | None
    lag_records: int | None
    batch_ms: int | None
    state_rows: int
    state_bytes: int


@dataclass(slots=True)
class SeenQuery:
    """A query's last record, and its history."""

    query: Query
    points: list[QueryPoint] = field(default_factory=list)

    def add(self, query: Query) -> None:
        """Takes in a record. A full history is thinned out, so that it keeps its beginning."""
        self.query = query
        if len(self.points) >= MOST_POINTS:
            del self.points[1::2]
        self.points.append(
            QueryPoint(
                query.time_ms,
                query.input_rows_per_s,
                query.processed_rows_per_s,
                query.lag_records,
                query.batch_ms,
                query.state_rows,
                query.state_bytes,
            )
        )


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Records that a turn has read, by key, and where the next one begins."""

    exists: bool
    begin: int = 0
    position: int = 0
    end: int = 0
    records: Sequence[tuple[bytes, bytes | None]] = ()


class QueryProgress:
    """All queries of the cluster. `start` is called by the first page that asks."""

    def __init__(self, cluster: ClusterThreads) -> None:
        self._cluster = cluster
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()
        self.seen: dict[str, SeenQuery] = {}
        self.exists = False
        """Whether the cluster has the topic."""
        self.position = 0
        self.end = 0
        self.problem = ""

    async def queries(self) -> list[SeenQuery]:
        """The queries as far as the topic has been read; raises HttpError if it never was."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._first.wait(), FIRST_ANSWER_S)
        if self.problem and not self.end:
            raise HttpError(503, self.problem)
        return list(self.seen.values())

    async def find(self, name: str) -> SeenQuery | None:
        """The query with this id, or else the latest one with this name."""
        queries = await self.queries()
        found = self.seen.get(name)
        named = (each for each in queries if each.query.title == name)
        return found or max(named, key=lambda each: each.query.time_ms, default=None)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                self._take(await self._cluster.run(read_new, self.position))
                self.problem = ""
            except HttpError as error:
                if self.problem != error.message:
                    _log.warning("topic %s cannot be read: %s", TOPIC, error.message)
                self.problem = error.message
            except Exception:
                _log.exception("reading topic %s failed", TOPIC)
                self.problem = f"Reading topic {TOPIC} failed; see the console's log"
            if self.position >= self.end or self.problem:
                self._first.set()
                await asyncio.sleep(INTERVAL_S)

    def _take(self, read: ReadRecords) -> None:
        if read.end < self.position:
            # The topic was deleted and created again.
            self.seen.clear()
        self.exists = read.exists
        self.position, self.end = read.position, read.end
        for key, value in read.records:
            self._take_record(key.decode(errors="replace"), value)
        if len(self.seen) > MOST_QUERIES:
            oldest = sorted(self.seen.items(), key=lambda each: each[1].query.time_ms)
            for key_text, _ in oldest[: len(self.seen) - MOST_QUERIES]:
                del self.seen[key_text]

    def _take_record(self, key: str, value: bytes | None) -> None:
        if value is None:
            self.seen.pop(key, None)
            return
        query = parse_query(value)
        if query is None or not _is_usable(query):
            _log.debug("ignoring a record of %s with the key %r, which is not a query", TOPIC, key)
        elif key in self.seen:
            self.seen[key].add(query)
        else:
            self.seen[key] = SeenQuery(query)
            self.seen[key].add(query)


def read_new(cluster: Cluster, position: int) -> ReadRecords:
    """The next records of the topic; `position` is where the last turn ended."""
    if not describe_topics(cluster, [TOPIC]):
        return ReadRecords(exists=False)
    bounds = read_bounds(cluster, TOPIC, [0])[0]
    if position > bounds.end:
        return ReadRecords(True, bounds.begin, bounds.begin, bounds.end)
    start = max(position, bounds.begin)
    stop = min(start + MOST_RECORDS_AT_ONCE, bounds.end)
    budget = PageBudget()
    found: list[tuple[bytes, bytes | None]] = []
    last = start
    for record, _ in read_records(cluster, TopicPartition(TOPIC, 0), start, stop, budget):
        last = record.offset + 1
        if record.key is not None:
            found.append((record.key, record.value))
    following = last if budget.exhausted and last > start else stop
    return ReadRecords(True, bounds.begin, following, bounds.end, found)


def _is_usable(query: Query) -> bool:
    """Whether the fields have the types that are calculated with."""
    whole: Iterable[object] = (query.time_ms, query.started_ms, query.state_rows, query.state_bytes)
    rates: Iterable[object] = (
        query.input_rows_per_s,
        query.processed_rows_per_s,
        query.batch_ms,
        *(each.lag_records for each in query.sources),
    )
    return all(isinstance(each, int) for each in whole) and all(
        each is None or isinstance(each, int | float) for each in rates
    )


def trouble(query: Query, now_ms: int) -> str:
    """Why a query needs somebody's attention; empty if it does not."""
    if query.error:
        return query.error
    if not query.state.alive:
        return ""
    quiet_ms = now_ms - query.time_ms
    if quiet_ms > max(SILENT_AFTER_MS, 5 * (query.batch_ms or 0)):
        return (
            f"No report for {quiet_ms // 60_000} min: its program was killed, cannot reach the "
            "cluster, or is in a long batch"
        )
    return ""


def now_ms() -> int:
    return time.time_ns() // 1_000_000
