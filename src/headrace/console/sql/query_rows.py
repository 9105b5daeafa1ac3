"""Queries that users of the console run: a thread for each one, and its rows until they are asked
for.

Pages ask again and again instead of holding a connection: a browser has six of them for all tabs,
and a query must go on while its tab is hidden. A query whose page does not ask any more is ended.
"""

import asyncio
import contextlib
import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headrace.admin.sql_client import SqlRestError, SqlRows
from headrace.service.errors import HttpError

AT_ONCE = 8
FORGOTTEN_S = 180.0
"""Browsers run timers of hidden tabs once a minute."""
LOOK_S = 15.0
MOST_ROWS = 10_000
MOST_CHARACTERS = 8_000_000
"""Rows that wait to be asked for."""
ROWS_AT_ONCE = 2_000
CELL_CHARACTERS = 4_000

Row = list[str]
"""Values as JSON texts: a browser would round large numbers."""


@dataclass(slots=True)
class _Waiting:
    """Rows that have not been asked for. Two threads use it, with a lock."""

    rows: deque[Row] = field(default_factory=deque)
    characters: int = 0
    dropped: int = 0
    columns: list[dict[str, str]] | None = None
    end: str = ""
    """`ended`, `stopped` or `failed`; empty while it runs."""
    reason: str = ""


class QueryRows:
    """One query."""

    def __init__(self, owner: str, *, is_endless: bool, is_text: bool) -> None:
        self.id = uuid.uuid4().hex
        self.owner = owner
        self.used_s = time.monotonic()
        self.started = asyncio.Event()
        """Whether the columns are known, or why there are none."""
        self._loop = asyncio.get_running_loop()
        self._is_endless = is_endless
        self._is_text = is_text
        """Whether lines are text, as those of PRINT, and not rows."""
        self._lock = threading.Lock()
        self._waiting = _Waiting()
        self._rows: SqlRows | None = None
        self._is_closed = False
        self.refusal: SqlRestError | None = None

    def read(self, ask: Callable[[], SqlRows]) -> None:
        """Asks and reads until the end; the body of the query's thread."""
        try:
            rows = ask()
            with self._lock:
                self._rows = rows
            if self._is_closed:
                rows.close()
            self._take_all(rows.lines())
        except SqlRestError as error:
            if self._waiting.columns is None:
                self.refusal = error
            self._finish("failed", error.message)
        except Exception as error:
            self._finish("failed", f"{type(error).__name__}: {error}")
        else:
            self._finish("ended")
        finally:
            if self._rows is not None:
                self._rows.close()
            self._tell(self.started.set)

    def _take_all(self, lines: Iterable[str]) -> None:
        taken = 0
        if self._is_text:
            self._begin([{"name": "record", "type": "TEXT"}])
        for line in lines:
            if not line:
                continue
            if self._waiting.columns is None:
                self._begin(_columns(line))
                continue
            if line.startswith("{") and not self._is_text:
                raise SqlRestError(str(json.loads(line).get("message", line)))
            self._add([json.dumps(line)] if self._is_text else _values(line))
            taken += 1
            if self._is_endless:
                continue
            if taken >= MOST_ROWS or self._waiting.characters > MOST_CHARACTERS:
                self._finish("stopped", f"after {taken} rows; add LIMIT or a condition")
                return

    def _begin(self, columns: list[dict[str, str]]) -> None:
        with self._lock:
            self._waiting.columns = columns
        self._tell(self.started.set)

    def _add(self, values: Sequence[str]) -> None:
        row = [_short(each) for each in values]
        with self._lock:
            waiting = self._waiting
            waiting.rows.append(row)
            waiting.characters += sum(map(len, row))
            # The rows of a pull query are counted; those of a push query may be any number.
            while self._is_endless and (
                len(waiting.rows) > MOST_ROWS or waiting.characters > MOST_CHARACTERS
            ):
                waiting.characters -= sum(map(len, waiting.rows.popleft()))
                waiting.dropped += 1

    def _finish(self, end: str, reason: str = "") -> None:
        with self._lock:
            if not self._waiting.end:
                self._waiting.end, self._waiting.reason = end, reason

    def _tell(self, call: Callable[[], None]) -> None:
        # The event loop is closed if the console has stopped.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def columns(self) -> list[dict[str, str]]:
        return self._waiting.columns or []

    def take(self) -> dict[str, object]:
        """The rows that came since the last time, and whether there will be more."""
        self.used_s = time.monotonic()
        with self._lock:
            waiting = self._waiting
            rows = [waiting.rows.popleft() for _ in range(min(ROWS_AT_ONCE, len(waiting.rows)))]
            waiting.characters -= sum(len(each) for row in rows for each in row)
            dropped, waiting.dropped = waiting.dropped, 0
            end = "" if waiting.rows else waiting.end
        return {"rows": rows, "dropped": dropped, "end": end, "reason": waiting.reason}

    def close(self) -> None:
        """Ends the query; returns at once."""
        self._is_closed = True
        with self._lock:
            rows = self._rows
        if rows is not None:
            rows.close()


