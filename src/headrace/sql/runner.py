"""Makes the host do what the catalog says, query by query."""

import asyncio
import logging

from headrace.sql.catalog import Catalog, CatalogQuery
from headrace.sql.commands.records import QueryTarget
from headrace.sql.hosting import HostedState, QuerySpec, QueryStatus, SqlHosting

log = logging.getLogger("headrace.sql")

RETRY_S = 5.0
"""The pause before a query is started again that could not be started."""


class QueryRunner:
    """The queries that run, or should. Methods run in the event loop."""

    def __init__(self, catalog: Catalog, host: SqlHosting) -> None:
        self._catalog = catalog
        self._host = host
        self._running: dict[str, QuerySpec] = {}
        """By the key of the record in the command topic."""
        self._stopped: dict[str, str] = {}
        """Ids of paused queries by key: their checkpoints exist."""
        self._failures: dict[str, str] = {}
        """Queries that could not be started, by id, and why."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False

    async def start(self) -> None:
        """Start all queries, those that others read first; returns before they run."""
        self._started = True
        queries = list(self._catalog.queries())
        await self._host.keep([each.id for each in queries])
        if any(each.query.target is QueryTarget.RUNNING for each in queries):
            self._host.prepare()
        for key in self._catalog.keys_of_queries():
            await self.settle(key)

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
            if not self._started:
                return
            found = self._catalog.owned_query(key)
            try:
                await self._carry_out(key, found)
                if found is not None:
                    self._failures.pop(found.id, None)
            except Exception as error:
                # One query that cannot be started leaves the others alone.
                log.exception("the query of %s cannot be started or stopped", key)
                if found is not None:
                    self._failures[found.id] = f"{type(error).__name__}: {error}"
                self._settle_soon(key, RETRY_S)

    async def _carry_out(self, key: str, found: CatalogQuery | None) -> None:
        running = self._running.get(key)
        known = running.id if running is not None else self._stopped.get(key)
        if known is not None and (found is None or found.id != known):
            # It was terminated, dropped, or replaced by a query with an id of its own.
            await self._host.delete(known)
            self._running.pop(key, None)
            self._stopped.pop(key, None)
            self._failures.pop(known, None)
            running = None
        if found is None:
            return
        spec = found.query.spec
        if found.query.target is QueryTarget.PAUSED:
            if running is not None:
                await self._host.stop(spec.id)
                del self._running[key]
            self._stopped[key] = spec.id
        elif running != spec:
            await self._host.start(spec)
            self._running[key] = spec
            self._stopped.pop(key, None)

    async def status(self, found: CatalogQuery) -> QueryStatus:
        """What is true of a query now."""
        failure = self._failures.get(found.id)
        if failure is not None:
            return QueryStatus(HostedState.FAILED, failure)
        if found.query.target is QueryTarget.PAUSED:
            return QueryStatus(HostedState.UNKNOWN)
        return await self._host.status(found.id)
