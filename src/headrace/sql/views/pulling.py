"""Answers pull queries from views.

A query of one key is a look-up in the event loop: it takes some microseconds. All others run in
threads, several at once, for a limited time and with a limited number of rows. Queries that views
cannot answer raise NotAnswerable.
"""

import asyncio
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headrace.sql.hosting import ResultColumn
from headrace.sql.language.select import Select
from headrace.sql.sources import SqlSource
from headrace.sql.views.compiling import CompiledQuery, compiled, lifted
from headrace.sql.views.connections import ReadConnections, connect
from headrace.sql.views.pull_plans import PullPlan, pull_plan
from headrace.sql.views.spark_sql.typed import NotAnswerable
from headrace.sql.views.store import ViewStore, ViewStores
from headrace.types import TopicPartition

THREADS = 4
MOST_STATEMENTS = 1000
"""Forms of look-ups that are remembered."""
_STEPS = 10_000
"""Instructions of SQLite between two looks at the clock."""
_ROWS_AT_ONCE = 1000

Sources = Callable[[str], SqlSource | None]
Offsets = Mapping[TopicPartition, int]


class PullRefused(Exception):
    """A query takes too long, or has too many rows. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class PullLimits:
    """The bounds of a query."""

    seconds: float = 30.0
    rows: int = 100_000
    loading_seconds: float = 60.0
    """How long a query waits for a view that reads its topic."""


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """The result of a query. Values are those of `hosting.BatchRows`."""

    columns: tuple[ResultColumn, ...]
    rows: list[list[object]]
    offsets: Mapping[str, Mapping[int, int]]
    """By topic: all records before these offsets are in the answer."""


@dataclass(slots=True)
class _Lookup:
    """A form of statement: all of them differ in the key only."""

    places: tuple[int, ...]
    """Of the key's literals, in the order of the parameters."""
    by_others: dict[tuple[str | int, ...], CompiledQuery]
    """By the other literals."""


