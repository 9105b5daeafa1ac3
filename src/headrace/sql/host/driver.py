"""The driver process of SQL queries: `python -m headrace.sql.host.driver FILE_NUMBER`.

It responds to the messages of the service (`pipelines/host/driver_loop.py`).
"""

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.pipelines.host import driver_loop
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.hosting import (
    ComparedTopic,
    QueryRefused,
    QuerySpec,
    RowCopy,
    function_from_json,
    spec_from_json,
)
from headrace.sql.plans import plan_from_json
from headrace.sql.sources import source_from_json

if TYPE_CHECKING:
    from headrace.pipelines.host.fork_server import ForkServer
    from headrace.sql.host.session import SqlSession

log = logging.getLogger(__name__)


class SqlDriver:
    """Responds to the service's messages."""

    slow: ClassVar[frozenset[str]] = frozenset(
        {
            "stop",
            "stop all",
            "analyse",
            "check replace",
            "push",
            "end push",
            "batch",
            "compare",
            "copy",
        }
    )

    def __init__(self, settings: SqlDriverSettings, send: driver_loop.Send) -> None:
        self._settings = settings
        self._send = send
        self._session: SqlSession | None = None
        self._workers: ForkServer | None = None
        """It ends when this object is closed or collected."""
        self._pending: list[QuerySpec] = []
        self._lock = threading.Lock()
        self._ready = threading.Event()
        """Set when Spark has started."""

    def start_spark(self) -> None:
        """Start the session; queries that were sent meanwhile follow."""
        from headrace.pipelines.host.fork_server import ForkServer
        from headrace.sql.host.session import SqlSession

        try:
            self._workers = ForkServer(Path(tempfile.mkdtemp(prefix="headrace-")))
            session = SqlSession(self._settings, self._workers, self._send)
        except BaseException:
            log.exception("Spark did not start")
            os._exit(1)
        with self._lock:
            self._session = session
            for spec in self._pending:
                session.queries.start(spec)
            self._pending.clear()
        self._ready.set()

    def answer(self, message: Mapping[str, Any]) -> dict[str, object]:
        do = message["do"]
        if do == "look":
            return self._look()
        if do == "start":
            self._start(spec_from_json(message["query"]))
            return {}
        if do == "stop":
            self._stop(message["name"])
            return {}
        if do == "stop all":
            if self._session is not None:
                self._session.stop_all()
            return {}
        return self._refusable(lambda: self._ask(message))

    def _look(self) -> dict[str, object]:
        with self._lock:
            session = self._session
        if session is None:
            return {"ready": False, "queries": {}}
        age = time.monotonic() - session.queries.looked_at
        return {"ready": True, "age": age, "queries": session.queries.report()}

    def _start(self, spec: QuerySpec) -> None:
        with self._lock:
            if self._session is None:
                self._pending.append(spec)
            else:
                self._session.queries.start(spec)

    def _stop(self, name: str) -> None:
        with self._lock:
            self._pending = [each for each in self._pending if each.id != name]
            session = self._session
        if session is not None:
            session.queries.stop(name)

    def _refusable(self, ask: Callable[[], dict[str, object]]) -> dict[str, object]:
        try:
            return ask()
        except QueryRefused as refused:
            return {"refused": str(refused)}

    def _ask(self, message: Mapping[str, Any]) -> dict[str, object]:
        """Requests that wait for Spark."""
        self._ready.wait()
        session = self._session
        assert session is not None, "Spark has started"
        do = message["do"]
        if do == "end push":
            session.pushes.end(message["push"])
            return {}
        if do == "more":
            session.pushes.taken(message["push"])
            return {}
        if do == "check replace":
            session.check_replace(spec_from_json(message["query"]))
            return {}
        if do == "copy":
            session.copy(RowCopy(**message["copy"]))
            return {}
        if do == "compare":
            left, right = (
                ComparedTopic(source_from_json(source), ends)
                for source, ends in (message["left"], message["right"])
            )
            return session.compare(left, right, message["ignore"], message["tolerance"])
        plan = plan_from_json(message["plan"])
        sources = [source_from_json(each) for each in message["sources"]]
        functions = [function_from_json(each) for each in message["functions"]]
        if do == "analyse":
            return session.analyse(plan, sources, functions)
        if do == "push":
            return session.pushes.start(
                message["push"], plan, sources, functions, message["properties"]
            )
        assert do == "batch", do
        return session.batch(plan, sources, functions, message["limit"])


if __name__ == "__main__":
    driver_loop.run(lambda settings, send: SqlDriver(SqlDriverSettings(**settings), send))
