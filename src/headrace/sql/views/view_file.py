"""The SQLite file of one table: its rows, and the offsets up to which its topic was read.

`rows`: the columns of the table and its pseudo columns; its primary key is the key of the table,
with the bounds of the window if keys have one. `positions`: the next offset of each partition,
written in the same transaction as the rows, so that every record is applied exactly once. `about`:
the id of the topic.

One thread writes; any number of connections read at the same time (WAL).
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from headrace.sql.plans import ROWOFFSET, ROWPARTITION, ROWTIME, WINDOWEND, WINDOWSTART
from headrace.sql.records.decoding import Row
from headrace.sql.records.types import parse_type
from headrace.sql.sources import ColumnRole, SqlSource, source_to_json
from headrace.sql.views.storage import Stored, declared, storing

LAYOUT = 1
"""Of the files. Files of another layout are built again."""
SUFFIX = ".sqlite"
_BUSY_MS = 10_000
_CACHE_KIB = 16_384
_TOPIC_ID = "topic id"


def quoted(name: str) -> str:
    """A name in SQLite's quotes."""
    return '"' + name.replace('"', '""') + '"'


def file_name(source: SqlSource) -> str:
    """The name of a table's file: another one for every other definition of the table."""
    about = source_to_json(replace(source, read_only=False))
    digest = hashlib.sha256(json.dumps([LAYOUT, about], sort_keys=True).encode()).hexdigest()
    return f"{_prefix(source.name)}{digest[:16]}{SUFFIX}"


def _prefix(name: str) -> str:
    """What the names of all files of a table begin with."""
    readable = re.sub(r"[^a-z0-9_]", "_", name.casefold())[:80]
    exact = hashlib.sha256(name.casefold().encode()).hexdigest()[:8]
    return f"{readable}-{exact}-"


def remove_files(folder: Path, name: str, keep: str | None = None) -> None:
    """Delete the files of a table, but the one with the name `keep`."""
    for path in folder.glob(f"{_prefix(name)}*"):
        if keep is None or not path.name.startswith(keep):
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ViewColumns:
    """The columns of the file of a table, in order."""

    names: tuple[str, ...]
    key: tuple[str, ...]
    """The primary key."""
    has_nullable_key: bool
    """Several columns are the key: some of them may be null."""


def view_columns(source: SqlSource) -> ViewColumns:
    """The columns of the file: those of the table, then pseudo columns."""
    names = (*(each.name for each in source.columns), ROWTIME, ROWPARTITION, ROWOFFSET)
    keys = tuple(each.name for each in source.keys)
    if source.window is None:
        return ViewColumns(names, keys, len(keys) > 1)
    # A session has another end when it grows; other windows have one end for each start.
    bounds = (WINDOWSTART, WINDOWEND) if source.window.kind == "SESSION" else (WINDOWSTART,)
    return ViewColumns((*names, WINDOWSTART, WINDOWEND), (*keys, *bounds), len(keys) > 1)


