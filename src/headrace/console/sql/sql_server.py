"""The SQL server as pages see it: its streams, tables and queries, and statements of users.

It is asked in threads of its own: a statement may wait until Spark has started.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from headrace.admin.sql_client import SqlRest, SqlRestError, SqlRows
from headrace.console.sql.query_rows import QueryRows, RunningQueries
from headrace.console.sql.statements import SqlStatement, quoted_name
from headrace.service.errors import HttpError

T = TypeVar("T")
Entity = Mapping[str, Any]

LIST_S = 1.0
COLUMNS_S = 5.0
"""How long lists are not asked for again."""
THREADS = 6
MOST_DESCRIBED = 200
"""Streams and tables whose columns are asked for, for the completion."""
EXACT = 2**53
"""Numbers of JavaScript are exact up to this one."""


class SqlServerClient:
    """Asks the server. Errors are HttpErrors for the browser."""

    def __init__(self, client: SqlRest | None, missing: str) -> None:
        """`missing` tells why there is no client."""
        self._client = client
        self._missing = missing
        self._lock = asyncio.Lock()
        self._lists: dict[str, tuple[float, Sequence[Entity]]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self.running = RunningQueries()

    async def info(self) -> Entity:
        """Version and service of the server, and its functions."""
        client = self._configured()
        info = await self._call(client.info)
        (functions, *_) = await self._list("LIST FUNCTIONS;", COLUMNS_S)
        return {**info, "functions": functions.get("functions", [])}

    async def queries(self) -> Entity:
        """All queries with their states."""
        (found, *_) = await self._list("LIST QUERIES;", LIST_S)
        return found

    async def sources(self) -> tuple[Sequence[Entity], Sequence[Entity], Sequence[str]]:
        """Streams and tables, their descriptions as far as there are not too many, and warnings."""
        streams, tables, *_ = await self._list("LIST STREAMS; LIST TABLES;", LIST_S)
        rows = [*streams.get("streams", ()), *tables.get("tables", ())]
        names = [quoted_name(str(each["name"])) for each in rows[:MOST_DESCRIBED]]
        text = " ".join(f"DESCRIBE {name};" for name in names)
        described = await self._list(text, COLUMNS_S) if text else []
        return rows, described, [str(each["message"]) for each in streams.get("warnings", ())]

    async def run(self, text: str, properties: Mapping[str, str], role: str) -> Sequence[Entity]:
        """The results of statements. The server carries out those of the role only."""
        client = self._configured()
        found = await self._call(partial(client.run, text, properties, role))
        if role != "read":
            self._lists.clear()
        return [_exact(each) for each in found]

    async def query(
        self, before: str, statement: SqlStatement, properties: Mapping[str, str], owner: str
    ) -> QueryRows:
        """Starts a query; `before` has the statements of its session."""
        client = self._configured()
        text = f"{before}{statement.text};"

        def ask() -> SqlRows:
            return client.query(text, properties)

        try:
            return await self.running.start(
                ask,
                owner,
                is_endless=statement.is_endless,
                is_text=statement.text[:5].upper() == "PRINT",
            )
        except SqlRestError as error:
            raise _http_error(error) from None

    async def stop(self) -> None:
        await self.running.stop()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _configured(self) -> SqlRest:
        if self._client is None:
            raise HttpError(501, self._missing)
        return self._client

    async def _list(self, text: str, for_s: float) -> Sequence[Entity]:
        """The results of statements that all pages ask for."""
        client = self._configured()
        async with self._lock:
            known = self._lists.get(text)
            if known is None or time.monotonic() - known[0] > for_s:
                found = await self._call(partial(client.run, text, {}, "read"))
                # The texts of columns change with the streams: old ones must not stay.
                self._lists = {
                    each: row
                    for each, row in self._lists.items()
                    if time.monotonic() - row[0] < COLUMNS_S
                }
                self._lists[text] = known = (time.monotonic(), [_exact(each) for each in found])
            return known[1]

    async def _call(self, call: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "sql")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except SqlRestError as error:
            raise _http_error(error) from None


def _http_error(error: SqlRestError) -> HttpError:
    if error.status in (401, 403):
        # To the browser it would mean that the user of the console has no right.
        return HttpError(502, f"the SQL server refuses the console's login: {error.message}")
    return HttpError(error.status or 502, error.message)


def _exact(value: Any) -> Any:
    """The value with texts instead of numbers that a browser would round."""
    if isinstance(value, dict):
        return {name: _exact(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    if type(value) is int and abs(value) > EXACT:
        return str(value)
    return value
