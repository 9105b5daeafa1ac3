"""Keeps connectors running: starts drivers, looks at their queries, and tries again after failures.

The state of a connector is what its driver reports at the moment of asking, never what was written
down earlier.
"""

import asyncio
import contextlib
import dataclasses
import logging
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from headrace.connect.host.settings import DriverSettings
from headrace.connect.hosting import ConnectorPlan, HostedStatus, Progress, RunState
from headrace.connect.letter_orders import LetterOrder, LettersRefused, LetterView
from headrace.pipelines.host.driver_process import JAVA_KILLED, DriverGone, DriverProcess
from headrace.pipelines.host.retries import FailureKind, WantedQuery
from headrace.pipelines.host.supervised_driver import RESPONDS_WITHIN_S, SupervisedDriver

LETTERS_WITHIN_S = 80.0
"""Spark may still be starting, and reads all dead letters that wait."""
GONE = 503
"""The HTTP status if the driver does not respond."""
QUIET_S = 60.0
CULPRIT_S = 600.0
"""A connector with which the shared driver ends twice in this time gets a driver of its own."""
SHARED = ""
DRIVER = "headrace.connect.host.driver"

log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True, kw_only=True)
class _Wanted(WantedQuery):
    """A connector that should run."""

    plan: ConnectorPlan
    has_own_driver: bool
    ended_drivers: list[float] = dataclasses.field(default_factory=list)
    """When the shared driver ended while this connector was at work, by the loop's clock."""

    @classmethod
    def of(cls, plan: ConnectorPlan) -> "_Wanted":
        own = plan.config.get("headrace.driver", "shared") == "own"
        message = {"plan": dataclasses.asdict(plan)}
        return cls(plan.name, message, plan=plan, has_own_driver=own)

    @property
    def driver(self) -> str:
        return self.plan.name if self.has_own_driver else SHARED


@dataclasses.dataclass(slots=True)
class _LetterRun:
    """A run over dead letters, which the next driver continues if this one dies."""

    plan: ConnectorPlan
    order: LetterOrder
    report: dict[str, Any]
    sent: bool = True

    @property
    def runs(self) -> bool:
        return bool(self.report["state"] == "running")