class RunningQueries:
    """The queries of all users."""

    def __init__(self) -> None:
        self._queries: dict[str, QueryRows] = {}
        self._looking: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return bool(self._queries)

    async def start(
        self, ask: Callable[[], SqlRows], owner: str, *, is_endless: bool, is_text: bool
    ) -> QueryRows:
        """Returns when the columns are known; SqlRestError if the server refuses the query."""
        if len(self._queries) >= AT_ONCE:
            raise HttpError(429, f"{AT_ONCE} queries run already; stop one of them first")
        query = QueryRows(owner, is_endless=is_endless, is_text=is_text)
        self._queries[query.id] = query
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        threading.Thread(target=query.read, args=(ask,), name="sql-query", daemon=True).start()
        try:
            await query.started.wait()
        except asyncio.CancelledError:
            self._end(query)
            raise
        if query.refusal is not None:
            self._end(query)
            raise query.refusal
        return query

    def take(self, id_: str, owner: str) -> dict[str, object]:
        """The next rows; HttpError 404 if the query has been ended."""
        query = self._find(id_, owner)
        found = query.take()
        if found["end"]:
            self._end(query)
        return found

    def end(self, id_: str, owner: str) -> None:
        self._end(self._find(id_, owner))

    async def stop(self) -> None:
        for each in list(self._queries.values()):
            self._end(each)
        if self._looking is not None:
            self._looking.cancel()

    def _find(self, id_: str, owner: str) -> QueryRows:
        query = self._queries.get(id_)
        if query is None or query.owner != owner:
            raise HttpError(404, "The query has been ended, because its page did not ask for rows")
        return query

    def _end(self, query: QueryRows) -> None:
        query.close()
        self._queries.pop(query.id, None)

    async def _look(self) -> None:
        """Ends queries whose pages are gone."""
        while self._queries:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            for each in list(self._queries.values()):
                if now - each.used_s > FORGOTTEN_S and each.started.is_set():
                    self._end(each)


def _columns(line: str) -> list[dict[str, str]]:
    head = json.loads(line)
    if not isinstance(head, dict) or "columnNames" not in head:
        raise SqlRestError(f"The SQL server began its answer with {line[:200]}")
    pairs = zip(head["columnNames"], head["columnTypes"], strict=True)
    return [{"name": str(name), "type": str(type_)} for name, type_ in pairs]


_DECODER = json.JSONDecoder()


def _values(line: str) -> Row:
    """The JSON text of each value of a row."""
    values, at = [], 1
    while line[at : at + 1] not in ("]", ""):
        _, end = _DECODER.raw_decode(line, at)
        values.append(line[at:end])
        at = end + 1 if line[end : end + 1] == "," else end
    return values


def _short(text: str) -> str:
    left = len(text) - CELL_CHARACTERS
    return text if left <= 0 else f"{text[:CELL_CHARACTERS]}… ({left} more characters)"
