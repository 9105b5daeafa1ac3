"""Metadata in one SQLite file: one machine, one or more broker processes, no server to start.

A commit is on disk when it returns. Several processes may have the file open; they wait for each
other for a few seconds, and poll every `POLL_SECONDS` for commits of the others and for processes
that have ended. The first process that sees that another one has ended removes its nodes.

A session begins with the first ephemeral node: a row in `sessions`, and its number as a locked byte
of the file beside the database (`session_file.py`). `ephemerals` says which nodes go with it.
"""

import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headrace.cluster.session_file import SessionFile
from headrace.cluster.store import (
    LIVE,
    Change,
    CheckVersion,
    Conflict,
    Create,
    Delete,
    Put,
    StoreError,
    StoreNode,
    StoreSession,
    StoreUnreachable,
    parent_and_name,
    tell_all,
)

logger = logging.getLogger(__name__)

FILE_NAME = "metadata.sqlite"
SESSIONS_FILE_NAME = "metadata.sessions"
BUSY_SECONDS = 5.0
POLL_SECONDS = 0.05

_SCHEMA = (
    """
    create table if not exists nodes (
        parent text not null,
        name text not null,
        value blob not null,
        version integer not null,
        primary key (parent, name)
    ) without rowid
    """,
    # Numbers are never reused: an expired session must not appear to be alive again.
    "create table if not exists sessions (number integer primary key autoincrement)",
    f"""
    create table if not exists ephemerals (
        name text not null primary key, -- below {LIVE}
        session integer not null
    ) without rowid
    """,
)


def _make_private(path: str) -> None:
    """Make the file before SQLite does: it has the keys of users, which others must not read.

    SQLite gives the files beside it the same mode. Files of earlier versions are restricted.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        for suffix in ("", "-wal", "-shm"):
            _restrict(path + suffix)
    except OSError:
        pass  # if it cannot be made, SQLite says why


def _restrict(path: str) -> None:
    """Take away the rights of other users, and of a group that may only read."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        # A group that may write was given the file: brokers of several users share it.
        wanted = mode & (0o770 if mode & stat.S_IWGRP else 0o700)
        if wanted == mode:
            return
        os.chmod(path, wanted)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning(
            "other users of this machine may read %s, which has the keys of users, and its mode "
            "cannot be changed: %s; chmod 600 %s", path, error.strerror, path,
        )  # fmt: skip
        return
    logger.warning(
        "other users of this machine could read %s, which has the keys of users; its mode is %o "
        "now instead of %o", path, wanted, mode,
    )  # fmt: skip


