"""A Connect worker in this process, on a free port, with a host that runs nothing."""

import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import httpx
import uvicorn

from headrace.connect.plugins import Plugins
from headrace.connect.service import connect_service
from headrace.connect.worker import ConnectWorker
from headrace.service.application import Application
from headrace.service.settings import ServiceSettings
from headrace.settings.service_table import CONNECT_TABLE
from tests.connect.stand_in import PLUGINS, StandInHost


@dataclass
class RunningConnect:
    http: httpx.Client
    host: StandInHost
    topics: Mapping[str, str]
    worker: ConnectWorker
    server: uvicorn.Server
    thread: threading.Thread

    @property
    def worker_id(self) -> str:
        return self.worker.options.address.worker_id

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive(), "the worker did not stop within a minute"

    def die(self) -> None:
        """Ends without leaving the group, as a process that is killed."""
        member = self.worker.ownership._member
        assert member is not None
        member._leave = lambda: None  # type: ignore[method-assign]
        self.stop()


def topic_settings() -> dict[str, str]:
    """Names of topics that no other test has."""
    unique = uuid.uuid4().hex[:8]
    kinds = ("config", "offset", "status")
    return {f"{kind}.storage.topic": f"connect-{kind}-{unique}" for kind in kinds}


@contextmanager
def running_connect(
    bootstrap: str,
    topics: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    plugins: Plugins | None = None,
) -> Iterator[RunningConnect]:
    """Runs it until the block ends; with stand-ins for connectors, unless `plugins` are given."""
    topics = topics or topic_settings()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    folder = tempfile.TemporaryDirectory()
    given = {
        "headrace.connect.folder": folder.name,
        "bootstrap.servers": bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "offset.storage.partitions": "3",
        **topics,
        **(settings or {}),
    }
    host = StandInHost()
    service = connect_service(
        ServiceSettings(CONNECT_TABLE, given), {}, host, plugins or Plugins(PLUGINS)
    )
    config = uvicorn.Config(
        Application(service), lifespan="on", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    assert isinstance(service.make_request, partial)
    worker: ConnectWorker = service.make_request.args[0]
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive(), "the worker did not start"
        assert time.monotonic() < deadline, "the worker did not start within a minute"
        time.sleep(0.01)
    base = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(base_url=base, timeout=60, verify=False) as client:
            yield RunningConnect(client, host, topics, worker, server, thread)
    finally:
        server.should_exit = True
        thread.join(60)
        folder.cleanup()
