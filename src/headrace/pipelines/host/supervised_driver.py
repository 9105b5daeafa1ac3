"""Keeps a driver and its queries running: one process after the other.

It looks at the queries, starts those that are due, and starts a new process if the present one ends
or hangs. It imports no PySpark.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from headrace.pipelines.host.driver_process import DriverGone, DriverProcess
from headrace.pipelines.host.retries import HEALTHY_S, FailureKind, WantedQuery, back_off

LOOK_S = 0.5
RESPONDS_WITHIN_S = 2.0
HUNG_AFTER_S = 60.0
"""A driver that has not responded for this long is killed."""
STOPS_WITHIN_S = 60.0

log = logging.getLogger(__name__)


class SupervisedDriver:
    """The queries of one driver; `kind` is their name in log messages."""

    def __init__(
        self,
        kind: str,
        start: Callable[[], Awaitable[DriverProcess]],
        wanted: Callable[[], Iterable[WantedQuery]],
    ) -> None:
        self._kind = kind
        self._start_process = start
        self._wanted = wanted
        self._process: DriverProcess | None = None
        self._report: dict[str, Any] = {}
        self._reported_at = self._looked_at = -RESPONDS_WITHIN_S
        """When the driver has reported, and when it was last asked: it may not have responded."""
        self._problem: str | None = None
        self._started = asyncio.Event()
        """Set when the first process has been started."""
        self._woken = asyncio.Event()
        self._looking = asyncio.Lock()
        self._starts: dict[str, asyncio.Task[None]] = {}
        """By name: queries that are being started. A slow one does not delay the others."""
        self._task = asyncio.create_task(self._supervise())

    # What subclasses add.

    def _process_began(self) -> None:
        """A new process has been started."""

    def _process_ended(self, status: int | None) -> None:
        """The present process has ended with this exit status; None: it hung, and was killed."""

    def _reported(self, report: Mapping[str, Any]) -> None:
        """The driver has reported its queries."""

    async def _start_more(self) -> None:
        """Called after the queries that are due were started."""

    # ---------------------------------------------------------------------------------- requests

    def wake(self) -> None:
        """Look for queries that are due."""
        self._woken.set()

    async def close(self) -> None:
        tasks = [self._task, *self._starts.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._process is not None:
            await self._process.close()
            self._process = None

    async def stop_query(self, name: str) -> None:
        """Ends the query; if the driver cannot, ends the driver."""
        process = self._process
        if process is None or process.status is not None:
            return
        try:
            await process.ask({"do": "stop", "name": name}, STOPS_WITHIN_S)
        except DriverGone as error:
            log.warning(
                "%s %s was not stopped in time (%s); its driver is ended", self._kind, name, error
            )
            await process.end()

    async def ask(self, message: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        """The response of the present process, or of the first; DriverGone if there is none."""
        await self._started.wait()
        assert self._process is not None, "a process has been started"
        return await self._process.ask(message, timeout_s)

    async def look(self) -> tuple[dict[str, Any], str | None]:
        """What the driver reports, at most a second old, or the problem that it does not."""
        now = asyncio.get_running_loop().time()
        if now - self._reported_at > 2 * LOOK_S:
            await self._look()
        return self._report, self._problem

    # ------------------------------------------------------------------------------- supervision

    async def _supervise(self) -> None:
        deaths = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._problem = None
            self._process = await self._start_process()
            self._started.set()
            log.info("a Spark driver starts", extra={"fields": {"pid": self._process.pid}})
            for each in self._wanted():
                each.sent = False
            self._process_began()
            await self._run(self._process)
            status = self._process.status
            await self._process.end()
            self._process_ended(status)
            deaths = 1 if loop.time() - began > HEALTHY_S else deaths + 1
            self._problem = f"the Spark driver ended with status {status} and is started again"
            self._report = {}
            log.warning(self._problem)
            for each in self._wanted():
                each.restarts += 1
                each.sentence, each.trace = self._problem, None
            await asyncio.sleep(back_off(deaths))

    async def _run(self, process: DriverProcess) -> None:
        """Keeps the queries running until the driver ends or hangs."""
        loop = asyncio.get_running_loop()
        responded = loop.time()
        while process.status is None:
            self._woken.clear()
            if await self._look():
                # The driver may respond although its Java does not.
                responded = loop.time() - self._report.get("age", 0.0)
                await self._start_due(process)
            if loop.time() - responded > HUNG_AFTER_S:
                log.error("the Spark driver has not responded for %d s; it is killed", HUNG_AFTER_S)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), LOOK_S)

    async def _look(self) -> bool:
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with self._looking:
            if self._looked_at > asked_at and self._problem is not None:
                return False  # another task has waited for the response meanwhile
            process = self._process
            if process is None:
                return False
            try:
                self._report = await process.ask({"do": "look"}, RESPONDS_WITHIN_S)
            except DriverGone as error:
                self._problem = str(error)
                return False
            finally:
                self._looked_at = loop.time()
            self._problem = None
            self._reported_at = self._looked_at
            self._take(self._report["queries"])
            self._reported(self._report)
            return True

    def _take(self, queries: Mapping[str, Any]) -> None:
        """Notice queries that have ended."""
        now = asyncio.get_running_loop().time()
        for each in self._wanted():
            query = queries.get(each.name)
            if query is None or not each.sent:
                continue
            if query["state"] == "running":
                each.ran = True
                each.sentence = each.trace = None
            elif query["state"] == "ended":
                sentence = query["sentence"] or "the query has ended"
                each.fail(sentence, query["trace"], FailureKind(query["kind"]), now)
                log.warning(
                    "%s %s failed: %s",
                    self._kind,
                    each.name,
                    sentence,
                    extra={"fields": {self._kind: each.name, "permanent": each.permanent}},
                )

    async def _start_due(self, process: DriverProcess) -> None:
        now = asyncio.get_running_loop().time()
        for each in list(self._wanted()):
            if each.sent or (each.next_try is not None and each.next_try > now):
                continue
            if each.name not in self._starts:
                self._starts[each.name] = asyncio.create_task(self._start(process, each))
        await self._start_more()

    async def _start(self, process: DriverProcess, query: WantedQuery) -> None:
        """Start a query; what is left of the one before it is ended first, which may take long."""
        try:
            await process.ask({"do": "stop", "name": query.name}, STOPS_WITHIN_S)
            if not any(each is query for each in self._wanted()):
                return  # stopped meanwhile
            if query.next_try is not None:
                query.restarts += 1
            await process.ask({"do": "start", **query.start_message}, RESPONDS_WITHIN_S)
        except DriverGone:
            return
        finally:
            del self._starts[query.name]
        if process is self._process:
            query.sent, query.next_try = True, None
            # What the driver reported before is about the query that has ended.
            self._reported_at = -RESPONDS_WITHIN_S
