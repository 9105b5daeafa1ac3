"""Looks at all consumer groups again and again: lag over time, and metrics for Prometheus.

The cluster is asked in the background, never during a scrape or by a page: any number of viewers
costs it the same.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

from headrace.admin.commit_history import past_lag
from headrace.admin.exporter import collect, render
from headrace.admin.group_view import GroupView, describe, list_groups, view_groups
from headrace.admin.lag import GroupStatus, LagHistory, LagPoint
from headrace.admin.record_times import RecordTimes
from headrace.client.cluster import Cluster
from headrace.console.cluster_threads import ClusterThreads
from headrace.service.errors import HttpError

INTERVAL_S = 5.0
LARGEST_SHARE = 0.1
"""Of the time that an observation may take; a large cluster is observed less often."""

_log = logging.getLogger("headrace.console")


class Observer:
    """The groups as they were last seen, and their history in memory."""

    def __init__(self, cluster: ClusterThreads, *, exports: bool, by_partition: bool) -> None:
        self._cluster = cluster
        self._exports = exports
        self._by_partition = by_partition
        self._times = RecordTimes()
        self._history = LagHistory()
        self._task: asyncio.Task[None] | None = None
        self._first = asyncio.Event()
        self.views: dict[str, GroupView] = {}
        self.observed_ms = 0
        self.problem = ""
        """Why groups are missing, or are shown as they were earlier; empty if all are known."""
        self.metrics_page = ""
        """Prometheus text with kafka_exporter's names."""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def groups(self) -> Sequence[GroupView]:
        """All groups; raises HttpError if they have never been seen."""
        await self._first.wait()
        if not self.observed_ms:
            raise HttpError(503, self.problem)
        return list(self.views.values())

    @property
    def gap(self) -> str:
        """Why the groups are not known, or not all of them; empty if they are."""
        if not self.observed_ms and not self.problem:
            return "the groups have not been observed yet"
        return self.problem

    def status(self, view: GroupView) -> GroupStatus:
        """What the group does, by Burrow's rules."""
        return self._history.status(view, self.observed_ms)

    def points(self, group: str) -> list[LagPoint]:
        """The lag of a group over time."""
        return self._history.group_points(group)

    async def look_again(self) -> None:
        """Observes now: something was changed."""
        await self._observe()

    async def _read_past(self) -> None:
        """The lag before the console started, from the commits that the cluster still has."""
        try:
            found = await self._cluster.run(past_lag, time.time_ns() // 1_000_000)
        except HttpError as error:
            _log.info("the lag of the past is not shown: %s", error.message)
        else:
            self._history.add_past(found)

    async def _run(self) -> None:
        past_was_read = False
        while True:
            started = time.monotonic()
            try:
                await self._observe()
            except HttpError as error:
                self._failed(error.message)
            except Exception:
                _log.exception("observing the consumer groups failed")
                self.problem = "Observing the consumer groups failed; see the console's log"
            self._first.set()
            took = time.monotonic() - started
            if self.observed_ms and not past_was_read:
                past_was_read = True
                await self._read_past()
            await asyncio.sleep(max(INTERVAL_S, took / LARGEST_SHARE))

    async def _observe(self) -> None:
        if self._exports:
            snapshot = await self._cluster.run(collect, self._times)
            views: Sequence[GroupView] = snapshot.groups
            problem = snapshot.problem
            self.metrics_page = await asyncio.to_thread(
                render, snapshot, by_partition=self._by_partition
            )
        else:
            views, problem = await self._cluster.run(_view_all, self._times)
        now_ms = time.time_ns() // 1_000_000
        self._history.observe(views, now_ms)
        self.views = {each.description.name: each for each in views}
        self.observed_ms = now_ms
        if problem:
            self._failed(problem)
        else:
            self.problem = ""

    def _failed(self, problem: str) -> None:
        if self.problem != problem:
            _log.warning("not all consumer groups can be observed: %s", problem)
        self.problem = problem


def _view_all(cluster: Cluster, times: RecordTimes) -> tuple[list[GroupView], str]:
    """All groups, and why some may be missing."""
    known, errors = list_groups(cluster)
    groups = [each for each in describe(cluster, known, known).values() if each.exists]
    return view_groups(cluster, groups, times), "; ".join(map(str, errors))
