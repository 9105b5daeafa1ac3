"""Connections that read the files of views. SQLite opens the files read-only."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from headrace.sql.views.spark_sql.sqlite_functions import register
from headrace.sql.views.store import ViewStore

STATEMENTS = 512
"""Prepared statements that a connection keeps."""
MOST_IDLE = 16


def connect(paths: Sequence[Path]) -> sqlite3.Connection:
    """A connection to several files: the schemas `v0`, `v1` and so on."""
    connection = sqlite3.connect(
        ":memory:",
        isolation_level=None,
        check_same_thread=False,
        cached_statements=STATEMENTS,
        uri=True,
    )
    try:
        for number, path in enumerate(paths):
            connection.execute(
                f"ATTACH DATABASE ? AS v{number}", (f"file:{quote(str(path))}?mode=ro",)
            )
        connection.execute("PRAGMA query_only = ON")
        register(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class ReadConnections:
    """Connections that are kept for the next query over the same files."""

    def __init__(self) -> None:
        self._idle: list[tuple[tuple[ViewStore, ...], sqlite3.Connection]] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def borrow(self, views: tuple[ViewStore, ...]) -> Iterator[sqlite3.Connection]:
        """A connection for one thread. One that has failed is closed."""
        connection = self._take(views) or connect([each.path for each in views])
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._keep(views, connection)

    def close(self, view: ViewStore | None = None) -> None:
        """Close the idle connections to a view, or all."""
        with self._lock:
            self._is_closed = self._is_closed or view is None
            going = [each for each in self._idle if view is None or view in each[0]]
            self._idle = [each for each in self._idle if each not in going]
        for _, connection in going:
            connection.close()

    def _take(self, views: tuple[ViewStore, ...]) -> sqlite3.Connection | None:
        with self._lock:
            for place in range(len(self._idle) - 1, -1, -1):
                if self._idle[place][0] == views:
                    return self._idle.pop(place)[1]
        return None

    def _keep(self, views: tuple[ViewStore, ...], connection: sqlite3.Connection) -> None:
        oldest: sqlite3.Connection | None = None
        with self._lock:
            if self._is_closed:
                oldest = connection
            else:
                self._idle.append((views, connection))
                if len(self._idle) > MOST_IDLE:
                    oldest = self._idle.pop(0)[1]
        if oldest is not None:
            oldest.close()
