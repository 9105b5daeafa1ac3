"""The driver process of connectors: `python -m headrace.connect.host.driver FILE_NUMBER`.

It responds to the messages of the service (`pipelines/host/driver_loop.py`).
"""

import logging
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.client.config import client_config
from headrace.connect.host.settings import DriverSettings
from headrace.connect.hosting import ConnectorPlan
from headrace.connect.letter_orders import LetterOrder, LettersRefused, LetterView
from headrace.pipelines.host import driver_loop

if TYPE_CHECKING:
    from headrace.connect.host.queries import Queries
    from headrace.pipelines.host.fork_server import ForkServer

log = logging.getLogger(__name__)


class Driver:
    """Responds to the service's messages."""

    slow: ClassVar[frozenset[str]] = frozenset({"stop", "stop all", "letters"})

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
        from headrace.pipelines.host.driver_session import start_session
        from headrace.pipelines.host.fork_server import ForkServer
        from headrace.pipelines.host.obstacles import Obstacles

        settings = self._settings
        try:
            self._workers = ForkServer(Path(tempfile.mkdtemp(prefix="headrace-")))
            spark = start_session(
                "connect",
                settings.bootstrap,
                settings.master,
                settings.folder,
                settings.spark,
                self._workers,
            )
            queries = Queries(
                spark, settings, Obstacles(client_config(settings.client), self._workers.pid)
            )
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


if __name__ == "__main__":
    driver_loop.run(lambda settings, _: Driver(DriverSettings(**settings)))
