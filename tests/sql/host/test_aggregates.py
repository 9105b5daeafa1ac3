"""Aggregations: compared with a computation in Python over the same records."""

import json
import random
import struct
from collections import defaultdict
from typing import Any

import pytest

from headrace.sql.plans import PlanKind, QueryPlan
from headrace.sql.sources import Format, SqlSource, Window
from tests.sql.host.conftest import SqlUnderTest, column, key, source, stateless

pytestmark = pytest.mark.spark

SECOND, MINUTE = 1000, 60_000


def aggregate(sql: str, columns: list[str], *views: str, **more: Any) -> QueryPlan:
    given = {"kind": PlanKind.AGGREGATE, "makes_table": True, "keys": ("k",), **more}
    return stateless(sql, columns, *views, **given)


def numbers(sql: SqlUnderTest, topic: str, count: int, seed: int = 1) -> list[tuple[str, int, int]]:
    """Records with a key, a number and a time, out of order, some without a number."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        name = f"k{chance.randrange(20)}"
        number = chance.randrange(-50, 100)
        moment = 100 * SECOND + chance.randrange(10 * SECOND)
        sql.send(topic, {"n": number if number >= 0 else None}, name, moment)
        found.append((name, number, moment))
    sql.flush()
    return found


def stream(topic: str) -> SqlSource:
    return source("s", topic, key("k"), column("n", "bigint"))


def test_changes_of_a_table_end_at_the_result_of_a_batch(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    topic, out = sql.create(f"{name}_in"), sql.create(f"{name}_out")
    rows = numbers(sql, topic, 500)
    target = source("t", out, key("k"), column("c", "bigint"), column("s", "bigint"), is_table=True)
    plan = aggregate(
        "SELECT k, count(*) AS c, sum(n) AS s, max(__time) AS __time FROM s GROUP BY k",
        ["k", "c", "s"],
        "s",
    )
    started.append(name)
    sql.start(name, plan, [stream(topic)], target, max_offsets_per_trigger="100")
    rows += numbers(sql, topic, 300, seed=2)
    sql.send(topic, {"n": 5}, None)
    sql.flush()
    sql.has_read(name, 801)
    wanted: dict[bytes, Any] = {}
    for k in {k for k, _, _ in rows}:
        of_key = [n for each, n, _ in rows if each == k]
        positive = [n for n in of_key if n >= 0]
        wanted[k.encode()] = {"c": len(of_key), "s": sum(positive) if positive else None}
    assert sql.table(out) == wanted
    # The group without a key is no row of a table.
    assert {each.key for each in sql.records(out)} == set(wanted)
    last = {each.key: each.timestamp for each in sql.records(out)}
    assert last == {k.encode(): max(at for each, _, at in rows if each == k) for k, _, _ in rows}
    assert sql.status(name).state_rows == 21


def test_a_row_that_having_excludes_later_is_deleted(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    topic, out = sql.create(f"{name}_in", 1), sql.create(f"{name}_out", 1)
    target = source("t", out, key("k"), column("s", "bigint"), is_table=True)
    plan = aggregate(
        "SELECT k, sum(n) AS s, NOT coalesce(sum(n) < 10, false) AS __deleted, "
        "max(__time) AS __time FROM s GROUP BY k",
        ["k", "s"],
        "s",
    )
    started.append(name)
    sql.start(name, plan, [stream(topic)], target)
    sql.send(topic, {"n": 4}, "a")
    sql.send(topic, {"n": 1}, "b")
    sql.flush()
    sql.wait(lambda: sql.table(out), lambda found: found == {b"a": {"s": 4}, b"b": {"s": 1}})
    sql.send(topic, {"n": 6}, "a")
    sql.send(topic, {"n": 1}, "b")
    sql.flush()
    sql.wait(lambda: sql.table(out), lambda found: found == {b"b": {"s": 2}})


def windowed(window: Window, *, final: bool = False) -> QueryPlan:
    if window.kind == "SESSION":
        expression = "session_window(__time, '1 second')"
    elif window.kind == "HOPPING":
        expression = "window(__time, '2 seconds', '1 second')"
    else:
        expression = "window(__time, '1 second')"
    return aggregate(
        "SELECT k, count(*) AS c, unix_millis(w.start) AS WINDOWSTART, "
        "unix_millis(w.end) AS WINDOWEND, max(__time) AS __time "
        f"FROM (SELECT *, {expression} AS w FROM s) GROUP BY k, w",
        ["k", "c"],
        "s",
        window=window,
        watermark_ms=10 * SECOND,
        emit_final=final,
    )


def spans(times: list[int], window: Window) -> dict[tuple[int, int], int]:
    """The windows of times, and how many of them are in each."""
    found: dict[tuple[int, int], int] = defaultdict(int)
    if window.kind == "SESSION":
        start = end = None
        for at in sorted(times):
            if end is None or start is None or at >= end:
                start = at
                found[start, at + SECOND] = 1
            else:
                count = found.pop((start, end))
                found[start, at + SECOND] = count + 1
            end = at + SECOND
        return found
    assert window.size_ms is not None
    advance = window.advance_ms or window.size_ms
    for at in times:
        start = at // advance * advance
        while start + window.size_ms > at:
            found[start, start + window.size_ms] += 1
            start -= advance
    return found


@pytest.mark.parametrize(
    "window",
    [
        Window("TUMBLING", SECOND, grace_ms=10 * SECOND),
        Window("HOPPING", 2 * SECOND, SECOND, grace_ms=10 * SECOND),
        Window("SESSION", None, grace_ms=10 * SECOND),
    ],
    ids=lambda window: window.kind,
)
def test_windows_are_in_the_keys_of_a_table(
    sql: SqlUnderTest, name: str, started: list[str], window: Window
) -> None:
    topic, out = sql.create(f"{name}_in"), sql.create(f"{name}_out")
    rows = numbers(sql, topic, 300)
    target = source("t", out, key("k"), column("c", "bigint"), is_table=True, window=window)
    started.append(name)
    # Spark emits a session once.
    plan = windowed(window, final=window.kind == "SESSION")
    sql.start(name, plan, [stream(topic)], target, max_offsets_per_trigger="120")
    sql.has_read(name, 300)
    if plan.emit_final:
        sql.send(topic, {"n": 1}, "later", 200 * SECOND)
        sql.flush()
        sql.wait(lambda: sql.status(name), lambda found: (found.watermark or 0) >= 190 * SECOND)
        sql.wait(lambda: sql.records(out), bool)
    wanted: dict[bytes, Any] = {}
    for k in {k for k, _, _ in rows}:
        for (start, end), count in spans([at for n, _, at in rows if n == k], window).items():
            suffix = struct.pack(">q", start)
            if window.kind == "SESSION":
                suffix = struct.pack(">qq", end, start)
            wanted[k.encode() + suffix] = {"c": count}
    assert sql.table(out) == wanted


def test_a_window_is_written_once_when_it_is_final_and_late_rows_are_counted(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    topic, out = sql.create(f"{name}_in", 1), sql.create(f"{name}_out")
    window = Window("TUMBLING", SECOND, grace_ms=10 * SECOND)
    target = source("t", out, key("k"), column("c", "bigint"), is_table=True, window=window)
    started.append(name)
    sql.start(name, windowed(window, final=True), [stream(topic)], target)
    for at in (100_100, 101_200, 100_300, 100_999):
        sql.send(topic, {"n": 1}, "a", at)
    sql.flush()
    sql.has_read(name, 4)
    assert sql.records(out) == []
    sql.send(topic, {"n": 1}, "b", 111_500)
    sql.flush()
    found = sql.wait(lambda: sql.records(out), bool)
    assert [(each.key, each.json) for each in found] == [
        (b"a" + struct.pack(">q", 100_000), {"c": 3})
    ]
    assert found[0].timestamp == 100_999
    sql.send(topic, {"n": 1}, "a", 100_500)
    sql.flush()
    status = sql.wait(lambda: sql.status(name), lambda found: found.late_rows == 1)
    assert status.watermark == 101_500
    assert len(sql.records(out)) == 1


def test_a_table_may_have_several_key_columns_and_nested_values(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    topic, out = sql.create(f"{name}_in"), sql.create(f"{name}_out")
    target = source(
        "t",
        out,
        key("k"),
        key("even", "boolean"),
        column("all", "array<bigint>"),
        is_table=True,
        key_format=Format.JSON,
    )
    for number in range(6):
        sql.send(topic, {"n": number}, "a")
    sql.flush()
    plan = aggregate(
        "SELECT k, n % 2 = 0 AS even, sort_array(collect_list(n)) AS all FROM s "
        "GROUP BY k, n % 2 = 0",
        ["k", "even", "all"],
        "s",
        keys=("k", "even"),
    )
    started.append(name)
    sql.start(name, plan, [stream(topic)], target)
    sql.has_read(name, 6)
    found = {each.key: each.json for each in sql.records(out)}
    assert {json.dumps(json.loads(k or b"")): v for k, v in found.items()} == {
        json.dumps({"k": "a", "even": True}): {"all": [0, 2, 4]},
        json.dumps({"k": "a", "even": False}): {"all": [1, 3, 5]},
    }