class PullQueries:
    """Answers from the views of a server. Its methods run in the event loop."""

    def __init__(self, stores: ViewStores, limits: PullLimits = PullLimits()) -> None:  # noqa: B008
        self._stores = stores
        self._limits = limits
        self._connections = ReadConnections()
        self._of_lookups: dict[ViewStore, sqlite3.Connection] = {}
        self._lookups: OrderedDict[tuple[str, ...], _Lookup] = OrderedDict()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sql-pull")
        stores.on_close = self._forget

    async def answer(
        self, select: Select, sources: Sources, *, text: str = "", ends: Offsets | None = None
    ) -> PullAnswer:
        """The answer of a query, once the views have all records before `ends`.

        `text` is the whole statement; `quick` answers similar ones later. Raises SqlError,
        NotAnswerable, PullRefused and ViewBehind.
        """
        plan = pull_plan(select, sources)
        query = compiled(plan)
        if text and query.key:
            self._remember(text, query)
        views = tuple([await self._ready(source, ends or {}) for source in query.tables])
        if query.is_lookup:
            return self._look_up(query, views[0], query.key)
        loop = asyncio.get_running_loop()
        offsets = _offsets(views)
        rows = await loop.run_in_executor(self._threads, self._run, query, views)
        return PullAnswer(query.columns, rows, offsets)

    def quick(self, text: str, sources: Sources, ends: Offsets | None = None) -> PullAnswer | None:
        """The answer at once, if the statement looks up a key like one before; else None."""
        found = lifted(text)
        lookup = None if found is None else self._lookups.get(found.skeleton)
        if found is None or lookup is None:
            return None
        literals = found.literals
        others = tuple(each for place, each in enumerate(literals) if place not in lookup.places)
        query = lookup.by_others.get(others)
        if query is None:
            return None
        source = query.tables[0]
        view = self._stores.get(source)
        if sources(query.names[0]) != source or view is None or not view.is_loaded:
            return None
        if ends and not view.has_reached(_of_topic(ends, source.topic)):
            return None
        key = {f"k{number}": literals[place] for number, place in enumerate(lookup.places)}
        try:
            return self._look_up(query, view, key)
        except (NotAnswerable, OverflowError):
            return None

    def explain(self, select: Select, sources: Sources) -> str:
        """How a query is answered; SqlError, NotAnswerable."""
        query = compiled(pull_plan(select, sources))
        names = ", ".join(each.name for each in query.tables)
        kind = "a look-up by key in" if query.is_lookup else "a query over"
        return f"Answered by {kind} the view of {names}: {query.sql}"

    @staticmethod
    def for_spark(select: Select, sources: Sources) -> PullPlan:
        """The query for the host, if views cannot answer it; SqlError, NotAnswerable."""
        return pull_plan(select, sources)

    def close(self) -> None:
        """Blocks until running queries have ended."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._connections.close()
        for connection in self._of_lookups.values():
            connection.close()
        self._of_lookups.clear()

    # ------------------------------------------------------------------------------------ views

    async def _ready(self, source: SqlSource, ends: Offsets) -> ViewStore:
        view = await self._stores.ready(source, self._limits.loading_seconds)
        wanted = _of_topic(ends, source.topic)
        if wanted:
            await view.wait_for(wanted, self._limits.loading_seconds)
        return view

    def _forget(self, view: ViewStore) -> None:
        connection = self._of_lookups.pop(view, None)
        if connection is not None:
            connection.close()
        self._connections.close(view)

    # ---------------------------------------------------------------------------------- look-ups

    def _remember(self, text: str, query: CompiledQuery) -> None:
        """Answer similar statements by `quick`, if it is clear which literals are the key."""
        found = lifted(text)
        if found is None or not query.is_lookup:
            return
        places: list[int] = []
        for value in query.key.values():
            same = [
                place
                for place, each in enumerate(found.literals)
                if type(each) is type(value) and each == value
            ]
            if len(same) != 1:
                return
            places += same
        others = tuple(each for place, each in enumerate(found.literals) if place not in places)
        known = self._lookups.get(found.skeleton)
        if known is None or known.places != tuple(places) or len(known.by_others) > THREADS:
            known = self._lookups[found.skeleton] = _Lookup(tuple(places), {})
        known.by_others[others] = query
        self._lookups.move_to_end(found.skeleton)
        if len(self._lookups) > MOST_STATEMENTS:
            self._lookups.popitem(last=False)

    def _look_up(
        self, query: CompiledQuery, view: ViewStore, key: Mapping[str, str | int]
    ) -> PullAnswer:
        connection = self._of_lookups.get(view)
        if connection is None:
            connection = self._of_lookups[view] = connect([view.path])
        offsets = _offsets((view,))
        try:
            found = connection.execute(query.sql, {**key, "now": _now()}).fetchall()
        except sqlite3.Error as error:
            raise _not_answerable(error) from None
        return PullAnswer(query.columns, [query.load(row) for row in found], offsets)

    # ---------------------------------------------------------------------------- in the threads

    def _run(self, query: CompiledQuery, views: tuple[ViewStore, ...]) -> list[list[object]]:
        deadline = time.monotonic() + self._limits.seconds
        with self._connections.borrow(views) as connection:
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _STEPS)
            rows: list[list[object]] = []
            try:
                cursor = connection.execute(query.sql, {**query.key, "now": _now()})
                while some := cursor.fetchmany(_ROWS_AT_ONCE):
                    rows += map(query.load, some)
                    if len(rows) > self._limits.rows:
                        raise PullRefused(
                            f"the result has more than {self._limits.rows} rows; add a LIMIT or "
                            "another condition"
                        )
            except sqlite3.Error as error:
                if time.monotonic() > deadline:
                    raise PullRefused(
                        f"the query takes longer than {self._limits.seconds:g} s; add a condition "
                        "on the key"
                    ) from None
                raise _not_answerable(error) from None
            connection.set_progress_handler(None, 0)
        return rows


def _now() -> int:
    return time.time_ns() // 1000


def _offsets(views: tuple[ViewStore, ...]) -> dict[str, Mapping[int, int]]:
    return {view.source.topic: view.positions for view in views}


def _of_topic(offsets: Offsets, topic: str) -> dict[int, int]:
    return {
        partition.partition: end for partition, end in offsets.items() if partition.topic == topic
    }


def _not_answerable(error: sqlite3.Error) -> NotAnswerable:
    return NotAnswerable(f"SQLite cannot run the query: {error}")
