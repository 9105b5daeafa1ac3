"""Metadata in one SQLite file: one machine, one or more broker processes, no server to start.

A commit is on disk when it returns. Several processes may have the file open; they wait for each
other for a few seconds.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.cluster.store import Change, Conflict, Create, Node, Put, StoreError

FILE_NAME = "metadata.sqlite"
BUSY_SECONDS = 10.0

_SCHEMA = """
create table if not exists nodes (
    parent text not null,
    name text not null,
    value blob not null,
    version integer not null,
    primary key (parent, name)
) without rowid
"""


class SqliteStore:
    """The nodes of `store.py` as rows of a table."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, FILE_NAME)
        with self._readable_errors():
            # Only one thread at a time uses it, but not always the one that opened it.
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = full")
            self._connection.execute(_SCHEMA)

    def get(self, path: str) -> Node | None:
        with self._readable_errors():
            row = self._connection.execute(
                "select value, version from nodes where parent = ? and name = ?", _split(path)
            ).fetchone()
        return Node(*row) if row else None

    def children(self, path: str) -> dict[str, Node]:
        with self._readable_errors():
            rows = self._connection.execute(
                "select name, value, version from nodes where parent = ?", (path,)
            )
            return {name: Node(value, version) for name, value, version in rows}

    def commit(self, changes: Sequence[Change]) -> None:
        with self._readable_errors():
            self._connection.execute("begin immediate")
            try:
                for change in changes:
                    self._apply(change)
                self._connection.execute("commit")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise

    def close(self) -> None:
        self._connection.close()

    def _apply(self, change: Change) -> None:
        parent, name = _split(change.path)
        if isinstance(change, Create):
            statement = "insert or ignore into nodes values (?, ?, ?, 0)"
            values: tuple[str | bytes | int, ...] = (parent, name, change.value)
        elif isinstance(change, Put):
            statement = (
                "update nodes set value = ?, version = version + 1 "
                "where parent = ? and name = ? and version = ?"
            )
            values = (change.value, parent, name, change.version)
        else:
            statement = "delete from nodes where parent = ? and name = ? and version = ?"
            values = (parent, name, change.version)
        if self._connection.execute(statement, values).rowcount != 1:
            raise Conflict(change.path)

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path}: {error}; check that the folder can be written, that its disk has "
                "room, and that the file is a Headrace metadata file"
            ) from error


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent, name
