"""Makes the host do what the catalog says, query by query."""

import asyncio
import json
import logging
from collections.abc import Iterable
from dataclasses import replace

from headrace.pipelines.running.checkpoints import InputOffsets
from headrace.sql.catalog import Catalog, CatalogQuery
from headrace.sql.commands.records import QueryTarget, ReplayPhase, key_of_record
from headrace.sql.hosting import END, HostedState, QuerySpec, QueryStatus, SqlHosting

log = logging.getLogger("headrace.sql")

RETRY_S = 5.0
"""The pause before a query is started again that could not be started."""


class QueryRunner:
    """The queries that run, or should. Methods run in the event loop."""

    def __init__(self, catalog: Catalog, host: SqlHosting) -> None:
        self._catalog = catalog
        self._host = host
        self._running: dict[str, QuerySpec] = {}
        """By id."""
        self._stopped: set[str] = set()
        """Ids of paused queries: their checkpoints exist."""
        self._owned: dict[str, str] = {}
        """The id of the query that a record had when it was last settled, by its key."""
        self._held: dict[str, InputOffsets | None] = {}
        """Queries that run up to some offsets or, without them, not at all, whatever the catalog
        says. A hold is forgotten when the server stops."""
        self._failures: dict[str, str] = {}
        """Queries that could not be started, by id, and why."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False

    async def start(self) -> None:
        """Start all queries, those that others read first; returns before they run."""
        self._started = True
        queries = list(self._catalog.hosted_queries())
        await self._host.keep([each.id for each in queries])
        if any(each.query.target is QueryTarget.RUNNING for each in queries):
            self._host.prepare()
        for each in self._catalog.queries():
            await self.settle(key_of_record(each.statement))
        for replay in self._catalog.replays():
            await self.settle(key_of_record(replay))

    async def stop(self) -> None:
        """Returns when no query runs. They continue with the next server."""
        self._started = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._host.close()

    @property
    def is_started(self) -> bool:
        return self._started

    def changed(self, key: str) -> None:
        """Called after a record of the command topic is replayed."""
        if self._started:
            self._settle_soon(key)

    def _settle_soon(self, key: str, delay_s: float = 0.0) -> None:
        async def settle() -> None:
            await asyncio.sleep(delay_s)
            await self.settle(key)

        task = asyncio.create_task(settle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, key: str) -> None:
        """Returns when the host does what the catalog says about the query of a record."""
        async with self._turns.setdefault(key, asyncio.Lock()):
            found = self._catalog.owned_query(key)
            before = self._owned.pop(key, None)
            if found is not None:
                self._owned[key] = found.id
            # A query may have moved to another record: it is deleted only if no record has it.
            for query in {before, None if found is None else found.id}:
                if query is not None:
                    await self._settle_query(query, key)

    async def _settle_query(self, query: str, key: str) -> None:
        async with self._turns.setdefault(f"query {query}", asyncio.Lock()):
            if not self._started:
                return
            found = self._catalog.hosted_query(query)
            try:
                await self._carry_out(query, found)
                self._failures.pop(query, None)
            except Exception as error:
                # One query that cannot be started leaves the others alone.
                log.exception("the query %s of %s cannot be started or stopped", query, key)
                if found is not None:
                    self._failures[query] = f"{type(error).__name__}: {error}"
                self._owned.setdefault(key, query)
                self._settle_soon(key, RETRY_S)

    async def _carry_out(self, query: str, found: CatalogQuery | None) -> None:
        running = self._running.get(query)
        if found is None:
            if running is not None or query in self._stopped:
                # It was terminated, dropped, or replaced by a query with an id of its own.
                await self._host.delete(query)
                self._running.pop(query, None)
                self._stopped.discard(query)
            return
        spec = self._wanted(found)
        if spec is None:
            if running is not None:
                await self._host.stop(query)
                del self._running[query]
            self._stopped.add(query)
        elif running != spec:
            await self._host.start(spec)
            self._running[query] = spec
            self._stopped.discard(query)

    def _wanted(self, found: CatalogQuery) -> QuerySpec | None:
        """The query as it should run now; None if it should not."""
        spec = found.query.spec
        if found.id in self._held:
            end = self._held[found.id]
            return None if end is None else bounded(spec, end)
        if (end := self._merged_at(found)) is not None:
            return bounded(spec, end)
        return None if found.query.target is QueryTarget.PAUSED else spec

    def _merged_at(self, found: CatalogQuery) -> InputOffsets | None:
        """Up to where a query may read while its rows are merged."""
        for replay in self._catalog.replays():
            if replay.phase in (ReplayPhase.MERGING, ReplayPhase.RETURNING):
                names = {replay.name.casefold(), replay.of.casefold()}
                if found.statement is replay.kept or found.statement.name.casefold() in names:
                    return replay.end
        return None

    # ------------------------------------------------------------------------------------ holds

    async def hold(self, query: str, end: InputOffsets | None) -> None:
        """Let a query read up to these offsets only, or, with None, stop it, until `release`."""
        self._held[query] = end
        await self._settle_query(query, query)

    async def release(self, queries: Iterable[str]) -> None:
        """End holds: the queries are as the catalog says again."""
        for query in queries:
            if query in self._held:
                del self._held[query]
                await self._settle_query(query, query)

    async def status(self, found: CatalogQuery) -> QueryStatus:
        """What is true of a query now."""
        failure = self._failures.get(found.id)
        if failure is not None:
            return QueryStatus(HostedState.FAILED, failure)
        if found.query.target is QueryTarget.PAUSED and found.id not in self._running:
            return QueryStatus(HostedState.UNKNOWN)
        return await self._host.status(found.id)


def bounded(spec: QuerySpec, end: InputOffsets) -> QuerySpec:
    """The query, which reads its inputs up to these offsets and waits."""
    topics = {each.topic for each in spec.sources}
    offsets = {topic: dict(end[topic]) for topic in sorted(topics) if topic in end}
    text = json.dumps(offsets, separators=(",", ":"))
    return replace(spec, properties={**spec.properties, END: text})