class SqliteStore:
    """The nodes of `store.py` as rows of a table."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, FILE_NAME)
        self._sessions_path = os.path.join(folder, SESSIONS_FILE_NAME)
        self._session: int | None = None
        self._session_file: SessionFile | None = None
        self._watch: _Watch | None = None
        _make_private(self.path)
        with self._readable_errors():
            self._connection = self._connect()
            self._connection.execute("pragma journal_mode = wal")
            for statement in _SCHEMA:
                self._connection.execute(statement)
            if _session_numbers(self._connection):
                # If all processes were killed, none of them has removed its nodes.
                self._clear_up(self._connection)

    def get(self, path: str) -> StoreNode | None:
        with self._readable_errors():
            row = self._connection.execute(
                "select value, version from nodes where parent = ? and name = ?",
                parent_and_name(path),
            ).fetchone()
        return StoreNode(*row) if row else None

    def children(self, path: str) -> dict[str, StoreNode]:
        with self._readable_errors():
            rows = self._connection.execute(
                "select name, value, version from nodes where parent = ?", (path,)
            )
            return {name: StoreNode(value, version) for name, value, version in rows}

    def commit(self, changes: Sequence[Change]) -> None:
        with self._readable_errors():
            if any(isinstance(change, Create) and change.ephemeral for change in changes):
                self._begin_session()
            with _transaction(self._connection):
                for change in changes:
                    self._apply(change)

    def watch(self, changed: Callable[[], None]) -> None:
        if self._watch is None:
            with self._readable_errors():
                self._sessions()  # opened here, before other threads use it
                self._watch = _Watch(self, self._connect())
        self._watch.listeners.append(changed)

    def on_session(self, listener: Callable[[StoreSession], None]) -> None:
        # A file is always reachable, and the lock lasts as long as this process.
        listener(StoreSession.CONNECTED)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        if self._session is not None:
            try:
                with _transaction(self._connection):
                    _end_session(self._connection, self._session)
            except sqlite3.Error as error:
                # The lock is released in any case; another process then removes the nodes.
                logger.warning("cannot end the session in %s: %s", self.path, error)
        if self._session_file is not None:
            self._session_file.close()
        self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        # Only one thread at a time uses it, but not always the one that opened it.
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("pragma synchronous = full")
        return connection

    def _apply(self, change: Change) -> None:
        execute = self._connection.execute
        place = parent_and_name(change.path)
        if isinstance(change, Create):
            done = execute(
                "insert or ignore into nodes values (?, ?, ?, 0)", (*place, change.value)
            ).rowcount
            if done and change.ephemeral:
                execute("insert into ephemerals values (?, ?)", (place[1], self._session))
        elif isinstance(change, Put):
            done = execute(
                "update nodes set value = ?, version = version + 1 "
                "where parent = ? and name = ? and version = ?",
                (change.value, *place, change.version),
            ).rowcount
        elif isinstance(change, Delete):
            done = execute(
                "delete from nodes where parent = ? and name = ? and version = ?",
                (*place, change.version),
            ).rowcount
            if done and place[0] == LIVE:
                execute("delete from ephemerals where name = ?", (place[1],))
        else:
            assert isinstance(change, CheckVersion)
            found = execute(
                "select 1 from nodes where parent = ? and name = ? and version = ?",
                (*place, change.version),
            )
            done = len(found.fetchall())
        if done != 1:
            raise Conflict(change.path)

    # --------------------------------------------------------------------------- sessions

    def _begin_session(self) -> None:
        if self._session is not None:
            return
        sessions = self._sessions()
        try:
            with _transaction(self._connection):
                number = self._connection.execute("insert into sessions values (null)").lastrowid
                assert number is not None, "an insert has a row"
                # Lock before the number is visible: other processes, and our own watch (which
                # ignores our own lock), would otherwise treat the session as expired.
                self._session = number
                sessions.hold(number)
        except BaseException:
            if self._session is not None:
                sessions.release(self._session)  # the rolled-back number is reused
                self._session = None
            raise

    def _sessions(self) -> SessionFile:
        if self._session_file is None:
            self._session_file = SessionFile(self._sessions_path)
        return self._session_file

    def _clear_up(self, connection: sqlite3.Connection) -> bool:
        """End the sessions of processes that have ended; whether a node was removed."""
        sessions = self._sessions()
        ended = [
            number
            for number in _session_numbers(connection)
            if number != self._session and not sessions.lives(number)
        ]
        if not ended:
            return False
        with _transaction(connection):
            # May be zero: another process may have removed them already.
            return sum(_end_session(connection, number) for number in ended) > 0

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise StoreUnreachable(
                    f"{self.path}: another process has held the file's lock for {BUSY_SECONDS} s"
                ) from error
            raise StoreError(
                f"{self.path}: {error}; check that the folder can be written, that its disk has "
                "room, and that the file is a Headrace metadata file"
            ) from error


class _Watch:
    """A thread that polls for commits of other processes and for processes that have ended."""

    def __init__(self, store: SqliteStore, connection: sqlite3.Connection) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._store = store
        self._connection = connection
        self._seen = self._data_version()
        self._failed = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metadata watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            try:
                changed = self._look()
                self._failed = False
            except (sqlite3.Error, OSError) as error:
                if not self._failed:
                    logger.error("cannot look at %s: %s", self._store.path, error)
                self._failed = True
                continue
            if changed:
                tell_all(self.listeners)

    def _look(self) -> bool:
        # Commits of this connection do not change its data_version.
        cleared_up = self._store._clear_up(self._connection)
        version = self._data_version()
        changed = version != self._seen
        self._seen = version
        return changed or cleared_up

    def _data_version(self) -> int:
        """A number that changes when another connection commits."""
        version: int = self._connection.execute("pragma data_version").fetchone()[0]
        return version


def _session_numbers(connection: sqlite3.Connection) -> list[int]:
    return [number for (number,) in connection.execute("select number from sessions")]


def _end_session(connection: sqlite3.Connection, number: int) -> int:
    """Remove a session's nodes and return their number; call it within a transaction."""
    gone = connection.execute(
        "delete from nodes where parent = ? and name in "
        "(select name from ephemerals where session = ?)",
        (LIVE, number),
    ).rowcount
    connection.execute("delete from ephemerals where session = ?", (number,))
    connection.execute("delete from sessions where number = ?", (number,))
    return gone


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction: all statements within it take effect, or none."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
