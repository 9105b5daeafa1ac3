"""Keeps connectors running: starts drivers, looks at their queries, and tries again after failures.

The state of a connector is what its driver reports at the moment of asking, never what was written
down earlier.
"""

import asyncio
import contextlib
import dataclasses
import logging
import random
import shutil
import time
from collections.abc import Mapping
from typing import Any

from headrace.connect.host.driver_process import DriverGone, DriverProcess
from headrace.connect.host.failures import FailureKind
from headrace.connect.host.settings import DriverSettings
from headrace.connect.hosting import ConnectorPlan, HostedStatus, Progress, RunState
from headrace.connect.letter_orders import LetterOrder, LettersRefused, LetterView

LOOK_S = 0.5
RESPONDS_WITHIN_S = 2.0
HUNG_AFTER_S = 60.0
"""A driver that has not responded for this long is killed."""
STOPS_WITHIN_S = 60.0
LETTERS_WITHIN_S = 80.0
"""Spark may still be starting, and reads all dead letters that wait."""
GONE = 503
"""The HTTP status if the driver does not respond."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
PERMANENT_WAIT_S = 600.0
HEALTHY_S = 600.0
"""After this time without a failure the waits begin again at the first."""
UNKNOWN_TRIES = 10
QUIET_S = 60.0
SHARED = ""

log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class _Wanted:
    """A connector that should run, and its failures."""

    plan: ConnectorPlan
    failures: int = 0
    restarts: int = 0
    failed_at: float = 0.0
    next_try: float | None = None
    """If it waits: when it is started again, by the event loop's clock."""
    sentence: str | None = None
    trace: str | None = None
    permanent: bool = False
    ran: bool = False
    sent: bool = False

    @property
    def driver(self) -> str:
        own = self.plan.config.get("headrace.driver", "shared") == "own"
        return self.plan.name if own else SHARED

    def fail(self, sentence: str, trace: str | None, kind: FailureKind, now: float) -> None:
        """Note a failure, and when to try again."""
        if now - self.failed_at > HEALTHY_S:
            self.failures = 0
        self.failures += 1
        self.failed_at = now
        self.sentence, self.trace = sentence, trace
        self.permanent = kind is FailureKind.PERMANENT or (
            kind is FailureKind.UNKNOWN and self.failures > UNKNOWN_TRIES
        )
        wait = PERMANENT_WAIT_S if self.permanent else back_off(self.failures)
        self.next_try = now + wait
        self.sent = False


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


def back_off(failures: int) -> float:
    """The wait after this many failures in a row: doubling, with jitter."""
    wait = min(FIRST_WAIT_S * 2.0 ** min(failures - 1, 10), LONGEST_WAIT_S)
    return float(wait * random.uniform(0.8, 1.2))


class SparkHost:
    """All connectors of this worker."""

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._wanted: dict[str, _Wanted] = {}
        self._drivers: dict[str, _SupervisedDriver] = {}
        self._runs: dict[str, _LetterRun] = {}

    async def start(self, plan: ConnectorPlan) -> None:
        """Run the connector, in place of one with this name; returns before it runs."""
        await self.stop(plan.name)
        wanted = self._wanted[plan.name] = _Wanted(plan)
        self._driver(wanted.driver).wake()

    def prepare(self) -> None:
        """Start the driver that connectors share."""
        self._driver(SHARED)

    def _driver(self, kind: str) -> "_SupervisedDriver":
        """The driver of a kind; it is started if it does not run."""
        if kind not in self._drivers:
            runs = self._runs if kind == SHARED else {}
            self._drivers[kind] = _SupervisedDriver(self._settings, self._wanted, kind, runs)
        return self._drivers[kind]

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
            return HostedStatus(state, _trace(wanted), progress)
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
        return HostedStatus(not_yet, _trace(wanted), Progress(restarts=wanted.restarts))
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
    elif query["quiet_s"] > max(3 * query["interval_ms"] / 1000, QUIET_S):
        problem = f"no epoch has ended for {query['quiet_s']:.0f} s although records wait"
    if problem is not None:
        return HostedStatus(RunState.RESTARTING, problem, progress, topics=topics)
    return HostedStatus(RunState.RUNNING, None, progress, topics=topics)


def _trace(wanted: _Wanted) -> str | None:
    if wanted.sentence is None:
        return None
    return wanted.sentence if not wanted.trace else f"{wanted.sentence}\n{wanted.trace}"


