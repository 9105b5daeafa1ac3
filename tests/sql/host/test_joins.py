"""Joins: of streams, of streams with tables, and of tables."""

from typing import Any

import pytest

from headrace.sql.plans import Input, PlanKind, QueryPlan, StateJoin
from headrace.sql.sources import SqlSource
from tests.sql.host.conftest import SqlUnderTest, column, key, source, stateless

pytestmark = pytest.mark.spark


def sides(sql: SqlUnderTest, name: str, left_is_table: bool) -> tuple[SqlSource, SqlSource]:
    left = source("a", sql.create(f"{name}_a"), key("id"), column("x"), is_table=left_is_table)
    right = source(
        "b",
        sql.create(f"{name}_b"),
        key("id"),
        column("y", "decimal(30,5)"),
        column("seen", "timestamp"),
        is_table=True,
    )
    return left, right


def joined(kind: str, *, of_tables: bool) -> QueryPlan:
    join = StateJoin("j", Input("a", "a"), Input("b", "b"), "a.id", "b.id", kind, not of_tables)
    key_of = "coalesce(l__id, r__id)" if kind == "FULL" else "l__id"
    deleted = ", __deleted" if of_tables else ""
    return stateless(
        f"SELECT {key_of} AS id, l__x AS x, r__y AS y, unix_millis(r__seen) AS seen{deleted}, "
        "__time FROM j",
        ["id", "x", "y", "seen"],
        "a",
        "b",
        kind=PlanKind.STATE_JOIN,
        keys=("id",),
        makes_table=of_tables,
        joins=(join,),
    )


def result(sql: SqlUnderTest, name: str, *, of_tables: bool) -> SqlSource:
    columns = (column("x"), column("y", "decimal(30,5)"), column("seen", "bigint"))
    return source("t", sql.create(f"{name}_out"), key("id"), *columns, is_table=of_tables)


def row(x: Any, y: Any, seen: Any = None) -> dict[str, Any]:
    return {"x": x, "y": y, "seen": seen}


@pytest.mark.parametrize("kind", ["INNER", "LEFT"])
def test_a_row_of_a_stream_is_joined_with_the_row_that_the_table_had_then(
    sql: SqlUnderTest, name: str, started: list[str], kind: str
) -> None:
    left, right = sides(sql, name, left_is_table=False)
    target = result(sql, name, of_tables=False)
    # One epoch: by time; a change of the table is before a row of the stream at the same time.
    sql.send(left.topic, {"x": "early"}, "k", 1000)
    sql.send(right.topic, {"y": 1.5, "seen": 7}, "k", 2000)
    sql.send(left.topic, {"x": "same"}, "k", 2000)
    sql.send(left.topic, {"x": "between"}, "k", 2500)
    sql.send(right.topic, {"y": 2.5}, "k", 3000)
    sql.send(left.topic, {"x": "late"}, "k", 4000)
    sql.send(left.topic, {"x": "alone"}, "other", 4000)
    sql.send(left.topic, {"x": "no key"}, None, 4000)
    sql.flush()
    started.append(name)
    sql.start(name, joined(kind, of_tables=False), [left, right], target)
    sql.has_read(name, 8)
    wanted = {"same": row("same", 1.5, 7), "between": row("between", 1.5, 7)}
    wanted["late"] = row("late", 2.5)
    if kind == "LEFT":
        wanted |= {x: row(x, None) for x in ("early", "alone", "no key")}
    assert {each["x"]: each for each in sql.values(target.topic)} == wanted
    assert {each.json["x"]: each.timestamp for each in sql.records(target.topic)}["late"] == 4000
    # The next epoch: the state has the row, until a tombstone deletes it.
    sql.send(left.topic, {"x": "next"}, "k", 100)
    sql.flush()
    sql.has_read(name, 9)
    sql.send(right.topic, None, "k", 5000)
    sql.flush()
    sql.has_read(name, 10)
    sql.send(left.topic, {"x": "after"}, "k", 6000)
    sql.flush()
    sql.has_read(name, 11)
    wanted["next"] = row("next", 2.5)
    if kind == "LEFT":
        wanted["after"] = row("after", None)
    assert {each["x"]: each for each in sql.values(target.topic)} == wanted


