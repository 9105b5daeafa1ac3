"""The views of a server: one SQLite file for each table that is queried, fed by its topic.

A view is made when its table is first queried, and is kept over restarts of the server. It is built
again if the table is defined otherwise, or if its topic was deleted and created again.
"""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.client.offsets import COMMITTED, LATEST, list_offsets
from headrace.schemas.client import SchemaClient
from headrace.sql.cluster_access import ClusterAccess
from headrace.sql.records.decoding import BadRow, RowReader
from headrace.sql.records.errors import WrongValue
from headrace.sql.sources import SqlSource
from headrace.sql.views.following import FollowedTable, TableFollower
from headrace.sql.views.view_file import ViewFile, remove_files
from headrace.types import TopicPartition

log = logging.getLogger("headrace.sql")

_LOGGED_BAD_RECORDS = 10


class ViewBehind(Exception):
    """A view has not reached what was asked for in time, or cannot be made at present. The message
    is a sentence."""


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """What is true of a view at the moment of asking."""

    positions: Mapping[int, int]
    """The next offset of each partition: all before it are in the view."""
    ends: Mapping[int, int]
    """The ends of the partitions, as far as they are known."""
    bad_records: int
    """Records that are not rows of the table, since the view was opened."""
    problem: str | None
    """Why the topic cannot be read at present."""

    @property
    def lag(self) -> int:
        """Offsets that are not in the view yet."""
        return sum(max(0, end - self.positions.get(number, 0)) for number, end in self.ends.items())


