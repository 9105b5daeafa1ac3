"""Pull queries from views: look-ups, queries in threads, limits, and freshness."""

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.sql.language.errors import SqlError
from headrace.sql.language.parsing import parse
from headrace.sql.language.select import Select
from headrace.sql.language.statements import SelectStatement
from headrace.sql.sources import SqlSource, Window
from headrace.sql.views.pulling import PullAnswer, PullLimits, PullQueries, PullRefused
from headrace.sql.views.spark_sql.typed import NotAnswerable
from headrace.sql.views.store import ViewBehind
from headrace.testing.running import RunningBroker
from headrace.types import TopicPartition
from tests.sql.views.spark_cases import REFUSED_BY_VIEWS, lines
from tests.sql.views.tables import TIMEOUT_S, opened, produce, table
from tests.sql.views.typed_tables import answered, fill

Sources = Callable[[str], SqlSource | None]


def selected(text: str) -> Select:
    statement = parse(text)
    assert isinstance(statement, SelectStatement)
    return statement.select


def naming(**sources: SqlSource) -> Sources:
    return lambda name: sources.get(name.casefold())


async def ask(pulls: PullQueries, text: str, sources: Sources, **more: object) -> PullAnswer:
    return await pulls.answer(selected(text), sources, text=text, **more)  # type: ignore[arg-type]


def test_a_query_waits_until_its_view_is_loaded_and_says_how_far_it_is(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "k string key, n bigint", partitions=2)
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}'), (b"b", b'{"n":2}')])
    produce(bootstrap, of.topic, [(b"c", b'{"n":3}')], 1)

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            pulls = PullQueries(stores)
            answer = await ask(pulls, "SELECT * FROM t WHERE k = 'a'", naming(t=of))
            assert [(each.name, each.type) for each in answer.columns] == [
                ("k", "string"),
                ("n", "bigint"),
            ]
            assert answer.rows == [["a", 1]]
            assert answer.offsets == {of.topic: {0: 2, 1: 1}}
            total = await ask(pulls, "SELECT sum(n) AS total, count(*) FROM t", naming(t=of))
            assert total.rows == [[6, 3]]
            assert [each.name for each in total.columns] == ["total", "KSQL_COL_0"]
            pulls.close()

    asyncio.run(run())


def test_read_your_writes_waits_for_offsets(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "k string key, n bigint")
    produce(bootstrap, of.topic, [(b"a", b'{"n":1}')])
    text = "SELECT n FROM t WHERE k = 'b'"
    ends = {TopicPartition(of.topic, 0): 2, TopicPartition("another", 0): 99}

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            pulls = PullQueries(stores, PullLimits(loading_seconds=TIMEOUT_S))
            sources = naming(t=of)
            assert (await ask(pulls, text, sources)).rows == []
            assert pulls.quick(text, sources) is not None
            assert pulls.quick(text, sources, ends) is None
            waiting = asyncio.create_task(ask(pulls, text, sources, ends=ends))
            await asyncio.sleep(0)
            produce(bootstrap, of.topic, [(b"b", b'{"n":2}')])
            assert (await waiting).rows == [[2]]
            found = pulls.quick(text, sources, ends)
            assert found is not None
            assert found.rows == [[2]]
            late = {TopicPartition(of.topic, 0): 3}
            impatient = PullQueries(stores, PullLimits(loading_seconds=0.05))
            with pytest.raises(ViewBehind, match="partition 0 is at 2 of 3"):
                await ask(impatient, text, sources, ends=late)
            pulls.close()
            impatient.close()

    asyncio.run(run())


def test_similar_look_ups_are_answered_at_once(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "k string key, n bigint")
    pairs = [(f"it's {n}".encode(), b'{"n":%d}' % n) for n in range(5)]
    produce(bootstrap, of.topic, pairs)

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            pulls = PullQueries(stores)
            sources = naming(t=of)
            form = "SELECT n + 10 AS m, 'k' AS \"it's\" FROM t WHERE k = '{}' AND n < 4 LIMIT 7;"
            first = form.format("it''s 1")
            assert pulls.quick(first, sources) is None
            assert (await ask(pulls, first, sources)).rows == [[11, "k"]]
            for number in range(5):
                found = pulls.quick(form.format(f"it''s {number}"), sources)
                assert found is not None
                assert found.rows == ([[number + 10, "k"]] if number < 4 else [])
            # Other literals are another statement.
            assert pulls.quick(first.replace("n < 4", "n < 1"), sources) is None
            # So is the same text over another definition of the table, and over no table.
            other = dataclasses.replace(of, delimiter="|")
            assert pulls.quick(first, naming(t=other)) is None
            assert pulls.quick(first, naming()) is None
            # A literal that is there twice may be the key or not.
            twice = "SELECT 'a' AS x, n FROM t WHERE k = 'a'"
            await ask(pulls, twice, sources)
            assert pulls.quick(twice, sources) is None
            # Comments and variables are parsed.
            assert pulls.quick(f"{first} -- '", sources) is None
            assert pulls.quick(first.replace("it''s 1", "${x}"), sources) is None
            await stores.remove(of.name)
            assert pulls.quick(first, sources) is None
            pulls.close()

    asyncio.run(run())


