"""The status of a connector while what it runs on is killed or suspended.

Each case waits until the status tells it, then for RUNNING. HEADRACE_STATUS_LOG names a file that
gets the seconds of each; the goal is 3 s.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.connect.host import spark_host
from headrace.connect.hosting import RunState
from tests.connect.conftest import EmptyDatabase
from tests.connect.host.conftest import HostUnderTest
from tests.connect.host.fire import JSON, driver_pid, java_pid, worker_pids
from tests.support.databases import DatabaseServer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
LOG = os.environ.get("HEADRACE_STATUS_LOG", "")
NAME = "truth"


class Feeder(threading.Thread):
    """Inserts a row every now and then, so that an epoch is always due."""

    def __init__(self, database: EmptyDatabase) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._over = threading.Event()
        self._number = 0

    def run(self) -> None:
        while not self._over.wait(0.3):
            self._number += 1
            try:
                self._database.run(f"INSERT INTO t VALUES ({self._number})")
            except Exception:  # the database is away
                continue

    def stop(self) -> None:
        self._over.set()
        self.join(60)


@pytest.fixture
def running(
    host: HostUnderTest, postgresql: EmptyDatabase, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmptyDatabase]:
    """A connector with work to do. Missing epochs alone do not count."""
    monkeypatch.setattr(spark_host, "QUIET_S", 1e9)
    postgresql.run("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    host.create(f"{NAME}-t")
    config = {
        **JSON,
        **postgresql.config,
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": "t",
        "topic.prefix": f"{NAME}-",
        "poll.interval.ms": "200",
    }
    host.start(NAME, config)
    feeder = Feeder(postgresql)
    feeder.start()
    host.wait(lambda: host.status(NAME).progress.records, lambda found: (found or 0) > 0)
    yield postgresql
    feeder.stop()
    host.stop(NAME)


@contextmanager
def suspended(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def seen(host: HostUnderTest, case: str, state: Callable[[RunState], bool]) -> None:
    """Wait for a state, and note how long that took and how many looks."""
    began, looks = time.monotonic(), 0

    def look() -> RunState:
        nonlocal looks
        looks += 1
        return host.status(NAME).state

    found = host.wait(look, state)
    if LOG:
        line = {"case": case, "state": found.value, "seconds": round(time.monotonic() - began, 2)}
        with Path(LOG).open("a") as file:
            file.write(json.dumps({**line, "looks": looks}) + "\n")


def is_not_running(state: RunState) -> bool:
    return state is not RunState.RUNNING


def is_running(state: RunState) -> bool:
    return state is RunState.RUNNING


def test_the_status_tells_what_is_killed_or_suspended(
    host: HostUnderTest, running: EmptyDatabase
) -> None:
    server = running.server
    assert isinstance(server, DatabaseServer)

    def case(name: str) -> None:
        seen(host, name, is_not_running)

    def healed(name: str) -> None:
        seen(host, f"{name}, healed", is_running)
        before = host.status(NAME).progress.records or 0
        host.wait(lambda: host.status(NAME).progress.records or 0, lambda found: found > before)

    for name, find in (("driver", driver_pid), ("java", java_pid)):
        os.kill(find(), signal.SIGKILL)
        case(f"{name} killed")
        healed(f"{name} killed")
        with suspended([find()]):
            case(f"{name} suspended")
        healed(f"{name} suspended")
    with suspended(worker_pids()):
        case("Python workers suspended")
    healed("Python workers suspended")
    for pid in worker_pids():
        os.kill(pid, signal.SIGKILL)
    healed("Python workers killed")
    server.kill()
    case("database killed")
    server.start()
    healed("database killed")
    with suspended([host.broker.pid]):
        case("broker suspended")
    healed("broker suspended")
    host.broker.kill()
    case("broker killed")
    host.broker.start()
    healed("broker killed")