class ViewStore:
    """The view of one table. All its methods run in the event loop."""

    def __init__(self, source: SqlSource, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.source = source
        self.path = path
        self.is_loaded = False
        """Whether it has once reached the end of its topic since it was opened."""
        self._loop = loop
        self._positions: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._bad_records = 0
        self._problem: str | None = None
        self._waiting: list[tuple[Mapping[int, int], asyncio.Future[None]]] = []
        self._is_closed = False

    def status(self) -> ViewStatus:
        return ViewStatus(dict(self._positions), dict(self._ends), self._bad_records, self._problem)

    @property
    def positions(self) -> Mapping[int, int]:
        """The next offset of each partition. It is not changed, but replaced."""
        return self._positions

    def has_reached(self, offsets: Mapping[int, int]) -> bool:
        """Whether all records before these offsets are in the view."""
        return all(self._positions.get(number, -1) >= end for number, end in offsets.items())

    async def wait_for(self, offsets: Mapping[int, int], timeout_s: float) -> None:
        """Returns when all records before these offsets are in the view; raises ViewBehind."""
        if self.has_reached(offsets):
            return
        if self._is_closed:
            raise ViewBehind(f"the view of {self.source.name} was closed")
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((offsets, future))
        try:
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise self._behind(offsets, timeout_s) from None

    # ------------------------------------------------- called by the thread that reads the topic

    def reached(self, positions: Mapping[int, int], ends: Mapping[int, int]) -> None:
        self._call(self._advance, positions, ends)

    def met(self, bad: Sequence[BadRow]) -> None:
        self._call(self._count, bad)

    def failed(self, sentence: str) -> None:
        self._call(self._note, sentence)

    def _call(self, method: "object", *arguments: object) -> None:
        # The loop may have been closed before the thread has ended.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(method, *arguments)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------- in the event loop

    def _advance(self, positions: dict[int, int], ends: dict[int, int]) -> None:
        self._positions, self._ends = positions, ends
        self._problem = None
        waiting, self._waiting = self._waiting, []
        for offsets, future in waiting:
            if not self.has_reached(offsets):
                self._waiting.append((offsets, future))
            elif not future.done():
                future.set_result(None)

    def _count(self, bad: Sequence[BadRow]) -> None:
        for each in bad[: max(0, _LOGGED_BAD_RECORDS - self._bad_records)]:
            log.warning(
                "%s-%d, offset %d is not a row of the table %s: %s",
                *(self.source.topic, each.partition, each.record.offset, self.source.name),
                each.reason,
            )
        self._bad_records += len(bad)

    def _note(self, sentence: str) -> None:
        self._problem = sentence

    def _behind(self, offsets: Mapping[int, int], timeout_s: float) -> ViewBehind:
        missing = ", ".join(
            f"partition {number} is at {self._positions.get(number, 0)} of {end}"
            for number, end in sorted(offsets.items())
            if self._positions.get(number, -1) < end
        )
        problem = f". Its topic cannot be read: {self._problem}" if self._problem else ""
        return ViewBehind(
            f"the view of {self.source.name} has not read its topic within {timeout_s:g} s: "
            f"{missing}{problem}"
        )

    def close(self) -> None:
        """Ends all waits."""
        self._is_closed = True
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(ViewBehind(f"the view of {self.source.name} was closed"))


class ViewStores:
    """All views of a server. Its methods run in the event loop."""

    def __init__(
        self, access: ClusterAccess, folder: Path, registry: SchemaClient | None = None
    ) -> None:
        self._access = access
        self._folder = folder
        self._registry = registry
        self._open: dict[str, tuple[ViewStore, FollowedTable]] = {}
        """By the name of the table without regard to case."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._follower: TableFollower | None = None
        self.on_close: Callable[[ViewStore], None] = lambda _: None
        """Called when a view is closed."""

    def get(self, source: SqlSource) -> ViewStore | None:
        """The view of a table, if it is open and up to date with its definition."""
        found = self._open.get(source.name.casefold())
        return found[0] if found is not None and found[0].source == source else None

    async def open(self, source: SqlSource) -> ViewStore:
        """The view of a table; made if there is none. It may not have read its topic yet. Raises
        ViewBehind."""
        name = source.name.casefold()
        async with self._turns.setdefault(name, asyncio.Lock()):
            found = self._open.get(name)
            if found is not None and found[0].source == source:
                return found[0]
            if found is not None:
                await self._close(name)
            loop = asyncio.get_running_loop()
            try:
                store, table = await asyncio.to_thread(self._make, source, loop)
            except (ClientError, WrongValue, sqlite3.Error, OSError) as error:
                raise ViewBehind(f"the view of {source.name} cannot be made: {error}") from error
            if self._follower is None:
                self._follower = TableFollower(self._access.config)
                self._follower.start()
            self._follower.add(table)
            self._open[name] = store, table
            return store

    async def ready(self, source: SqlSource, timeout_s: float) -> ViewStore:
        """The view of a table, once it has read its topic up to its end; raises ViewBehind."""
        store = self.get(source) or await self.open(source)
        if not store.is_loaded:
            await self.catch_up(store, timeout_s)
            store.is_loaded = True
        return store

    async def catch_up(self, store: ViewStore, timeout_s: float) -> None:
        """Returns when all that is in the topic now is in the view; raises ViewBehind."""
        topic = store.source.topic
        ends = await self._access.ask(
            f"Asking for the end of topic {topic}",
            lambda cluster: list_offsets(
                cluster,
                dict.fromkeys(
                    (
                        TopicPartition(topic, number)
                        for number in range(len(cluster.existing_topics([topic])[topic].leaders))
                    ),
                    LATEST,
                ),
                COMMITTED,
            ),
        )
        await store.wait_for({each.partition: end for each, end in ends.items()}, timeout_s)

    async def remove(self, name: str) -> None:
        """Close the view of a table, and delete its files."""
        key = name.casefold()
        async with self._turns.setdefault(key, asyncio.Lock()):
            await self._close(key)
            await asyncio.to_thread(remove_files, self._folder, name)

    async def close(self) -> None:
        """Close all views. Their files stay."""
        if self._follower is not None:
            await asyncio.to_thread(self._follower.stop)
        for store, table in self._open.values():
            store.close()
            self.on_close(store)
            table.file.close()
        self._open.clear()

    async def _close(self, name: str) -> None:
        found = self._open.pop(name, None)
        if found is None:
            return
        store, table = found
        store.close()
        self.on_close(store)
        assert self._follower is not None, "an open view is followed"
        await asyncio.to_thread(self._follower.remove, table)
        await asyncio.to_thread(table.file.close)

    def _make(
        self, source: SqlSource, loop: asyncio.AbstractEventLoop
    ) -> tuple[ViewStore, FollowedTable]:
        self._folder.mkdir(parents=True, exist_ok=True)
        reader = RowReader(source, self._registry)
        file = ViewFile(self._folder, source)
        store = ViewStore(source, file.path, loop)
        retention_ms = None if source.window is None else source.window.retention_ms
        return store, FollowedTable(source.topic, file, reader, store, retention_ms)
