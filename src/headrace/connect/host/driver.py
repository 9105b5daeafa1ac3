"""The driver process: `python -m headrace.connect.host.driver FILE_NUMBER`.

The service sends one JSON message a line over a socket, and gets one response for each. The driver
responds while Spark is still starting. It ends when the service ends, or when its Java does.
"""

import dataclasses
import json
import logging
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.connect.host.settings import DriverSettings
from headrace.connect.hosting import ConnectorPlan
from headrace.connect.letter_orders import LetterOrder, LettersRefused, LetterView

if TYPE_CHECKING:
    from headrace.connect.host.queries import Queries
    from headrace.pipelines.host.fork_server import ForkServer

JAVA_ENDED = 70
SPARK_SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    # Transforms of times count in UTC, as Kafka Connect's do.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Progress of epochs that is kept for each query.
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}
"""One connector's tasks must not keep those of the others waiting; without a web interface."""
log = logging.getLogger(__name__)


class Driver:
    """Responds to the service's messages."""

    def __init__(self, settings: DriverSettings) -> None:
        self._settings = settings
        self._queries: Queries | None = None
        self._workers: ForkServer | None = None
        """It ends when this object is closed or collected."""
        self._pending: list[ConnectorPlan] = []
        self._lock = threading.Lock()
        self._ready = threading.Event()
        """Set when Spark has started."""

    def start_spark(self) -> None:
        """Start the session; connectors that were sent meanwhile follow."""
        from headrace.connect.host.queries import Queries
        from headrace.pipelines.host.fork_server import ForkServer

        try:
            self._workers = ForkServer(Path(tempfile.mkdtemp(prefix="headrace-")))
            queries = Queries(_session(self._settings, self._workers), self._settings)
        except BaseException:
            log.exception("Spark did not start")
            os._exit(1)
        with self._lock:
            self._queries = queries
            for plan in self._pending:
                queries.start(plan)
            self._pending.clear()
        self._ready.set()

    def answer(self, message: Mapping[str, Any]) -> dict[str, object]:
        do = message["do"]
        if do == "start":
            self._start(ConnectorPlan(**message["plan"]))
            return {}
        if do == "stop":
            self._stop(message["name"])
            return {}
        if do == "stop all":
            if self._queries is not None:
                self._queries.stop_all()
            return {}
        if do == "letters":
            return self._letters(message)
        assert do == "look", do
        with self._lock:
            queries = self._queries
        if queries is None:
            return {"ready": False, "queries": {}}
        age = time.monotonic() - queries.looked_at
        return {
            "ready": True,
            "age": age,
            "queries": queries.report(),
            "letters": queries.letter_runs.report(),
        }

    def _letters(self, message: Mapping[str, Any]) -> dict[str, object]:
        """Dead letters: show them, plan a run, begin one, or end it."""
        self._ready.wait()
        queries = self._queries
        assert queries is not None, "Spark has started"
        plan = ConnectorPlan(**message["plan"])
        try:
            if message["step"] == "stop":
                queries.letter_runs.stop(plan.name)
                return {"found": {}}
            if message["step"] == "leave":
                queries.letter_runs.leave(plan.name)
                return {"found": {}}
            queue = queries.letter_queue(plan)
            if message["step"] == "view":
                return {"found": queue.view(LetterView(**message["view"]))}
            order = LetterOrder(**message["order"])
            if order.dry_run:
                return {"found": queue.plan(order).report()}
            return {"found": queries.letter_runs.start(queue, order)}
        except LettersRefused as refused:
            return {"refused": str(refused), "status": refused.status}

    def _start(self, plan: ConnectorPlan) -> None:
        with self._lock:
            if self._queries is None:
                self._pending.append(plan)
            else:
                self._queries.start(plan)

    def _stop(self, name: str) -> None:
        with self._lock:
            self._pending = [each for each in self._pending if each.name != name]
            queries = self._queries
        if queries is not None:
            queries.stop(name)


def _session(settings: DriverSettings, workers: "ForkServer") -> Any:
    from headrace.pipelines.running import session

    chosen = {**SPARK_SETTINGS, **settings.spark}
    launch = session.Launch("connect", settings.bootstrap, settings.master, settings.folder, chosen)
    os.environ.update(session.environment(launch, os.environ))
    os.environ.update(workers.environment())

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    # Its warnings are about epochs that take longer than the interval.
    spark.sparkContext.setLogLevel("ERROR")
    java: Any = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        threading.Thread(target=_end_with, args=(java,), daemon=True).start()
    return spark


def _end_with(java: Any) -> None:
    java.wait()
    log.error("Spark's Java has ended with status %s", java.returncode)
    os._exit(JAVA_ENDED)


def main() -> None:
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    channel = socket.socket(fileno=int(sys.argv[1]))
    lines = channel.makefile("r", encoding="utf-8")
    driver = Driver(DriverSettings(**json.loads(lines.readline())))
    threading.Thread(target=driver.start_spark, daemon=True).start()
    sending = threading.Lock()

    def respond(message: Mapping[str, Any]) -> None:
        try:
            body = {"id": message["id"], **driver.answer(message)}
        except Exception as error:
            log.exception("%s failed", message["do"])
            body = {"id": message["id"], "error": f"{type(error).__name__}: {error}"}
        with sending:
            channel.sendall(json.dumps(body).encode() + b"\n")

    for line in lines:
        message = json.loads(line)
        if message["do"] in ("stop", "stop all", "letters"):
            # It may take as long as an epoch, or as a query.
            threading.Thread(target=respond, args=(message,), daemon=True).start()
        else:
            respond(message)
    # The service has ended. Java ends with this process.
    os._exit(0)


def first_message(settings: DriverSettings) -> bytes:
    """The settings as the driver expects them."""
    return json.dumps(dataclasses.asdict(settings)).encode() + b"\n"


if __name__ == "__main__":
    main()
