"""The demo: sensors produce, Spark computes, the terminal shows it live, and a picture is drawn.

make demo                                                     a minute, with its own broker
python examples/sensors/demo.py --bootstrap localhost:9092    on your cluster, until Ctrl-C
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import screen
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from findings import Findings, compare, table_rows
from house_rules import ALERTS, AVERAGES, READINGS
from observation import PARTITIONS, Observation
from picture import draw
from production import Production
from rich.console import Console
from rich.live import Live

from headrace.pipelines.running import progress_topic, requirements
from headrace.testing.running import RunningBroker

HERE = Path(__file__).resolve().parent
REDRAW_S = 0.4
LINE_EVERY_S = 5.0
FIRST_RESULT_WITHIN_S = 300.0
SETTLES_WITHIN_S = 300.0
PROBLEMS_SHOWN = 10
# Spark waits ten seconds for a Python process that needs a third of a second to start. If a machine
# is that busy, the checkpoint makes a second start safe.
TOO_BUSY = "Python worker failed to connect back"
STARTS = 4

Show = Callable[[screen.View], None]


class DemoFailed(Exception):
    """The demo cannot continue; the message has the reason."""


class Pipeline:
    """Spark in a separate process that does not get the terminal's Ctrl-C."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.table = folder / "averages"
        self.log = folder / "pipeline.log"
        self._command = [
            *(sys.executable, "-m", "headrace.cli", "spark", "run", str(HERE / "pipeline.py")),
            *("--bootstrap", bootstrap, "--checkpoints", str(folder / "checkpoints")),
            *("--conf", "spark.ui.showConsoleProgress=false"),
            # How soon a query reports that it is idle.
            *("--conf", "spark.sql.streaming.noDataProgressEventInterval=1000"),
            *("--", "--table", str(self.table)),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self) -> None:
        """Start it, or start it again after a crash."""
        self._starts += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def check(self) -> None:
        """Raises DemoFailed if it has ended and cannot be restarted."""
        code = self._process.poll() if self._process else 0
        if code is None:
            return
        said = self.log.read_text(errors="replace")
        if TOO_BUSY in said and self._starts < STARTS:
            self.start()
            return
        lines = said.splitlines()[-15:]
        raise DemoFailed("\n".join([f"Spark ended ({code}). The end of {self.log}:", *lines]))

    def crash(self) -> None:
        """Kill it, as a power failure would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def run(
    bootstrap: str, folder: Path, seconds: float | None, rate: int, show: Show, *, crash: bool
) -> tuple[Findings, Observation]:
    """Run the demo for `seconds` after the first result, or until Ctrl-C; returns the results."""
    prepare(bootstrap, folder)
    production = Production(bootstrap, rate)
    pipeline = Pipeline(bootstrap, folder)
    with Observation(bootstrap, production) as seen:
        production.start()
        pipeline.start()
        try:
            try:
                _watch(seen, pipeline, seconds, show, crash=crash)
            except KeyboardInterrupt:
                # Results can be counted after the first one.
                if not seen.averages:
                    raise
            production.stop()
            _settle(seen, pipeline, show)
        finally:
            production.stop()
            pipeline.stop()
        # Results that were committed during the stop.
        seen.listen(1.0)
        rows = table_rows(pipeline.table)
        return compare(production.sent, seen.averages, seen.alerts, rows), seen


def prepare(bootstrap: str, folder: Path) -> None:
    """Create new topics and an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [READINGS, AVERAGES, ALERTS]
    for future in admin.delete_topics(names).values():
        with contextlib.suppress(KafkaException):
            future.result(30)
    for future in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).values():
        future.result(30)
    progress_topic.create(bootstrap, {})


def _watch(
    seen: Observation, pipeline: Pipeline, seconds: float | None, show: Show, *, crash: bool
) -> None:
    began = time.monotonic()
    first: float | None = None
    remark = "one simulated minute a second; Ctrl-C ends it"
    while first is None or seconds is None or time.monotonic() - first < seconds:
        seen.listen(REDRAW_S)
        pipeline.check()
        show(seen.view(remark))
        now = time.monotonic()
        if first is None and seen.averages:
            first = now
        elif first is None and now - began > FIRST_RESULT_WITHIN_S:
            raise DemoFailed(f"Spark gave no result; see {pipeline.log}")
        if crash and first is not None and seconds is not None and now - first > seconds / 2:
            crash = False
            pipeline.crash()
            pipeline.start()
            remark = "Spark was killed and started again"
            show(seen.view(remark))


