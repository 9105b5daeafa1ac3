"""The host: analysis, truth, restarts after a crash, replacement, push and batch queries."""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.groups import committed_offsets
from headrace.sql.hosting import START, FunctionSpec, HostedState, QueryRefused
from headrace.sql.plans import PlanKind, QueryPlan
from headrace.sql.sources import SqlSource
from tests.sql.host.conftest import SqlUnderTest, column, key, source, stateless

pytestmark = pytest.mark.spark


def stream(topic: str) -> SqlSource:
    return source("s", topic, key("k"), column("n", "bigint"))


def totals(extra: str = "", *names: str) -> QueryPlan:
    return stateless(
        f"SELECT k, count(*) AS c, sum(n) AS total{extra}, max(__time) AS __time FROM s GROUP BY k",
        ["k", "c", "total", *names],
        "s",
        kind=PlanKind.AGGREGATE,
        keys=("k",),
        makes_table=True,
    )


def table(topic: str, *more: str) -> SqlSource:
    columns = [column(each, "bigint") for each in ("c", "total", *more)]
    return source("t", topic, key("k"), *columns, is_table=True)


def copy() -> QueryPlan:
    return stateless("SELECT k, n, __time FROM s", ["k", "n"], "s")


def fill(sql: SqlUnderTest, topic: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        sql.send(topic, {"n": number}, f"k{number % 7}")
    sql.flush()


def has_at_least(count: int, found: Sequence[object]) -> bool:
    return len(found) >= count


def driver_pid() -> int:
    (found,) = (
        int(pid)
        for tasks in Path("/proc/self/task").iterdir()
        for pid in (tasks / "children").read_text().split()
        if b"headrace.sql.host.driver" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return found


def test_an_analysis_has_the_types_and_refuses_what_spark_cannot_do(sql: SqlUnderTest) -> None:
    found = sql.call(sql.host.analyse(totals(), [stream("nowhere")]))
    assert [(each.name, each.type) for each in found.columns] == [
        ("k", "string"),
        ("c", "bigint"),
        ("total", "bigint"),
    ]
    assert "Aggregate" in found.plan
    for text, words in (
        ("SELECT k, nothing AS n, __time FROM s", "nothing"),
        ("SELECT k, n, __time FROM s ORDER BY n", "[Ss]ort"),
        ("SELECT k, n, __time FROM (s", "Syntax"),
    ):
        plan = stateless(text, ["k", "n"], "s")
        with pytest.raises(QueryRefused, match=words):
            sql.call(sql.host.analyse(plan, [stream("nowhere")]))


def test_a_query_that_fails_leaves_others_alone_and_says_why(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    topic = sql.create(f"{name}_in")
    started += [f"{name}_bad", f"{name}_good"]
    target = source("t", sql.create(f"{name}_out"), key("k"), column("n", "bigint"))
    other = replace(target, columns=(*target.keys, column("other")))
    sql.start(f"{name}_bad", copy(), [stream(topic)], other)
    sql.start(f"{name}_good", copy(), [stream(topic)], target)
    found = sql.wait_for(f"{name}_bad", HostedState.FAILED)
    assert found.error == "t has no column n"
    fill(sql, topic, range(10))
    sql.has_read(f"{name}_good", 10)
    assert sorted(each["n"] for each in sql.values(target.topic)) == list(range(10))
    assert sql.status("never started").state is HostedState.UNKNOWN


def test_a_driver_that_is_killed_loses_and_repeats_nothing(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    topic = sql.create(f"{name}_in")
    copies, sums = sql.create(f"{name}_copies"), sql.create(f"{name}_sums")
    target = source("t", copies, key("k"), column("n", "bigint"))
    started += [f"{name}_copy", f"{name}_sum"]
    fill(sql, topic, range(1000))
    few = "50"
    sql.start(f"{name}_copy", copy(), [stream(topic)], target, max_offsets_per_trigger=few)
    sql.start(f"{name}_sum", totals(), [stream(topic)], table(sums), max_offsets_per_trigger=few)
    for count in (100, 500):
        sql.wait(lambda: sql.records(copies), partial(has_at_least, count))
        sql.wait(lambda: sql.records(sums), bool)
        os.kill(driver_pid(), signal.SIGKILL)
        sql.wait_for(f"{name}_copy", HostedState.RESTARTING)
    fill(sql, topic, range(1000, 1200))
    wanted = {
        f"k{rest}".encode(): {
            "c": len(range(rest, 1200, 7)),
            "total": sum(range(rest, 1200, 7)),
        }
        for rest in range(7)
    }
    sql.wait(lambda: sql.table(sums), lambda found: found == wanted)
    sql.wait(lambda: len(sql.records(copies)), lambda found: found >= 1200)
    assert Counter(each["n"] for each in sql.values(copies)) == Counter(range(1200))
    # Each epoch has a key once: a repeated one would have written it twice.
    seen = Counter((each.key, each.value) for each in sql.records(sums))
    assert set(seen.values()) == {1}
    assert sql.wait_for(f"{name}_sum", HostedState.RUNNING).restarts >= 2
    with Cluster(client_config({"bootstrap.servers": sql.bootstrap})) as cluster:
        sql.wait(
            lambda: sum(
                each.offset for each in committed_offsets(cluster, f"sql-{name}_sum").values()
            ),
            lambda found: found == 1200,
        )


def test_a_replacement_keeps_the_state_or_is_refused_before(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    topic, out = sql.create(f"{name}_in"), sql.create(f"{name}_out")
    fill(sql, topic, range(70))
    started.append(name)
    spec = sql.start(name, totals(), [stream(topic)], table(out))
    sql.has_read(name, 70)
    filtered = replace(spec.plan, sql=spec.plan.sql.replace("FROM s", "FROM s WHERE n < 100"))
    sql.call(sql.host.check_replace(replace(spec, plan=filtered)))
    more = replace(spec, plan=totals(", max(n) AS m", "m"), target=table(out, "m"))
    with pytest.raises(QueryRefused, match="other keys, aggregates"):
        sql.call(sql.host.check_replace(more))
    with pytest.raises(QueryRefused, match="another kind"):
        sql.call(sql.host.check_replace(replace(spec, plan=copy())))
    assert sql.status(name).state is HostedState.RUNNING
    sql.call(sql.host.start(replace(spec, plan=filtered)))
    fill(sql, topic, [*range(70, 77), *range(700, 707)])
    wanted = {f"k{n}".encode(): {"c": 11, "total": sum(range(n, 77, 7))} for n in range(7)}
    sql.wait(lambda: sql.table(out), lambda found: found == wanted)


def test_a_push_query_sends_rows_until_its_limit(sql: SqlUnderTest, name: str) -> None:
    topic = sql.create(f"{name}_in")
    fill(sql, topic, range(2000))

    async def first(count: int) -> tuple[list[str], list[Sequence[object]]]:
        plan = replace(copy(), limit=count)
        pushed = await sql.host.push(plan, [stream(topic)], {START: "earliest"})
        found = [row async for rows in pushed.rows() for row in rows]
        await pushed.close()
        return [each.name for each in pushed.columns], found

    names, rows = sql.call(first(1700))
    assert names == ["k", "n"]
    assert len(rows) == 1700
    assert {tuple(row) for row in rows} <= {(f"k{n % 7}", n) for n in range(2000)}

    async def closed_early() -> int:
        pushed = await sql.host.push(copy(), [stream(topic)], {START: "earliest"})
        async for rows in pushed.rows():
            await pushed.close()
            return len(rows)
        return 0

    assert sql.call(closed_early()) > 0


def test_a_batch_query_reads_tables_as_their_latest_rows(sql: SqlUnderTest, name: str) -> None:
    people = source("p", sql.create(f"{name}_p"), key("k"), column("n", "bigint"), is_table=True)
    for number in range(20):
        sql.send(people.topic, {"n": number}, f"k{number % 5}")
    sql.send(people.topic, None, "k3")
    sql.flush()
    plan = stateless("SELECT k, n, __time FROM p WHERE n > 15", ["k", "n"], "p")
    found = sql.call(sql.host.batch(plan, [people]))
    assert sorted(map(tuple, found.rows)) == [("k1", 16), ("k2", 17), ("k4", 19)]
    assert len(sql.call(sql.host.batch(plan, [people], limit=2)).rows) == 2


def test_a_function_in_python(sql: SqlUnderTest, name: str) -> None:
    topic = sql.create(f"{name}_in")
    fill(sql, topic, range(3))
    doubled = FunctionSpec("twice", (("x", "bigint"),), "bigint", "return x * 2")
    plan = stateless("SELECT twice(n) AS d, __time FROM s", ["d"], "s")
    found = sql.call(sql.host.batch(plan, [stream(topic)], [doubled]))
    assert sorted(map(tuple, found.rows)) == [(0,), (2,), (4,)]
