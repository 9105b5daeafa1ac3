"""A SQL server in this process, on a free port, with a host that runs nothing."""

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from headrace.admin.connect_client import ConnectRest
from headrace.schemas.client import SchemaClient
from headrace.service.application import Application
from headrace.service.errors import StartFailure
from headrace.service.security import make_security
from headrace.service.settings import ServiceSettings
from headrace.settings.service_table import SQL_TABLE
from headrace.sql.rest.call import SqlEngine
from headrace.sql.service import sql_service
from tests.sql.stand_in import StandInHost

WAIT_S = 60.0


@dataclass
class RunningSql:
    http: httpx.Client
    host: StandInHost
    service: str
    folder: Path
    engine: SqlEngine
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive(), "the server did not stop within a minute"

    def sql(self, text: str, **more: Any) -> list[dict[str, Any]]:
        """The results of statements, which must succeed."""
        response = self.http.post("/ksql", json={"ksql": text, **more})
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()
        return found

    def refused(self, text: str, status: int = 400, **more: Any) -> dict[str, Any]:
        """The error of statements, which must fail."""
        response = self.http.post("/ksql", json={"ksql": text, **more})
        assert response.status_code == status, response.text
        found: dict[str, Any] = response.json()
        return found


@contextlib.contextmanager
def running_sql(
    bootstrap: str,
    folder: Path,
    service: str | None = None,
    settings: Mapping[str, str] | None = None,
    registry: SchemaClient | None = None,
    connect: ConnectRest | None = None,
) -> Iterator[RunningSql]:
    """Runs it until the block ends; StartFailure if it does not start."""
    service = service or f"test-{uuid.uuid4().hex[:8]}"
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    given = {
        "headrace.sql.folder": str(folder),
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "ksql.service.id": service,
        **(settings or {}),
    }
    host = StandInHost()
    values = ServiceSettings(SQL_TABLE, given)
    built = sql_service(values, {}, registry, connect, host)
    security = make_security("sql", values)
    if security.authentication is not None:
        built = replace(built, authenticate=security.authentication)
    application = Application(built)
    config = uvicorn.Config(
        application, lifespan="on", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    assert isinstance(built.make_request, partial)
    engine: SqlEngine = built.make_request.args[0]
    thread = threading.Thread(target=_run, args=(server, listener), daemon=True)
    thread.start()
    deadline = time.monotonic() + WAIT_S
    while not server.started:
        if not thread.is_alive() or application.start_failure is not None:
            thread.join(WAIT_S)
            raise application.start_failure or StartFailure("the server did not start")
        assert time.monotonic() < deadline, "the server did not start within a minute"
        time.sleep(0.01)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S) as client:
            yield RunningSql(client, host, service, folder, engine, server, thread)
    finally:
        server.should_exit = True
        thread.join(WAIT_S)


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    with contextlib.suppress(SystemExit):
        server.run([listener])