def _settle(seen: Observation, pipeline: Pipeline, show: Show) -> None:
    """Wait until all readings are processed; otherwise the count reports it."""
    until = time.monotonic() + SETTLES_WITHIN_S
    while time.monotonic() < until:
        seen.listen(REDRAW_S)
        pipeline.check()
        show(seen.view("the sensors have stopped; waiting until everything has arrived"))
        alerts = sum(row.alert is not None for row in seen.averages)
        everywhere = len(seen.alerts) == alerts and len(table_rows(pipeline.table)) == len(
            seen.averages
        )
        if seen.settled and everywhere:
            return


@contextlib.contextmanager
def shown(console: Console) -> Iterator[Show]:
    """Show the run: redrawn in place on a terminal, else as occasional lines."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            yield lambda view: live.update(screen.drawn(view), refresh=True)
        return
    began = time.monotonic()
    due, remark = began, ""

    def tell(view: screen.View) -> None:
        nonlocal due, remark
        if time.monotonic() >= due or view.remark != remark:
            due, remark = time.monotonic() + LINE_EVERY_S, view.remark
            console.print(screen.line(view, time.monotonic() - began), soft_wrap=True)

    yield tell


def summarize(console: Console, found: Findings, folder: Path, picture: Path) -> None:
    verdict = "every reading counted once, topic and table the same"
    console.print()
    console.print(f"  readings produced     {found.produced:>9,}")
    console.print(
        f"  readings averaged     {found.averaged:>9,}  the rest is in minutes that go on"
    )
    console.print(f"  averages of a minute  {found.averages:>9,}  in the topic {AVERAGES}")
    console.print(f"  rows in the table     {found.table_rows:>9,}  {folder / 'averages'}")
    console.print(f"  alerts                {found.alerts:>9,}  in the topic {ALERTS}")
    if found.problems:
        for problem in found.problems[:PROBLEMS_SHOWN]:
            console.print(f"  [bold red]{problem}[/]")
        verdict = f"{len(found.problems)} problems"
    style = "bold red" if found.problems else "bold green"
    console.print(f"  [{style}]exactly once: {verdict}[/]")
    console.print(f"  picture: {picture}", soft_wrap=True)


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--bootstrap", metavar="HOST:PORT", help="default: starts a broker")
    words.add_argument(
        "--seconds", type=float, help="after the first result; default: until Ctrl-C"
    )
    words.add_argument("--rate", type=int, default=1000, help="readings per second")
    words.add_argument(
        "--folder", type=Path, default=Path("data/demo"), help="emptied at the start"
    )
    words.add_argument("--picture", type=Path, help="default: demo.png in the folder")
    words.add_argument("--crash", action="store_true", help="kill Spark halfway, start it again")
    chosen = words.parse_args()
    console = Console(highlight=False)
    try:
        requirements.check_spark(os.environ)
    except requirements.NotReady as missing:
        console.print(f"The demo needs Spark. {missing}", soft_wrap=True, markup=False)
        return 1
    folder = chosen.folder.resolve()
    picture = chosen.picture or folder / "demo.png"
    with contextlib.ExitStack() as stack:
        bootstrap = chosen.bootstrap or stack.enter_context(_broker()).bootstrap_servers
        show = stack.enter_context(shown(console))
        try:
            found, seen = run(
                bootstrap, folder, chosen.seconds, chosen.rate, show, crash=chosen.crash
            )
        except (DemoFailed, KafkaException) as error:
            stack.close()
            console.print(str(error), style="red", markup=False, soft_wrap=True)
            return 1
        except KeyboardInterrupt:
            stack.close()
            console.print("stopped before there was a result")
            return 128 + signal.SIGINT
    title = "Sensors, Spark and the log: one run of the demo"
    draw(seen.averages, seen.flows, title, picture)
    summarize(console, found, folder, picture)
    return 1 if found.problems else 0


@contextlib.contextmanager
def _broker() -> Iterator[RunningBroker]:
    broker = RunningBroker()
    try:
        yield broker
    finally:
        broker.close()


if __name__ == "__main__":
    sys.exit(main())