def test_numbers_and_several_columns_are_keys_too(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "a bigint key, b string key, n int", key="JSON")
    produce(bootstrap, of.topic, [(b'{"a":1,"b":"x"}', b'{"n":1}'), (b'{"a":2,"b":"x"}', b"{}")])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            pulls = PullQueries(stores)
            sources = naming(t=of)
            form = "SELECT n FROM t WHERE 'x' = b AND (a = {})"
            assert (await ask(pulls, form.format(1), sources)).rows == [[1]]
            for number, rows in ((1, [[1]]), (2, [[None]]), (3, [])):
                found = pulls.quick(form.format(number), sources)
                assert found is not None
                assert found.rows == rows
            assert pulls.quick(form.format(1 << 64), sources) is None
            explained = pulls.explain(selected(form.format(1)), sources)
            assert explained.startswith("Answered by a look-up by key in the view of t_")
            # A part of the key is no key.
            part = "SELECT n FROM t WHERE a = 1"
            assert (await ask(pulls, part, sources)).rows == [[1]]
            assert pulls.quick(part, sources) is None
            pulls.close()

    asyncio.run(run())


def test_windows_of_a_key_and_pseudo_columns(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "k string key, n int", window=Window("TUMBLING", 10))

    def key(start: int) -> bytes:
        return b"a" + start.to_bytes(8, "big")

    produce(bootstrap, of.topic, [(key(start), b'{"n":%d}' % start) for start in (0, 10, 20)])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            pulls = PullQueries(stores)
            sources = naming(t=of)
            everything = await ask(pulls, "SELECT * FROM t WHERE k = 'a'", sources)
            assert [each.name for each in everything.columns] == [
                "k",
                "WINDOWSTART",
                "WINDOWEND",
                "n",
            ]
            assert everything.rows == [["a", 0, 10, 0], ["a", 10, 20, 10], ["a", 20, 30, 20]]
            some = "SELECT n, ROWTIME, ROWPARTITION, ROWOFFSET FROM t WHERE k = 'a' AND {}"
            later = some.format("WINDOWSTART >= '1970-01-01T00:00:00.010'")
            assert (await ask(pulls, later, sources)).rows == [[10, 1000, 0, 1], [20, 1000, 0, 2]]
            one = some.format("WINDOWSTART = 10")
            assert (await ask(pulls, one, sources)).rows == [[10, 1000, 0, 1]]
            found = pulls.quick(some.format("WINDOWSTART = 20"), sources)
            assert found is not None
            assert found.rows == [[20, 1000, 0, 2]]
            pulls.close()

    asyncio.run(run())


def test_joins_of_tables_read_both_files(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    one = table(bootstrap, "k string key, g string")
    two = table(bootstrap, "g string key, label string")
    produce(bootstrap, one.topic, [(b"a", b'{"g":"x"}'), (b"b", b'{"g":"y"}')])
    produce(bootstrap, two.topic, [(b"x", b'{"label":"first"}')])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            pulls = PullQueries(stores)
            text = "SELECT o.k, label FROM one o LEFT JOIN two t ON o.g = t.g ORDER BY o.k"
            answer = await ask(pulls, text, naming(one=one, two=two))
            assert answer.rows == [["a", "first"], ["b", None]]
            assert set(answer.offsets) == {one.topic, two.topic}
            pulls.close()

    asyncio.run(run())


def test_time_and_rows_are_limited(headrace: RunningBroker, tmp_path: Path) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "k string key, n bigint")
    produce(bootstrap, of.topic, [(f"{n}".encode(), b'{"n":%d}' % n) for n in range(2000)])

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            pulls = PullQueries(stores, PullLimits(seconds=0.2, rows=1999))
            sources = naming(t=of)
            with pytest.raises(PullRefused, match="more than 1999 rows; add a LIMIT"):
                await ask(pulls, "SELECT * FROM t", sources)
            assert len((await ask(pulls, "SELECT * FROM t LIMIT 1999", sources)).rows) == 1999
            long = "SELECT count(*) AS c FROM t a JOIN t b ON a.n <> b.n JOIN t c ON c.n <> b.n"
            with pytest.raises(PullRefused, match=r"longer than 0\.2 s"):
                await ask(pulls, long, sources)
            # The loop answers others while a query runs.
            running = asyncio.create_task(ask(pulls, long, sources))
            await asyncio.sleep(0)
            assert (await ask(pulls, "SELECT n FROM t WHERE k = '5'", sources)).rows == [[5]]
            assert not running.done()
            with pytest.raises(PullRefused):
                await running
            pulls.close()

    asyncio.run(run())


def test_queries_that_are_not_of_tables_are_left_to_spark(
    headrace: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = headrace.bootstrap_servers
    of = table(bootstrap, "k string key, n bigint")
    stream = dataclasses.replace(of, is_table=False)

    async def run() -> None:
        async with opened(bootstrap, tmp_path) as stores:
            pulls = PullQueries(stores)
            with pytest.raises(NotAnswerable, match="is a stream; views are of tables"):
                await ask(pulls, "SELECT * FROM s", naming(s=stream))
            with pytest.raises(SqlError, match="There is no stream or table nothing"):
                await ask(pulls, "SELECT * FROM nothing", naming(s=stream))
            with pytest.raises(SqlError, match="two columns k"):
                await ask(pulls, "SELECT k, n AS k FROM t", naming(t=of))
            plan = pulls.for_spark(selected("SELECT * FROM S WHERE k = 'x'"), naming(s=stream))
            made = plan.for_spark()
            assert made.columns == ("k", "n")
            assert made.sql == ("SELECT `S`.`k` AS `k`, `S`.`n` AS `n` FROM S WHERE k = 'x'")
            assert [(each.source, each.view) for each in made.inputs] == [(of.name, "s")]
            pulls.close()

    asyncio.run(run())


@pytest.mark.parametrize("text", lines(REFUSED_BY_VIEWS))
def test_what_spark_may_refuse_is_not_answered(text: str, tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(Exception) as error:
        answered(tmp_path, text)
    assert type(error.value).__name__ in ("NotAnswerable", "OperationalError")
