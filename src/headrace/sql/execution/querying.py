"""SELECT as a statement of its own: push queries, which run until their client goes, and pull
queries, which answer with what is there now."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.sql.errors import NOT_READY, StatementRefused
from headrace.sql.execution.inserting import RowInserter
from headrace.sql.execution.persistent import make_plan, plan_sources, used_functions
from headrace.sql.execution.session import RESET, Session
from headrace.sql.execution.topics import start_offsets
from headrace.sql.hosting import (
    START,
    HostUnavailable,
    PushedRows,
    QueryRefused,
    ResultColumn,
)
from headrace.sql.language.statements import SelectStatement
from headrace.sql.plans import QueryPlan
from headrace.sql.server import SqlServer
from headrace.sql.sources import SqlSource
from headrace.sql.views.pulling import PullRefused
from headrace.sql.views.spark_sql.typed import NotAnswerable
from headrace.sql.views.store import ViewBehind
from headrace.sql.views.tailing import TailedRows

log = logging.getLogger("headrace.sql")

Rows = Sequence[Sequence[object]]


@dataclass(slots=True)
class SelectResult:
    """The result of a SELECT. Whoever has it closes it."""

    id: str
    text: str
    columns: tuple[ResultColumn, ...]
    keys: tuple[str, ...]
    is_push: bool
    pushed: PushedRows | None = None
    rows: Rows = ()
    """Of a pull query: all of them."""
    limit: int | None = None
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Of a pull query: up to which offsets of which topics its answer is."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def batches(self) -> AsyncIterator[Rows]:
        """The rows; ends when the result is closed, and at the limit. StatementRefused if the query
        fails."""
        if self.pushed is None:
            if self.rows:
                yield self.rows
            return
        left = self.limit
        rows = aiter(self.pushed.rows())
        closed = asyncio.create_task(self.closed.wait())
        following: asyncio.Future[Rows] | None = None
        try:
            while left is None or left > 0:
                following = asyncio.ensure_future(anext(rows))
                await asyncio.wait({following, closed}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    return
                try:
                    batch = following.result()
                except StopAsyncIteration:
                    return
                except (QueryRefused, HostUnavailable) as error:
                    raise StatementRefused(f"The query has ended: {error}") from error
                if left is not None:
                    batch = batch[:left]
                    left -= len(batch)
                if batch:
                    yield batch
        finally:
            closed.cancel()
            if following is not None and not following.done():
                # Also when the client has gone: the task would end with an error that nobody reads.
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                    await following


class SelectQueries:
    """The SELECTs of clients."""

    def __init__(self, server: SqlServer, inserter: RowInserter) -> None:
        self._server = server
        self._inserter = inserter
        self.running: dict[str, SelectResult] = {}
        """Push queries by id."""
        self.pushes = 0
        self.pulls = 0

    async def run(
        self, statement: SelectStatement, session: Session, text: str = ""
    ) -> SelectResult:
        """The result of a query; SqlError, StatementRefused.

        `text` is the whole request, which `quick` recognises if it comes again.
        """
        self._server.check_ready()
        if statement.select.emit is None:
            self.pulls += 1
            return await self._pull(statement, text)
        self.pushes += 1
        return await self._push(statement, session)

    async def end(self, result: SelectResult) -> None:
        """The query runs no more."""
        result.closed.set()
        self.running.pop(result.id, None)
        if result.pushed is not None:
            await result.pushed.close()

    def close(self, query: str) -> bool:
        """End a push query of another request; False if there is none with this id."""
        found = self.running.get(query)
        if found is None:
            return False
        found.closed.set()
        return True

    async def _push(self, statement: SelectStatement, session: Session) -> SelectResult:
        server = self._server
        made = make_plan(server, statement.select, into_table=None)
        sources = plan_sources(server, made)
        start = await start_offsets(server.cluster, sources, session.property(RESET))
        functions = used_functions(server, made)
        try:
            pushed = self._tailed(made, sources, start) if not functions else None
            if pushed is None:
                pushed = await server.host.push(made, sources, {START: start}, functions)
        except QueryRefused as error:
            raise StatementRefused(str(error)) from None
        except HostUnavailable as error:
            raise StatementRefused(f"The query cannot be started: {error}", NOT_READY) from None
        result = SelectResult(
            f"transient_{uuid.uuid4().hex[:16]}",
            statement.text,
            pushed.columns,
            made.keys,
            is_push=True,
            pushed=pushed,
            limit=made.limit,
        )
        self.running[result.id] = result
        return result

    def _tailed(
        self, made: QueryPlan, sources: Sequence[SqlSource], start: str
    ) -> PushedRows | None:
        """The rows of a filter over one topic, which this server reads itself; None if the query
        is one for Spark."""
        options = self._server.options
        try:
            return TailedRows(options.client, made, sources[0], {START: start}, options.registry)
        except NotAnswerable as error:
            log.debug("Spark runs a push query: %s", error)
            return None

    def quick(self, text: str) -> SelectResult | None:
        """The answer to a look-up by key that is like one before, without reading the SQL."""
        found = self._server.pulls.quick(text, self._server.catalog.definition, self._inserter.ends)
        if found is None or self._server.problem:
            return None
        self.pulls += 1
        return _pulled(text, found.columns, found.rows, found.offsets)

    async def _pull(self, statement: SelectStatement, text: str) -> SelectResult:
        server = self._server
        definition = server.catalog.definition
        try:
            found = await server.pulls.answer(
                statement.select, definition, text=text, ends=self._inserter.ends
            )
        except NotAnswerable as error:
            log.info("Spark answers %s, because the views cannot: %s", statement.text, error)
            return await self._batch(statement)
        except (PullRefused, ViewBehind) as error:
            raise StatementRefused(f"The query is not answered: {error}") from None
        return _pulled(statement.text, found.columns, found.rows, found.offsets)

    async def _batch(self, statement: SelectStatement) -> SelectResult:
        """The answer of Spark, over all records of the topics."""
        server = self._server
        try:
            made = server.pulls.for_spark(statement.select, server.catalog.definition)
            plan = made.for_spark()
            functions = used_functions(server, plan)
            sources = tuple({each.name: each for each in made.sources.values()}.values())
            found = await server.host.batch(plan, sources, functions)
        except (QueryRefused, NotAnswerable) as error:
            raise StatementRefused(str(error)) from None
        except HostUnavailable as error:
            raise StatementRefused(f"The query cannot be answered: {error}", NOT_READY) from None
        return _pulled(statement.text, found.columns, found.rows, {})


def _pulled(
    text: str,
    columns: tuple[ResultColumn, ...],
    rows: Rows,
    offsets: Mapping[str, Mapping[int, int]],
) -> SelectResult:
    query = f"query_{uuid.uuid4().hex[:16]}"
    return SelectResult(query, text, columns, (), is_push=False, rows=rows, offsets=offsets)
