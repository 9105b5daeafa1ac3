"""Push queries without Spark: filters and projections over the records of one topic.

Records are read and decoded in a thread; each batch of rows is put into a table of SQLite in
memory, and the query runs over it. Plans that need more raise NotAnswerable: the host runs them.
"""

import asyncio
import contextlib
import json
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError, check, is_retriable
from headrace.client.first_batches import fetch_partitions
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, list_offsets
from headrace.errors import KafkaError
from headrace.schemas.client import SchemaClient
from headrace.sql.hosting import START, QueryRefused, ResultColumn
from headrace.sql.language.grammar.dialect import KsqlParser
from headrace.sql.plans import DELETED, TIME, PlanKind, QueryPlan
from headrace.sql.records.decoding import Row, RowReader
from headrace.sql.records.types import ColumnType, parse_type
from headrace.sql.sources import SqlSource
from headrace.sql.views.compiling import result_loader, table_columns
from headrace.sql.views.connections import connect
from headrace.sql.views.fetched_records import committed_of
from headrace.sql.views.spark_sql.queries import TableColumns, translate
from headrace.sql.views.spark_sql.typed import BOOLEAN, TIMESTAMP, NotAnswerable
from headrace.sql.views.storage import declared, storing
from headrace.sql.views.view_file import quoted
from headrace.types import TopicPartition

WAIT_MS = 200
PARTITION_BYTES = 256 << 10
_KINDS = (PlanKind.STATELESS, PlanKind.CHANGES)
_FALLIBLE = re.compile(
    r"\bspark_(fail|number|must_\w+|divisor|required|integer|double|decimal\w*|remainder|pmod"
    r"|unbase64|make_date|array_element|ceil|floor|add_months|moment_add_months)\("
)
"""Functions that may leave a row to Spark. A query that has sent rows cannot be given to it."""


class _SparkReader(Spark):
    """Spark's SQL, with the names of functions as they are written."""

    Parser = KsqlParser