class ViewFile:
    """The connection that writes a file. It is used by one thread at a time."""

    def __init__(self, folder: Path, source: SqlSource) -> None:
        self.path = folder / file_name(source)
        self._source = source
        self._columns = view_columns(source)
        remove_files(folder, source.name, keep=self.path.name)
        try:
            self._connection = self._open()
        except sqlite3.DatabaseError:
            # A damaged file: everything in it is in the topic as well.
            remove_files(folder, source.name)
            self._connection = self._open()
        names = self._columns.names
        self._key_at = [names.index(name) for name in self._columns.key]
        self._store = [
            (at, convert)
            for at, column in enumerate(source.columns)
            if (convert := storing(parse_type(column.type))) is not None
        ]
        self._insert = (
            f"INSERT OR REPLACE INTO rows ({', '.join(map(quoted, names))}) "
            f"VALUES ({', '.join('?' * len(names))})"
        )
        by_key = " AND ".join(f"{quoted(name)} = ?" for name in self._columns.key)
        self._delete = f"DELETE FROM rows WHERE {by_key}"
        self._delete_null = self._delete.replace(" = ?", " IS ?")

    def close(self) -> None:
        self._connection.close()

    # ---------------------------------------------------------------------------------- reading

    def positions(self) -> dict[int, int]:
        """The next offset of each partition."""
        return dict(self._connection.execute("SELECT number, next_offset FROM positions"))

    def topic_id(self) -> str | None:
        """The id of the topic that the rows are from."""
        found = self._connection.execute("SELECT value FROM about WHERE name = ?", (_TOPIC_ID,))
        row = found.fetchone()
        return None if row is None else str(row[0])

    # ---------------------------------------------------------------------------------- writing

    def begin_again(self, topic_id: str) -> None:
        """Delete all rows and offsets: the topic is another one, or its log has changed."""
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM rows")
            connection.execute("DELETE FROM positions")
            connection.execute("REPLACE INTO about VALUES (?, ?)", (_TOPIC_ID, topic_id))

    def apply(self, rows: Iterable[Row], positions: Mapping[int, int]) -> None:
        """Set and delete rows in their order, and set the positions, in one transaction."""
        latest: dict[tuple[Stored, ...], tuple[Stored, ...] | None] = {}
        for row in rows:
            stored = self._stored(row)
            key = tuple(stored[at] for at in self._key_at)
            if None in key and self._is_no_key(key):
                continue  # no row of a table
            latest.pop(key, None)
            latest[key] = None if row.is_deleted else stored
        try:
            self._write(latest, positions)
        except UnicodeEncodeError:
            # Half a surrogate pair, which JSON can escape and no text has.
            clean = {
                _encodable(key): None if stored is None else _encodable(stored)
                for key, stored in latest.items()
            }
            self._write(clean, positions)

    def _write(
        self,
        latest: Mapping[tuple[Stored, ...], tuple[Stored, ...] | None],
        positions: Mapping[int, int],
    ) -> None:
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            # The unique index takes rows with nulls for different ones.
            with_null = [key for key in latest if None in key]
            if with_null:
                connection.executemany(self._delete_null, with_null)
            gone = [key for key, stored in latest.items() if stored is None and None not in key]
            if gone:
                connection.executemany(self._delete, gone)
            there = [stored for stored in latest.values() if stored is not None]
            if there:
                connection.executemany(self._insert, there)
            connection.executemany("REPLACE INTO positions VALUES (?, ?)", positions.items())

    def expire(self, before_ms: int) -> int:
        """Delete the windows that start before a time; returns how many."""
        with self._connection as connection:
            found = connection.execute(
                f"DELETE FROM rows WHERE {quoted(WINDOWSTART)} < ?", (before_ms,)
            )
        return found.rowcount

    def _is_no_key(self, key: Sequence[Stored]) -> bool:
        of_columns = key[: len(self._source.keys)]
        return not self._columns.has_nullable_key or all(each is None for each in of_columns)

    def _stored(self, row: Row) -> tuple[Stored, ...]:
        values: Sequence[object] = row.values
        if self._store:
            changed = list(values)
            for at, convert in self._store:
                if changed[at] is not None:
                    changed[at] = convert(changed[at])
            values = changed
        found = (*values, row.rowtime, row.partition, row.offset)
        if self._source.window is not None:
            found = (*found, row.window_start, row.window_end)
        return cast("tuple[Stored, ...]", found)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            for statement in self._schema():
                connection.execute(statement)
            connection.execute("SELECT count(*) FROM positions")
        except BaseException:
            connection.close()
            raise
        return connection

    def _schema(self) -> list[str]:
        of_source = {
            each.name: declared(parse_type(each.type))
            + (" NOT NULL" if self._is_required(each.role) else "")
            for each in self._source.columns
        }
        columns = [
            f"{quoted(name)} {of_source.get(name, 'INTEGER')}" for name in self._columns.names
        ]
        key = ", ".join(map(quoted, self._columns.key))
        others = [
            "CREATE TABLE IF NOT EXISTS positions (number INTEGER PRIMARY KEY, next_offset)",
            "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
        ]
        whole = ", ".join(columns)
        if self._columns.has_nullable_key:
            return [
                f"CREATE TABLE IF NOT EXISTS rows ({whole})",
                f"CREATE UNIQUE INDEX IF NOT EXISTS rows_by_key ON rows ({key})",
                *others,
            ]
        rows = f"CREATE TABLE IF NOT EXISTS rows ({whole}, PRIMARY KEY ({key})) WITHOUT ROWID"
        return [rows, *others]

    def _is_required(self, role: ColumnRole) -> bool:
        return role is ColumnRole.KEY and not self._columns.has_nullable_key


def _encodable(values: Sequence[Stored]) -> tuple[Stored, ...]:
    return tuple(
        each.encode(errors="replace").decode() if isinstance(each, str) else each for each in values
    )