@pytest.mark.parametrize("kind", ["INNER", "LEFT", "FULL"])
def test_a_join_of_tables_follows_the_changes_of_both(
    sql: SqlUnderTest, name: str, started: list[str], kind: str
) -> None:
    left, right = sides(sql, name, left_is_table=True)
    target = result(sql, name, of_tables=True)
    sql.send(left.topic, {"x": "x1"}, "both", 1000)
    sql.send(right.topic, {"y": 1, "seen": 5}, "both", 1000)
    sql.send(left.topic, {"x": "x2"}, "left", 1000)
    sql.send(right.topic, {"y": 2}, "right", 1000)
    # The last change by offset counts, although its time is before that of the first.
    sql.send(left.topic, {"x": "old"}, "order", 9000)
    sql.send(left.topic, {"x": "new"}, "order", 1000)
    sql.send(right.topic, {"y": 3}, "order", 1000)
    sql.flush()
    started.append(name)
    sql.start(name, joined(kind, of_tables=True), [left, right], target)
    sql.has_read(name, 7)
    wanted = {b"both": row("x1", 1.0, 5), b"order": row("new", 3.0)}
    if kind != "INNER":
        wanted[b"left"] = row("x2", None)
    if kind == "FULL":
        wanted[b"right"] = row(None, 2.0)
    assert sql.table(target.topic) == wanted
    sql.send(right.topic, None, "both", 2000)
    sql.send(right.topic, {"y": 4}, "left", 2000)
    sql.send(left.topic, None, "order", 2000)
    sql.flush()
    sql.has_read(name, 10)
    wanted = {b"left": row("x2", 4.0)}
    if kind != "INNER":
        wanted[b"both"] = row("x1", None)
    if kind == "FULL":
        wanted |= {b"order": row(None, 3.0), b"right": row(None, 2.0)}
    assert sql.table(target.topic) == wanted
    last = {each.key: each.value for each in sql.records(target.topic)}
    assert (b"both" in last and last[b"both"] is None) == (kind == "INNER")


def test_streams_are_joined_within_a_range_of_time(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    one = source("a", sql.create(f"{name}_a"), key("id"), column("x"))
    two = source("b", sql.create(f"{name}_b"), key("id"), column("y"))
    target = source("t", sql.create(f"{name}_out"), key("id"), column("x"), column("y"))
    for number, at in enumerate((1000, 5000, 9000)):
        sql.send(one.topic, {"x": f"x{number}"}, "k", at)
    for number, at in enumerate((1500, 6000, 20_000)):
        sql.send(two.topic, {"y": f"y{number}"}, "k", at)
    sql.flush()
    plan = stateless(
        "SELECT a.id AS id, x, y, greatest(a.__time, b.__time) AS __time FROM a JOIN b ON "
        "a.id = b.id AND b.__time >= a.__time - INTERVAL 1 SECOND AND "
        "b.__time <= a.__time + INTERVAL 1 SECOND",
        ["id", "x", "y"],
        "a",
        "b",
        kind=PlanKind.STREAM_JOIN,
        keys=("id",),
        watermark_ms=60_000,
    )
    started.append(name)
    sql.start(name, plan, [one, two], target)
    sql.has_read(name, 6)
    found = {(each["x"], each["y"]) for each in sql.values(target.topic)}
    assert found == {("x0", "y0"), ("x1", "y1")}
    assert {each.timestamp for each in sql.records(target.topic)} == {1500, 6000}


def test_a_table_of_a_table_has_tombstones_for_rows_that_it_excludes(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    table = source("a", sql.create(f"{name}_a"), key("id"), column("x", "int"), is_table=True)
    target = source("t", sql.create(f"{name}_out"), key("id"), column("z", "int"), is_table=True)
    plan = stateless(
        "SELECT id, x * 2 AS z, __deleted OR NOT coalesce(x > 1, false) AS __deleted, __time "
        "FROM a",
        ["id", "z"],
        "a",
        kind=PlanKind.CHANGES,
        keys=("id",),
        makes_table=True,
    )
    for name_of, x in (("p", 5), ("q", 1), ("r", 7), ("s", 9)):
        sql.send(table.topic, {"x": x}, name_of)
    sql.send(table.topic, {"x": 0}, "r")
    sql.send(table.topic, None, "s")
    sql.flush()
    started.append(name)
    sql.start(name, plan, [table], target)
    sql.has_read(name, 6)
    assert sql.table(target.topic) == {b"p": {"z": 10}}
    last = {each.key: each.value for each in sql.records(target.topic)}
    assert last[b"r"] is None
    assert last[b"s"] is None
