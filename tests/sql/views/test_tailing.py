"""Push queries without Spark: filters over the records of one topic."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import pytest

from headrace.client.config import client_config
from headrace.sql.hosting import START, QueryRefused
from headrace.sql.language.parsing import parse
from headrace.sql.language.planning import plan
from headrace.sql.language.statements import SelectStatement
from headrace.sql.plans import QueryPlan
from headrace.sql.sources import SqlSource
from headrace.sql.views.spark_sql.typed import NotAnswerable
from headrace.sql.views.tailing import TailedRows
from headrace.testing.running import RunningBroker
from tests.sql.records.rows import source
from tests.sql.views.tables import TIMEOUT_S, produce, table, transactional

STREAM = "k string key; n bigint; s string; d double; r struct<a: int>"


def planned(text: str, of: SqlSource) -> QueryPlan:
    statement = parse(text)
    assert isinstance(statement, SelectStatement)
    return plan(statement.select, lambda _: of, into_table=None)


def tailed(bootstrap: str, text: str, of: SqlSource, start: str = "earliest") -> TailedRows:
    config = client_config({"bootstrap.servers": bootstrap})
    return TailedRows(config, planned(text, of), of, {START: start})


async def taken(rows: AsyncIterator[Sequence[Sequence[object]]], count: int) -> list[object]:
    """The first rows."""
    found: list[object] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < count:
            found += await anext(rows)
    return found


def test_rows_are_filtered_and_projected_as_they_come(headrace: RunningBroker) -> None:
    bootstrap = headrace.bootstrap_servers
    of = dataclasses.replace(table(bootstrap, STREAM, partitions=2), is_table=False)
    text = (
        "SELECT k, n + 1 AS m, ucase(s), r->a, ROWTIME, ROWPARTITION, ROWOFFSET FROM t "
        "WHERE n > 1 AND s LIKE '%x%' EMIT CHANGES;"
    )
    produce(
        bootstrap, of.topic, [(b"a", b'{"n":1,"s":"x"}'), (b"b", b'{"n":2,"s":"ax","r":{"a":5}}')]
    )
    produce(bootstrap, of.topic, [(b"c", b"{"), (b"d", None), (None, b'{"n":3,"s":"xb"}')], 1)

    async def run() -> None:
        tail = tailed(bootstrap, text, of)
        assert [(each.name, each.type) for each in tail.columns] == [
            ("k", "string"),
            ("m", "bigint"),
            ("KSQL_COL_0", "string"),
            ("a", "int"),
            ("ROWTIME", "bigint"),
            ("ROWPARTITION", "int"),
            ("ROWOFFSET", "bigint"),
        ]
        async with aclosing(tail.rows()) as rows:  # type: ignore[type-var]
            found = await taken(rows, 2)
            assert sorted(found, key=str) == [
                ["b", 3, "AX", 5, 1000, 0, 1],
                [None, 4, "XB", None, 1000, 1, 2],
            ]
            produce(bootstrap, of.topic, [(b"e", b'{"n":9,"s":"x"}')])
            assert await taken(rows, 1) == [["e", 10, "X", None, 1000, 0, 2]]
        await tail.close()
        await tail.close()

    asyncio.run(run())


def test_a_query_starts_where_it_is_told_and_ends_at_its_limit(headrace: RunningBroker) -> None:
    bootstrap = headrace.bootstrap_servers
    of = dataclasses.replace(table(bootstrap, STREAM), is_table=False)
    produce(bootstrap, of.topic, [(b"a", b'{"n":%d}' % n) for n in range(5)])
    text = "SELECT n FROM t EMIT CHANGES LIMIT 2"

    async def run() -> None:
        for start, expected in (
            ("earliest", [[0], [1]]),
            (json.dumps({of.topic: {"0": 3}}), [[3], [4]]),
            (json.dumps({of.topic: {"0": -2}}), [[0], [1]]),
        ):
            tail = tailed(bootstrap, text, of, start)
            found = [row async for batch in tail.rows() for row in batch]
            assert found == expected
            await tail.close()

    asyncio.run(run())


def test_only_committed_records_are_rows(headrace: RunningBroker) -> None:
    bootstrap = headrace.bootstrap_servers
    of = dataclasses.replace(table(bootstrap, STREAM), is_table=False)
    producer = transactional(bootstrap)
    for number, commits in ((1, False), (2, True)):
        producer.begin_transaction()
        producer.produce(of.topic, b'{"n":%d}' % number, b"a")
        producer.commit_transaction() if commits else producer.abort_transaction()

    async def run() -> None:
        tail = tailed(bootstrap, "SELECT n FROM t EMIT CHANGES LIMIT 1", of)
        assert [batch async for batch in tail.rows()] == [[[2]]]
        await tail.close()

    asyncio.run(run())


def test_changes_of_a_table_are_rows_and_tombstones_are_not(headrace: RunningBroker) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "k string key, n bigint")
    pairs = [(b"a", b'{"n":1}'), (b"a", b'{"n":-1}'), (b"a", None), (b"b", b'{"n":5}')]
    produce(bootstrap, of.topic, pairs)

    async def run() -> None:
        tail = tailed(bootstrap, "SELECT * FROM t WHERE n > 0 EMIT CHANGES LIMIT 2", of)
        assert [row async for batch in tail.rows() for row in batch] == [["a", 1], ["b", 5]]
        await tail.close()

    asyncio.run(run())


def test_a_topic_that_does_not_exist_ends_the_query(headrace: RunningBroker) -> None:
    of = source(STREAM, name="t", topic="nowhere", is_table=False)

    async def run() -> None:
        tail = tailed(headrace.bootstrap_servers, "SELECT * FROM t EMIT CHANGES", of)
        with pytest.raises(QueryRefused, match="nowhere"):
            await anext(aiter(tail.rows()))
        await tail.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, count(*) AS c FROM t GROUP BY k EMIT CHANGES",
        "SELECT explode(split(s, ',')) AS w FROM t EMIT CHANGES",
        "SELECT regexp_replace(s, 'a', 'b') AS w FROM t EMIT CHANGES",
        # Views do not calculate with NaN, and a query that has begun cannot be given to Spark.
        "SELECT d * 2 AS w FROM t EMIT CHANGES",
        "SELECT n / n AS w FROM t EMIT CHANGES",
        "SELECT CAST(s AS INT) AS w FROM t EMIT CHANGES",
    ],
)
def test_other_queries_are_left_to_spark(text: str) -> None:
    of = source(STREAM, name="t", is_table=False)
    with pytest.raises(NotAnswerable):
        tailed("127.0.0.1:1", text, of)
