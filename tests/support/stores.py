"""Stores by an address, for tests that several kinds of store have to pass, and their processes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.cluster.sqlite_store import SqliteStore
from headrace.cluster.store import Store
from headrace.cluster.zookeeper_store import ZookeeperStore

PATIENCE_S = 60
SHORT_SESSION_MS = 6000
"""For those whose session shall end; long enough for a machine that has much to do."""
LONG_SESSION_MS = 60_000


def open_store(address: str, session_timeout_ms: int = LONG_SESSION_MS) -> Store:
    """The store at `sqlite:FOLDER` or `zookeeper://HOST:PORT/CHROOT`."""
    kind, _, place = address.partition(":")
    if kind == "sqlite":
        return SqliteStore(place)
    return ZookeeperStore(address, session_timeout_ms=session_timeout_ms)


class Place:
    """Somewhere that stores can be opened on the same nodes; closes them in the end."""

    def __init__(self, open_one: Callable[[], Store], address: str = "") -> None:
        self.address = address
        """For processes of their own; empty if there is none."""
        self._open_one = open_one
        self._opened: list[Store] = []

    def open(self) -> Store:
        store = self._open_one()
        self._opened.append(store)
        return store

    def close(self, store: Store) -> None:
        """As a process would that ends as it should."""
        self._opened.remove(store)
        store.close()

    def close_all(self) -> None:
        for store in self._opened[:]:
            self.close(store)


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds; fail when it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.005)


@contextmanager
def python_process(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own that runs `script`; killed at the end if it still runs."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