class RowQuery:
    """The query of a plan over rows of its only source."""

    def __init__(self, plan: QueryPlan, source: SqlSource) -> None:
        if plan.kind not in _KINDS or len(plan.inputs) != 1 or plan.joins:
            raise NotAnswerable("the query is more than a filter over one topic")
        columns = _columns(source)
        table = TableColumns("main.rows", columns)
        made = translate(_parsed(plan.sql), {plan.inputs[0].view: table}, {})
        if _FALLIBLE.search(made.sql):
            raise NotAnswerable(
                "the query calculates something that only Spark can do for all rows"
            )
        names = [name for name, _ in made.columns]
        shown = [names.index(name) for name in plan.columns]
        kinds = [made.columns[place] for place in shown]
        self.columns = tuple(ResultColumn(name, str(kind)) for name, kind in kinds)
        self._source = source
        self._shown = shown
        self._deleted_at = names.index(DELETED) if DELETED in names else None
        self._load = result_loader(kinds, [made.computed[place] for place in shown])
        self._sql = made.sql
        self._connection = connect([])
        self._connection.execute("PRAGMA query_only = OFF")
        shape = ", ".join(f"{quoted(name)} {declared(kind)}" for name, kind in columns)
        self._connection.execute(f"CREATE TABLE rows ({shape})")
        self._insert = f"INSERT INTO rows VALUES ({', '.join('?' * len(columns))})"
        self._store = [
            (at, convert)
            for at, column in enumerate(source.columns)
            if (convert := storing(parse_type(column.type))) is not None
        ]

    def run(self, rows: Sequence[Row]) -> list[list[object]]:
        """The results of rows, in their order; QueryRefused."""
        try:
            self._connection.executemany(self._insert, map(self._stored, rows))
            found = self._connection.execute(self._sql, {"now": time.time_ns() // 1000}).fetchall()
            self._connection.execute("DELETE FROM rows")
            return [
                self._load([row[place] for place in self._shown])
                for row in found
                if self._deleted_at is None or not row[self._deleted_at]
            ]
        except (sqlite3.Error, NotAnswerable) as error:
            raise QueryRefused(f"a row cannot be calculated: {error}") from None

    def close(self) -> None:
        self._connection.close()

    def _stored(self, row: Row) -> tuple[object, ...]:
        values = list(row.values)
        for at, convert in self._store:
            if values[at] is not None:
                values[at] = convert(values[at])
        values += [row.rowtime, row.partition, row.offset]
        if self._source.window is not None:
            values += [row.window_start, row.window_end]
        values.append(row.rowtime * 1000)
        if self._source.is_table:
            values.append(int(row.is_deleted))
        return tuple(values)


def _columns(source: SqlSource) -> list[tuple[str, ColumnType]]:
    """The columns of the plan's view (`plans.py`)."""
    columns = [*table_columns(source), (TIME, TIMESTAMP)]
    return [*columns, (DELETED, BOOLEAN)] if source.is_table else columns


def _parsed(sql: str) -> exp.Query:
    try:
        found = _SparkReader().parse(sql)
    except (SqlglotError, RecursionError, ValueError, TypeError, AttributeError) as error:
        raise NotAnswerable(f"the query cannot be read: {error}") from None
    if len(found) != 1 or not isinstance(found[0], exp.Query):
        raise NotAnswerable("not one query")
    return found[0]


class TailedRows:
    """The rows of a push query, as `hosting.PushedRows`."""

    def __init__(
        self,
        config: ClientConfig,
        plan: QueryPlan,
        source: SqlSource,
        properties: Mapping[str, str],
        registry: SchemaClient | None = None,
    ) -> None:
        """NotAnswerable if the plan is one for Spark."""
        self._query = RowQuery(plan, source)
        self.columns = self._query.columns
        self._cluster = Cluster(config)
        self._source = source
        self._registry = registry
        self._start = properties.get(START, "latest")
        self._left = plan.limit
        self._reader: RowReader | None = None
        self._positions: dict[TopicPartition, int] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sql-push")
        self._is_closed = False
        self._failing_since: float | None = None

    async def rows(self) -> AsyncIterator[Sequence[Sequence[object]]]:
        """Batches of rows, until the limit of the plan; QueryRefused if the query fails."""
        while not self._is_closed and self._left != 0:
            try:
                found = await self._in_thread(self._poll)
            except (KafkaError, ClientError) as error:
                if not self._may_retry(error):
                    raise QueryRefused(f"topic {self._source.topic}: {error}") from None
                self._cluster.renew()
                await asyncio.sleep(self._cluster.config.retry_backoff_s)
                continue
            self._failing_since = None
            if self._left is not None:
                found = found[: self._left]
                self._left -= len(found)
            if found:
                yield found

    async def close(self) -> None:
        """Ends the query. It may be called several times."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.submit(self._cluster.close)
            self._thread.submit(self._query.close)
            self._thread.shutdown(wait=False)

    def _may_retry(self, error: KafkaError | ClientError) -> bool:
        """For some time, once the query has begun."""
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        is_new = now - self._failing_since < self._cluster.config.total_timeout_s
        return is_retriable(error) and bool(self._positions) and is_new

    async def _in_thread(self, call: Callable[[], list[list[object]]]) -> list[list[object]]:
        # Closed while its rows were taken: there are no more.
        with contextlib.suppress(RuntimeError):
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        return []

    # ------------------------------------------------------------------------------- the thread

    def _poll(self) -> list[list[object]]:
        if not self._positions:
            self._positions = self._first_positions()
        if self._reader is None:
            self._reader = RowReader(self._source, self._registry)
        found: list[list[object]] = []
        leaders = self._cluster.by_leader(self._positions)
        for broker, topics in leaders.items():
            wanted = {each: self._positions[each] for rows in topics.values() for each in rows}
            answers = fetch_partitions(
                *(self._cluster, broker, wanted, PARTITION_BYTES, COMMITTED),
                WAIT_MS // len(leaders),
            )
            rows: list[Row] = []
            for partition, answer in answers.items():
                check(int(answer.error or 0), f"reading {partition}")
                records, following = committed_of(answer, wanted[partition])
                good, _ = self._reader.read_many(records, partition.partition)
                rows += good
                self._positions[partition] = following
            there = [row for row in rows if self._is_row(row)]
            if there:
                found += self._query.run(sorted(there, key=lambda row: row.rowtime))
        return found

    def _is_row(self, row: Row) -> bool:
        """Records of streams without a value are no rows."""
        return self._source.is_table or not row.is_deleted or not self._source.values

    def _first_positions(self) -> dict[TopicPartition, int]:
        topic = self._source.topic
        count = len(self._cluster.existing_topics([topic])[topic].leaders)
        partitions = [TopicPartition(topic, number) for number in range(count)]
        if not self._start.lstrip().startswith("{"):
            where = EARLIEST if self._start == "earliest" else LATEST
            return list_offsets(self._cluster, dict.fromkeys(partitions, where), COMMITTED)
        given: dict[str, int] = json.loads(self._start).get(topic, {})
        wanted = {each: given.get(str(each.partition), EARLIEST) for each in partitions}
        known = {each: offset for each, offset in wanted.items() if offset >= 0}
        unknown = {each: offset for each, offset in wanted.items() if offset < 0}
        return known | (list_offsets(self._cluster, unknown, COMMITTED) if unknown else {})
