"""Keeps queries running: starts the driver, looks at its queries, and tries again after failures.

The state of a query is what the driver reports at the moment of asking. It imports no PySpark.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import shutil
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.pipelines.host.driver_process import DriverGone, DriverProcess
from headrace.pipelines.host.retries import FailureKind, WantedQuery
from headrace.pipelines.host.supervised_driver import RESPONDS_WITHIN_S, SupervisedDriver
from headrace.pipelines.running.checkpoints import QueryPosition, read_position
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.hosting import (
    Analysis,
    BatchRows,
    ComparedTopic,
    FunctionSpec,
    HostedState,
    HostUnavailable,
    QueryRefused,
    QuerySpec,
    QueryStatus,
    ResultColumn,
    RowCopy,
    spec_to_json,
)
from headrace.sql.plans import QueryPlan, plan_to_json
from headrace.sql.sources import SqlSource, source_to_json

DRIVER = "headrace.sql.host.driver"
ANSWERS_WITHIN_S = 120.0
"""Spark may still be starting."""
BATCH_WITHIN_S = 300.0
QUIET_S = 60.0
COPIED_WITHIN_S = 3600.0
"""Comparisons and copies read whole topics."""


class SqlHost:
    """All queries of a SQL server."""

    def __init__(self, settings: SqlDriverSettings) -> None:
        self._settings = settings
        self._wanted: dict[str, WantedQuery] = {}
        self._driver_: _SqlDriver | None = None

    def prepare(self) -> None:
        """Start the driver."""
        self._driver()

    def _driver(self) -> "_SqlDriver":
        if self._driver_ is None:
            self._driver_ = _SqlDriver(self._settings, self._wanted)
        return self._driver_

    async def close(self) -> None:
        """End the driver. The queries continue with the next server."""
        self._wanted.clear()
        if self._driver_ is not None:
            await self._driver_.close()
            self._driver_ = None

    # ----------------------------------------------------------------------------------- queries

    async def start(self, spec: QuerySpec) -> None:
        """Runs the query, in place of one with this id; returns before it runs."""
        await self.stop(spec.id)
        self._wanted[spec.id] = WantedQuery(spec.id, {"query": spec_to_json(spec)})
        self._driver().wake()

    async def stop(self, query: str) -> None:
        """When it returns, the query writes nothing more. Its checkpoint stays."""
        if self._wanted.pop(query, None) is not None and self._driver_ is not None:
            await self._driver_.stop_query(query)

    async def delete(self, query: str) -> None:
        """Stops the query, and deletes the checkpoints of all its generations."""
        await self.stop(query)
        folder = self._settings.query_folder(query)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def keep(self, queries: Collection[str]) -> None:
        """Deletes the checkpoints of all other queries."""
        known = {self._settings.query_folder(each) for each in queries}
        await asyncio.to_thread(_remove_others, Path(self._settings.folder), known)

    async def status(self, query: str) -> QueryStatus:
        """The state of a query; UNKNOWN if it was not started."""
        wanted = self._wanted.get(query)
        if wanted is None:
            return QueryStatus(HostedState.UNKNOWN)
        if wanted.next_try is not None:
            state = HostedState.FAILED if wanted.permanent else HostedState.RESTARTING
            wait_s = wanted.next_try - asyncio.get_running_loop().time()
            next_try_at = round((time.time() + wait_s) * 1000)
            return QueryStatus(
                state, wanted.sentence, restarts=wanted.restarts, next_try_at=next_try_at
            )
        report, problem = await self._driver().look()
        return _status(wanted, report.get("queries", {}).get(query), report, problem)

    async def check_replace(self, spec: QuerySpec) -> None:
        """QueryRefused if the query cannot continue with the checkpoint of `spec.generation`."""
        await self._ask({"do": "check replace", "query": spec_to_json(spec)}, ANSWERS_WITHIN_S)

    async def position(self, spec: QuerySpec) -> QueryPosition | None:
        """How far a query is; None if it has not begun an epoch. It need not run."""
        checkpoint = self._settings.checkpoint(spec.id, spec.generation)
        return await asyncio.to_thread(read_position, checkpoint)

    # --------------------------------------------------------------------------------- questions

    async def analyse(
        self, plan: QueryPlan, sources: Sequence[SqlSource], functions: Sequence[FunctionSpec] = ()
    ) -> Analysis:
        """Spark's analysis, nothing is run; QueryRefused, HostUnavailable."""
        message = {"do": "analyse", **_plan_message(plan, sources, functions)}
        found = await self._ask(message, ANSWERS_WITHIN_S)
        return Analysis(_columns(found), found["plan"])

    async def push(
        self,
        plan: QueryPlan,
        sources: Sequence[SqlSource],
        properties: Mapping[str, str],
        functions: Sequence[FunctionSpec] = (),
    ) -> "PushedQuery":
        """Runs the query for a client; QueryRefused, HostUnavailable."""
        message = {
            "do": "push",
            **_plan_message(plan, sources, functions),
            "properties": dict(properties),
        }
        driver = self._driver()
        pushed = driver.new_push()
        try:
            found = await self._ask({**message, "push": pushed.name}, ANSWERS_WITHIN_S)
        except BaseException:
            await pushed.close()
            raise
        pushed.columns = _columns(found)
        return pushed

    async def batch(
        self,
        plan: QueryPlan,
        sources: Sequence[SqlSource],
        functions: Sequence[FunctionSpec] = (),
        limit: int | None = None,
    ) -> BatchRows:
        """Runs the query once over what is in the topics now; QueryRefused, HostUnavailable."""
        message = {"do": "batch", **_plan_message(plan, sources, functions), "limit": limit}
        found = await self._ask(message, BATCH_WITHIN_S)
        return BatchRows(_columns(found), found["rows"])

    async def compare(
        self,
        left: ComparedTopic,
        right: ComparedTopic,
        ignore: Sequence[str] = (),
        tolerance: Mapping[str, float] | None = None,
    ) -> Mapping[str, Any]:
        """The differences between two topics; QueryRefused, HostUnavailable."""
        message = {
            "do": "compare",
            "left": [source_to_json(left.source), dict(left.ends)],
            "right": [source_to_json(right.source), dict(right.ends)],
            "ignore": list(ignore),
            "tolerance": dict(tolerance or {}),
        }
        return await self._ask(message, COPIED_WITHIN_S)

    async def copy(self, copy: RowCopy) -> None:
        """Returns when the rows are written; QueryRefused, HostUnavailable."""
        await self._ask({"do": "copy", "copy": dataclasses.asdict(copy)}, COPIED_WITHIN_S)

    async def _ask(self, message: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        try:
            answer = await self._driver().ask(message, timeout_s)
        except DriverGone as error:
            raise HostUnavailable(f"Spark cannot answer now: {error}") from None
        if "refused" in answer:
            raise QueryRefused(answer["refused"])
        return answer


def _remove_others(folder: Path, known: Collection[Path]) -> None:
    """Folders of queries have one folder for each generation; others are not touched."""
    for each in folder.iterdir() if folder.exists() else ():
        is_query = not each.name.startswith(".")
        if (
            is_query
            and each not in known
            and any(inner.name.isdecimal() for inner in each.glob("*"))
        ):
            shutil.rmtree(each, ignore_errors=True)


def _plan_message(
    plan: QueryPlan, sources: Sequence[SqlSource], functions: Sequence[FunctionSpec]
) -> dict[str, object]:
    return {
        "plan": plan_to_json(plan),
        "sources": [source_to_json(each) for each in sources],
        "functions": [dataclasses.asdict(each) for each in functions],
    }


def _columns(answer: Mapping[str, Any]) -> tuple[ResultColumn, ...]:
    return tuple(ResultColumn(each["name"], each["type"]) for each in answer["columns"])


def _status(
    wanted: WantedQuery,
    query: Mapping[str, Any] | None,
    report: Mapping[str, Any],
    problem: str | None,
) -> QueryStatus:
    again = wanted.ran or wanted.restarts
    not_yet = HostedState.RESTARTING if again else HostedState.STARTING
    if problem is not None or query is None or query["state"] == "starting":
        return QueryStatus(not_yet, problem or wanted.sentence, restarts=wanted.restarts)
    state, error = HostedState.RUNNING, None
    if query["state"] == "ended":
        permanent = query["kind"] == FailureKind.PERMANENT
        state = HostedState.FAILED if permanent else HostedState.RESTARTING
        error = query["sentence"]
    elif report["age"] > RESPONDS_WITHIN_S:
        error = f"Spark has not responded for {report['age']:.0f} s"
    elif query["quiet_s"] > QUIET_S:
        error = f"no epoch has ended for {query['quiet_s']:.0f} s although records wait"
    names = (
        *("rows", "rate", "lag", "watermark", "late_rows", "bad_records"),
        *("state_rows", "state_bytes", "epoch", "epoch_at", "last_row_at"),
    )
    told = {name: query[name] for name in names}
    return QueryStatus(state, error, restarts=wanted.restarts, **told)


class _SqlDriver(SupervisedDriver):
    """The driver of the queries, and of push queries, which end with its process."""

    def __init__(self, settings: SqlDriverSettings, wanted: Mapping[str, WantedQuery]) -> None:
        self._pushes: dict[str, PushedQuery] = {}
        self._numbers = itertools.count(1)
        super().__init__(
            "query",
            lambda: DriverProcess.start(DRIVER, dataclasses.asdict(settings), self._take_event),
            lambda: wanted.values(),
        )

    def new_push(self) -> "PushedQuery":
        """A push query that is not started yet."""
        name = str(next(self._numbers))
        self._pushes[name] = PushedQuery(name, self)
        return self._pushes[name]

    def forget_push(self, name: str) -> None:
        self._pushes.pop(name, None)

    def _take_event(self, event: Mapping[str, Any]) -> None:
        pushed = self._pushes.get(event["push"])
        if pushed is not None:
            pushed.take(event)

    def _process_ended(self, status: int | None) -> None:
        for pushed in list(self._pushes.values()):
            pushed.take({"end": True, "error": "the Spark driver has ended; run the query again"})


class PushedQuery:
    """The rows of a push query, as they arrive."""

    def __init__(self, name: str, driver: _SqlDriver) -> None:
        self.name = name
        self.columns: tuple[ResultColumn, ...] = ()
        self._driver = driver
        self._events: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        """Not more than a few: the driver waits until rows are taken."""
        self._closed = False

    def take(self, event: Mapping[str, Any]) -> None:
        self._events.put_nowait(event)

    async def rows(self) -> AsyncIterator[Sequence[Sequence[object]]]:
        """Batches of rows, until the limit of the plan; QueryRefused if the query fails."""
        while not self._closed:
            event = await self._events.get()
            if "end" in event:
                self._finish()
                if event["error"]:
                    raise QueryRefused(event["error"])
                return
            yield event["rows"]
            await self._tell("more")

    async def close(self) -> None:
        """Ends the query. It may be called several times."""
        if not self._closed:
            self._finish()
            await self._tell("end push")

    def _finish(self) -> None:
        self._closed = True
        self._driver.forget_push(self.name)

    async def _tell(self, what: str) -> None:
        with contextlib.suppress(DriverGone):
            await self._driver.ask({"do": what, "push": self.name}, ANSWERS_WITHIN_S)
