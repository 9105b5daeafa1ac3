"""The queries of one driver: start, stop, and what is true of each."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from headrace.pipelines.host.obstacles import SLOW_S, Obstacles
from headrace.pipelines.host.retries import FailureKind

STARTS_AT_ONCE = 2
"""Spark waits only ten seconds for a Python process, so that many starts at once would fail."""
LOOK_S = 0.25

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HostedQuery:
    """A query in this driver."""

    name: str
    state: str = "starting"
    """starting, running or ended."""
    query: Any = None
    start_ended: threading.Event = field(default_factory=threading.Event)
    """The query runs, or could not be started."""
    sentence: str | None = None
    trace: str | None = None
    kind: FailureKind = FailureKind.UNKNOWN
    epoch_at: float = field(default_factory=time.monotonic)
    """When an epoch ended, or nothing was waiting."""
    batch: int = -1
    busy: bool = True
    """Whether it starts, an epoch runs or one is due."""
    when_stopped: Callable[[], None] | None = None

    @property
    def is_slow(self) -> bool:
        """Whether it is at work, and no epoch has ended for a while."""
        return self.state == "running" and self.busy and time.monotonic() - self.epoch_at > SLOW_S

    def report(self) -> dict[str, object]:
        return {
            "state": self.state,
            "sentence": self.sentence,
            "trace": self.trace,
            "kind": self.kind,
            "busy": self.busy,
            "quiet_s": round(time.monotonic() - self.epoch_at, 3),
        }

    def finished_epoch(self) -> dict[str, Any] | None:
        """The progress of an epoch that has ended since the last call."""
        last: dict[str, Any] | None = self.query.lastProgress
        status = self.query.status
        self.busy = status["isTriggerActive"] or status["isDataAvailable"]
        if last is not None and last["batchId"] != self.batch:
            self.batch = last["batchId"]
            self.epoch_at = time.monotonic()
            return last
        if not self.busy:
            self.epoch_at = time.monotonic()
        return None


class ExplainedError(Protocol):
    """Why a query ended."""

    @property
    def sentence(self) -> str: ...

    @property
    def trace(self) -> str: ...

    @property
    def kind(self) -> FailureKind: ...


Hosted = TypeVar("Hosted", bound=HostedQuery)


class HostedQueries(Generic[Hosted]):
    """All queries of a Spark session.

    `begin` starts the streaming query of a hosted one; `take` is called with the progress of each
    epoch; `failure_of` explains an error; `obstacles` finds out why a query is slow.
    """

    def __init__(
        self,
        begin: Callable[[Hosted], Any],
        take: Callable[[Hosted, dict[str, Any]], None],
        failure_of: Callable[[BaseException], ExplainedError],
        obstacles: Obstacles | None = None,
    ) -> None:
        self._obstacles = obstacles
        self._begin = begin
        self._take = take
        self._failure_of = failure_of
        self._queries: dict[str, Hosted] = {}
        self._lock = threading.Lock()
        self._starters = ThreadPoolExecutor(STARTS_AT_ONCE, "start")
        self.looked_at = time.monotonic()
        threading.Thread(target=self._look_for_ever, daemon=True, name="look").start()

    def start(self, hosted: Hosted) -> None:
        """Begin to start a query; none with its name must run."""
        with self._lock:
            self._queries[hosted.name] = hosted
        self._starters.submit(self._start, hosted)

    def stop(self, name: str) -> None:
        """End a query; returns when it writes nothing more."""
        with self._lock:
            hosted = self._queries.pop(name, None)
        if hosted is None:
            return
        # A query that is being started writes as soon as it runs.
        hosted.start_ended.wait()
        if hosted.query is not None:
            hosted.query.stop()
            if hosted.when_stopped is not None:
                hosted.when_stopped()

    def stop_all(self) -> None:
        """End all queries at the same time."""
        with self._lock:
            names = list(self._queries)
        with ThreadPoolExecutor(max(1, len(names)), "stop") as pool:
            list(pool.map(self.stop, names))

    def report(self) -> dict[str, object]:
        with self._lock:
            return {
                name: {**hosted.report(), "problem": self._problem(hosted)}
                for name, hosted in self._queries.items()
            }

    def _problem(self, hosted: Hosted) -> str | None:
        """What keeps a slow query from its work, as far as it is known."""
        found = self._obstacles and self._obstacles.problem
        return found if found and hosted.is_slow else None

    # ----------------------------------------------------------------------------------- starts

    def _start(self, hosted: Hosted) -> None:
        try:
            if self._is_wanted(hosted):
                self._run(hosted)
        finally:
            hosted.start_ended.set()

    def _run(self, hosted: Hosted) -> None:
        try:
            query = self._begin(hosted)
        except BaseException as error:
            log.warning("%s did not start", hosted.name, exc_info=True)
            self._end(hosted, error)
            return
        with self._lock:
            hosted.query = query
            hosted.state = "running"
            hosted.epoch_at = time.monotonic()
            wanted = self._queries.get(hosted.name) is hosted
        if not wanted:
            query.stop()

    def _is_wanted(self, hosted: Hosted) -> bool:
        with self._lock:
            return self._queries.get(hosted.name) is hosted

    # ------------------------------------------------------------------------------------ truth

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(LOOK_S)
            with self._lock:
                running = [each for each in self._queries.values() if each.state == "running"]
            for hosted in running:
                try:
                    self._look(hosted)
                except Exception:
                    log.warning("cannot look at query %s", hosted.name, exc_info=True)
            self.looked_at = time.monotonic()
            if self._obstacles is not None:
                self._obstacles.looked(any(each.is_slow for each in running))

    def _look(self, hosted: Hosted) -> None:
        query = hosted.query
        if not query.isActive:
            self._end(hosted, query.exception())
            return
        last = hosted.finished_epoch()
        if last is not None:
            self._take(hosted, last)

    def _end(self, hosted: Hosted, error: BaseException | None) -> None:
        with self._lock:
            hosted.state = "ended"
            if error is not None:
                failure = self._failure_of(error)
                hosted.sentence, hosted.trace = failure.sentence, failure.trace
                hosted.kind = failure.kind