class SparkHost:
    """All connectors of this worker."""

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._wanted: dict[str, _Wanted] = {}
        self._drivers: dict[str, _ConnectDriver] = {}
        self._runs: dict[str, _LetterRun] = {}

    async def start(self, plan: ConnectorPlan) -> None:
        """Run the connector, in place of one with this name; returns before it runs."""
        await self.stop(plan.name)
        wanted = self._wanted[plan.name] = _Wanted.of(plan)
        self._driver(wanted.driver).wake()

    def prepare(self) -> None:
        """Start the driver that connectors share."""
        self._driver(SHARED)

    def _driver(self, kind: str) -> "_ConnectDriver":
        """The driver of a kind; it is started if it does not run."""
        if kind not in self._drivers:
            runs = self._runs if kind == SHARED else {}
            self._drivers[kind] = _ConnectDriver(
                self._settings, self._wanted, kind, runs, self._isolate
            )
        return self._drivers[kind]

    def _isolate(self, wanted: _Wanted) -> None:
        """Give a connector a driver of its own, until it is stopped."""
        wanted.has_own_driver = True
        self._driver(wanted.driver)

    async def stop(self, name: str) -> None:
        """When it returns, the connector writes nothing more."""
        wanted = self._wanted.pop(name, None)
        if wanted is None:
            return
        driver = self._drivers.get(wanted.driver)
        if driver is not None:
            await driver.stop_query(name)
            if wanted.driver != SHARED:
                del self._drivers[wanted.driver]
                await driver.close()

    async def delete(self, name: str) -> None:
        """Stops the connector, and deletes the messages that it has received and not written.

        The external system has them: they are not acknowledged. The checkpoint of a push source is
        deleted as well, as it may name messages that it has planned to read.
        """
        await self.stop(name)
        run = self._runs.pop(name, None)
        if run is not None and run.runs:
            with contextlib.suppress(LettersRefused):
                await self.stop_letters(run.plan)
        self._settings.letter_run(name).unlink(missing_ok=True)
        if self._settings.spool(name).exists():
            await asyncio.to_thread(shutil.rmtree, self._settings.connector_folder(name))

    async def status(self, name: str) -> HostedStatus:
        """The state of a connector that was started; UNASSIGNED while Spark starts."""
        wanted = self._wanted.get(name)
        if wanted is None:
            return HostedStatus(RunState.UNASSIGNED)
        if wanted.next_try is not None:
            state = RunState.FAILED if wanted.permanent else RunState.RESTARTING
            now, loop = time.time(), asyncio.get_running_loop().time()
            progress = Progress(
                restarts=wanted.restarts, next_try_at=round((now + wanted.next_try - loop) * 1000)
            )
            return HostedStatus(state, wanted.error, progress)
        report, problem = await self._drivers[wanted.driver].look()
        return _status(wanted, report.get("queries", {}).get(name), report, problem)

    # ------------------------------------------------------------------------------- dead letters

    async def view_letters(self, plan: ConnectorPlan, view: LetterView) -> dict[str, Any]:
        """The dead letters of a connector that wait."""
        step = {"step": "view", "view": dataclasses.asdict(view)}
        return await self._driver(SHARED).ask_about_letters(plan, step)

    async def run_letters(self, plan: ConnectorPlan, order: LetterOrder) -> dict[str, Any]:
        """Begin a run over dead letters, or only plan it."""
        step = {"step": "run", "order": dataclasses.asdict(order)}
        found = await self._driver(SHARED).ask_about_letters(plan, step)
        if not order.dry_run:
            self._runs[plan.name] = _LetterRun(plan, order, found)
        return found

    async def letter_run(self, name: str) -> dict[str, Any] | None:
        """The newest run over the dead letters of a connector."""
        run = self._runs.get(name)
        if run is None:
            return None
        await self._driver(SHARED).look()
        return run.report

    async def stop_letters(self, plan: ConnectorPlan) -> None:
        """Give up the run. When it returns, it writes nothing more."""
        await self._driver(SHARED).ask_about_letters(plan, {"step": "stop"})

    async def leave_letters(self, name: str) -> None:
        """End the run, so that another worker can continue it."""
        run = self._runs.pop(name, None)
        if run is not None and run.runs:
            with contextlib.suppress(LettersRefused):
                await self._driver(SHARED).ask_about_letters(run.plan, {"step": "leave"})

    async def close(self) -> None:
        """End all drivers."""
        self._wanted.clear()
        self._runs.clear()
        await asyncio.gather(*(driver.close() for driver in self._drivers.values()))
        self._drivers.clear()


def _status(
    wanted: _Wanted,
    query: Mapping[str, Any] | None,
    report: Mapping[str, Any],
    problem: str | None,
) -> HostedStatus:
    not_yet = RunState.RESTARTING if wanted.ran or wanted.restarts else RunState.UNASSIGNED
    if problem is not None:
        return HostedStatus(not_yet, problem, Progress(restarts=wanted.restarts))
    if query is None or query["state"] == "starting":
        return HostedStatus(not_yet, wanted.error, Progress(restarts=wanted.restarts))
    progress = Progress(
        query["records"],
        query["lag"],
        query["last_record_at"],
        wanted.restarts,
        failed_records=query["failed_records"],
    )
    topics = query["topics"]
    if query["state"] == "ended":
        state = RunState.FAILED if query["kind"] == FailureKind.PERMANENT else RunState.RESTARTING
        return HostedStatus(state, query["trace"] or query["sentence"], progress, topics=topics)
    if report["age"] > RESPONDS_WITHIN_S:
        problem = f"Spark has not responded for {report['age']:.0f} s"
    elif query["problem"] is not None:
        problem = query["problem"]
    elif query["quiet_s"] > max(3 * query["interval_ms"] / 1000, QUIET_S):
        problem = f"no epoch has ended for {query['quiet_s']:.0f} s although records wait"
    if problem is not None:
        return HostedStatus(RunState.RESTARTING, problem, progress, topics=topics)
    return HostedStatus(RunState.RUNNING, None, progress, topics=topics)


