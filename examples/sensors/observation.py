"""The observed state of a run: results from topics, and the progress of Spark's queries."""

import json
import time
from collections import defaultdict
from types import TracebackType
from typing import Self

import screen
from confluent_kafka import Consumer, TopicPartition
from findings import average
from house_rules import ALERTS, AVERAGES, READINGS
from picture import Average, Flow
from production import Production

from headrace.pipelines.running.progress import Query, QueryState
from headrace.pipelines.running.progress_topic import QueryWatcher

QUERIES = ("averages", "alerts", "table")
PARTITIONS = 2
RATE_OVER_S = 3.0


class Observation:
    """The observations so far; `listen` adds to them."""

    def __init__(self, bootstrap: str, production: Production) -> None:
        self.averages: list[Average] = []
        self.alerts: list[Average] = []
        self.flows: list[Flow] = []
        self._production = production
        self._by_sensor: dict[str, list[Average]] = defaultdict(list)
        # Times and numbers of processed readings, for the current rate.
        self._done: list[tuple[float, int]] = []
        self._began_s = time.monotonic()
        self._began_ms = time.time_ns() // 1_000_000
        self._results = _reader(bootstrap)
        self._results.assign(
            [TopicPartition(t, p, 0) for t in (AVERAGES, ALERTS) for p in range(PARTITIONS)]
        )
        self._progress = _reader(bootstrap)
        self._watcher = QueryWatcher(self._progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._results.close()
        self._progress.close()

    def listen(self, seconds: float) -> None:
        """Process the records that arrive within this time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for message in self._results.consume(500, timeout=0.1):
                if message.error() is None:
                    self._take(message.topic(), message.value())
            self._watcher.advance(0.05)
        now = time.monotonic() - self._began_s
        self._done = [
            *(each for each in self._done if each[0] > now - RATE_OVER_S),
            (now, self.done),
        ]
        (since, before), (_, after) = self._done[0], self._done[-1]
        rate = (after - before) / (now - since) if now > since else 0.0
        self.flows.append(Flow(now, self._production.rate_now(), rate, self.waiting))

    def _take(self, topic: str, value: bytes) -> None:
        row = average(json.loads(value))
        if topic == ALERTS:
            self.alerts.append(row)
            self.alerts.sort(key=lambda each: each.minute)
            return
        self.averages.append(row)
        mine = self._by_sensor[row.sensor]
        mine.append(row)
        mine.sort(key=lambda each: each.minute)

    def query(self, name: str) -> Query | None:
        """A query of this run, if it has reported progress."""
        mine = (
            each
            for each in self._watcher.queries.values()
            if each.name == name and each.started_ms >= self._began_ms
        )
        return max(mine, key=lambda each: each.started_ms, default=None)

    @property
    def done(self) -> int:
        """Readings that Spark has processed."""
        first = self.query("averages")
        return sum(each.positions.get(READINGS, 0) for each in first.sources) if first else 0

    @property
    def waiting(self) -> int:
        """Readings that were produced and not processed yet."""
        return max(self._production.count - self.done, 0)

    @property
    def settled(self) -> bool:
        """Whether Spark has processed all readings and is idle."""
        first = self.query("averages")
        return first is not None and first.state is QueryState.IDLE and not self.waiting

    def view(self, remark: str) -> screen.View:
        """The view for the terminal."""
        return screen.View(
            remark=remark,
            produced=self._production.count,
            produced_per_s=self._production.rate_now(),
            waiting=self.waiting,
            averages=self._by_sensor,
            alerts=self.alerts,
            queries=[each for name in QUERIES if (each := self.query(name)) is not None],
        )


def _reader(bootstrap: str) -> Consumer:
    """A read_committed consumer without a group."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "demo",
            "group.id": "demo",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 0,
        }
    )