class _SupervisedDriver:
    """One driver process after the other, with the connectors of its kind."""

    def __init__(
        self,
        settings: DriverSettings,
        wanted: Mapping[str, _Wanted],
        kind: str,
        runs: Mapping[str, _LetterRun],
    ) -> None:
        self._settings = settings
        self._all = wanted
        self._runs = runs
        self._kind = kind
        self._process: DriverProcess | None = None
        self._report: dict[str, Any] = {}
        self._reported_at = -RESPONDS_WITHIN_S
        self._problem: str | None = None
        self._started = asyncio.Event()
        """Set when the first process has been started."""
        self._woken = asyncio.Event()
        self._looking = asyncio.Lock()
        self._task = asyncio.create_task(self._supervise())

    def wake(self) -> None:
        self._woken.set()

    async def close(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
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
                "connector %s was not stopped in time (%s); its driver is ended", name, error
            )
            await process.end()

    async def ask_about_letters(
        self, plan: ConnectorPlan, step: Mapping[str, object]
    ) -> dict[str, Any]:
        """The answer of the driver about dead letters; LettersRefused if there is none."""
        await self._started.wait()
        assert self._process is not None, "a process has been started"
        message = {"do": "letters", "plan": dataclasses.asdict(plan), **step}
        try:
            answer = await self._process.ask(message, LETTERS_WITHIN_S)
        except DriverGone as error:
            raise LettersRefused(f"The dead letters cannot be read now: {error}", GONE) from None
        if "refused" in answer:
            raise LettersRefused(answer["refused"], answer["status"])
        found: dict[str, Any] = answer["found"]
        return found

    async def look(self) -> tuple[dict[str, Any], str | None]:
        """What the driver reports, at most a second old, or the problem that it does not."""
        now = asyncio.get_running_loop().time()
        if now - self._reported_at > 2 * LOOK_S:
            await self._look()
        return self._report, self._problem

    def _connectors(self) -> list[_Wanted]:
        return [each for each in self._all.values() if each.driver == self._kind]

    async def _supervise(self) -> None:
        deaths = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._problem = None
            self._process = await DriverProcess.start(self._settings)
            self._started.set()
            log.info("a Spark driver starts", extra={"fields": {"pid": self._process.pid}})
            for each in self._connectors():
                each.sent = False
            for run in self._runs.values():
                run.sent = not run.runs
            await self._run(self._process)
            status = self._process.status
            await self._process.end()
            deaths = 1 if loop.time() - began > HEALTHY_S else deaths + 1
            self._problem = f"the Spark driver ended with status {status} and is started again"
            self._report = {}
            log.warning(self._problem)
            for each in self._connectors():
                each.restarts += 1
                each.sentence, each.trace = self._problem, None
            await asyncio.sleep(back_off(deaths))

    async def _run(self, process: DriverProcess) -> None:
        """Keeps the connectors running until the driver ends or hangs."""
        loop = asyncio.get_running_loop()
        responded = loop.time()
        while process.status is None:
            self._woken.clear()
            if await self._look():
                responded = loop.time()
                await self._start_due(process)
            elif loop.time() - responded > HUNG_AFTER_S:
                log.error("the Spark driver has not responded for %d s; it is killed", HUNG_AFTER_S)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), LOOK_S)

    async def _look(self) -> bool:
        async with self._looking:
            process = self._process
            if process is None:
                return False
            try:
                self._report = await process.ask({"do": "look"}, RESPONDS_WITHIN_S)
            except DriverGone as error:
                self._problem = str(error)
                return False
            self._problem = None
            self._reported_at = asyncio.get_running_loop().time()
            self._take(self._report["queries"])
            for name, found in self._report.get("letters", {}).items():
                if name in self._runs and self._runs[name].sent:
                    self._runs[name].report = found
            return True

    def _take(self, queries: Mapping[str, Any]) -> None:
        """Notice queries that have ended."""
        now = asyncio.get_running_loop().time()
        for each in self._connectors():
            query = queries.get(each.plan.name)
            if query is None or not each.sent:
                continue
            if query["state"] == "running":
                each.ran = True
                each.sentence = each.trace = None
            elif query["state"] == "ended":
                sentence = query["sentence"] or "the query has ended"
                each.fail(sentence, query["trace"], FailureKind(query["kind"]), now)
                log.warning(
                    "connector %s failed: %s",
                    each.plan.name,
                    sentence,
                    extra={"fields": {"connector": each.plan.name, "permanent": each.permanent}},
                )

    async def _start_due(self, process: DriverProcess) -> None:
        now = asyncio.get_running_loop().time()
        for each in self._connectors():
            if each.sent or (each.next_try is not None and each.next_try > now):
                continue
            if each.next_try is not None:
                each.restarts += 1
            try:
                await process.ask({"do": "stop", "name": each.plan.name}, STOPS_WITHIN_S)
                message = {"do": "start", "plan": dataclasses.asdict(each.plan)}
                await process.ask(message, RESPONDS_WITHIN_S)
            except DriverGone:
                return
            each.sent, each.next_try = True, None
            # What the driver reported before is about the query that has ended.
            self._reported_at = -RESPONDS_WITHIN_S
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