class _ConnectDriver(SupervisedDriver):
    """The driver of the connectors of one kind, and of runs over dead letters."""

    def __init__(
        self,
        settings: DriverSettings,
        wanted: Mapping[str, _Wanted],
        kind: str,
        runs: Mapping[str, _LetterRun],
        isolate: Callable[[_Wanted], None],
    ) -> None:
        self._runs = runs
        self._isolate = isolate
        self._connectors = wanted
        self._driver = kind
        super().__init__(
            "connector",
            lambda: DriverProcess.start(DRIVER, dataclasses.asdict(settings)),
            self._own,
        )

    def _own(self) -> list[_Wanted]:
        """The connectors of this driver, in the order in which they were started."""
        return [each for each in self._connectors.values() if each.driver == self._driver]

    async def ask_about_letters(
        self, plan: ConnectorPlan, step: Mapping[str, object]
    ) -> dict[str, Any]:
        """The answer of the driver about dead letters; LettersRefused if there is none."""
        message = {"do": "letters", "plan": dataclasses.asdict(plan), **step}
        try:
            answer = await self.ask(message, LETTERS_WITHIN_S)
        except DriverGone as error:
            raise LettersRefused(f"The dead letters cannot be read now: {error}", GONE) from None
        if "refused" in answer:
            raise LettersRefused(answer["refused"], answer["status"])
        found: dict[str, Any] = answer["found"]
        return found

    def _process_began(self) -> None:
        for run in self._runs.values():
            run.sent = not run.runs

    def _process_ended(self, status: int | None) -> None:
        # A connector does not send SIGKILL: the kernel or an operator did.
        if self._driver == SHARED and status not in (-signal.SIGKILL, JAVA_KILLED):
            self._find_culprit()

    def _find_culprit(self) -> None:
        """Move a connector to a driver of its own, if it was at work at two ends in ten minutes.

        If that is true of several, the one that was started last is moved, and the others if the
        driver ends again.
        """
        now = asyncio.get_running_loop().time()
        at_work = [each for each in self._own() if each.sent and self._is_at_work(each.name)]
        for each in at_work:
            recent = [moment for moment in each.ended_drivers if now - moment < CULPRIT_S]
            each.ended_drivers = [*recent, now]
        suspects = [each for each in at_work if len(each.ended_drivers) > 1]
        if suspects:
            culprit = suspects[-1]
            culprit.restarts += 1
            culprit.sentence = (
                "the Spark driver has ended twice within ten minutes while this connector was at "
                "work; it has a driver of its own now"
            )
            log.warning("connector %s: %s", culprit.name, culprit.sentence)
            self._isolate(culprit)

    def _is_at_work(self, name: str) -> bool:
        """By the last report, which does not have a connector that was just started."""
        query = self._report.get("queries", {}).get(name)
        return query is None or bool(query["busy"])

    def _reported(self, report: Mapping[str, Any]) -> None:
        for name, found in report.get("letters", {}).items():
            if name in self._runs and self._runs[name].sent:
                self._runs[name].report = found

    async def _start_more(self) -> None:
        for run in self._runs.values():
            if not run.sent and self._report["ready"]:
                await self._continue(run)

    async def _continue(self, run: _LetterRun) -> None:
        """Let a new driver continue a run."""
        step = {"step": "run", "order": dataclasses.asdict(run.order)}
        try:
            run.report = await self.ask_about_letters(run.plan, step)
        except LettersRefused as error:
            if error.status == GONE:
                return
            run.report = {**run.report, "state": "failed", "error": str(error)}
        run.sent = True
