"""Statements as the planner plans them, run by the driver."""

import struct
from typing import Any

import pytest

from headrace.pipelines.running.progress_topic import TOPIC, parse_query
from headrace.sql.language.parsing import parse
from headrace.sql.language.planning import plan
from headrace.sql.language.statements import CreateAs
from headrace.sql.plans import QueryPlan
from headrace.sql.sources import ColumnRole, Format, SqlColumn, SqlSource
from tests.sql.host.conftest import SqlUnderTest, column, key, source

pytestmark = pytest.mark.spark


def planned(text: str, *sources: SqlSource) -> QueryPlan:
    statement = parse(text)
    assert isinstance(statement, CreateAs)
    by_name = {each.name.casefold(): each for each in sources}
    return plan(
        statement.select,
        lambda name: by_name.get(name.casefold()),
        into_table=statement.is_table,
    )


def target_of(sql: SqlUnderTest, made: QueryPlan, topic: str, *sources: SqlSource) -> SqlSource:
    """The stream or table of a statement, with the types that Spark finds."""
    types = sql.call(sql.host.analyse(made, sources)).columns
    columns = tuple(
        SqlColumn(
            each.name,
            each.type,
            ColumnRole.KEY if each.name in made.keys else ColumnRole.VALUE,
        )
        for each in types
    )
    form = Format.JSON if len(made.keys) > 1 else Format.KAFKA
    return SqlSource("made", made.makes_table, sql.create(topic), columns, form, window=made.window)


def run(
    sql: SqlUnderTest, name: str, started: list[str], text: str, rows: int, *sources: SqlSource
) -> SqlSource:
    made = planned(text, *sources)
    target = target_of(sql, made, f"{name}_out", *sources)
    started.append(name)
    sql.start(name, made, sources, target)
    sql.has_read(name, rows)
    return target


def orders(sql: SqlUnderTest, name: str) -> SqlSource:
    made = source(
        "orders",
        sql.create(f"{name}_orders"),
        key("id"),
        column("user"),
        column("item"),
        column("amount", "bigint"),
    )
    for number, (user, item, amount) in enumerate(
        [("ann", "i1", 5), ("bob", "i2", 7), ("ann", "i2", None), ("eve", "i9", 1)]
    ):
        value = {"user": user, "item": item, "amount": amount}
        sql.send(made.topic, value, f"o{number}", 100_000 + 1000 * number)
    sql.flush()
    return made


def table(sql: SqlUnderTest, name: str, of: str, rows: dict[str, Any]) -> SqlSource:
    made = source(of, sql.create(f"{name}_{of}"), key("id"), column("title"), is_table=True)
    for of_key, title in rows.items():
        sql.send(made.topic, {"title": title}, of_key, 1000)
    sql.flush()
    return made


def test_a_stream_is_joined_with_two_tables_one_after_the_other(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    stream = orders(sql, name)
    users = table(sql, name, "users", {"ann": "Ann", "bob": "Bob"})
    items = table(sql, name, "items", {"i1": "Ink", "i2": "Inn"})
    target = run(
        sql,
        name,
        started,
        "CREATE STREAM made AS SELECT o.id AS id, u.title AS who, i.title AS what FROM orders o "
        "JOIN users u ON o.user = u.id LEFT JOIN items i ON o.item = i.id "
        "PARTITION BY o.id EMIT CHANGES",
        8,
        stream,
        users,
        items,
    )
    assert sql.table(target.topic) == {
        b"o0": {"who": "Ann", "what": "Ink"},
        b"o1": {"who": "Bob", "what": "Inn"},
        b"o2": {"who": "Ann", "what": "Inn"},
    }


def test_a_windowed_aggregate_and_its_progress_for_everybody(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    stream = orders(sql, name)
    target = run(
        sql,
        name,
        started,
        "CREATE TABLE made AS SELECT user, COUNT(*) AS c, SUM(amount) AS s FROM orders "
        "WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY user EMIT CHANGES",
        4,
        stream,
    )
    start = struct.pack(">q", 100_000)
    assert sql.table(target.topic) == {
        b"ann" + start: {"c": 2, "s": 5},
        b"bob" + start: {"c": 1, "s": 7},
        b"eve" + start: {"c": 1, "s": 1},
    }
    assert {each.key: each.timestamp for each in sql.records(target.topic)}[
        b"ann" + start
    ] == 102_000

    def told() -> list[Any]:
        found = [parse_query(each.value or b"") for each in sql.records(TOPIC)]
        return [each for each in found if each and each.name == name and each.rows_total]

    (*_, last) = sql.wait(told, bool)
    assert last.sink_target is not None
    assert (last.sink_target.topic, last.sink_target.mode) == (target.topic, "update")
    assert last.application == "sql"


def test_a_table_follows_another_with_a_filter(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    users = table(sql, name, "users", {"ann": "Ann", "bob": "Bob"})
    sql.send(users.topic, {"title": "Robert"}, "bob", 2000)
    sql.send(users.topic, None, "ann", 2000)
    sql.flush()
    target = run(
        sql,
        name,
        started,
        "CREATE TABLE made AS SELECT id, UCASE(title) AS t FROM users WHERE title LIKE 'R%' "
        "EMIT CHANGES",
        4,
        users,
    )
    assert sql.table(target.topic) == {b"bob": {"t": "ROBERT"}}


def test_a_function_that_fails_is_null_and_ends_no_query(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    stream = orders(sql, name)
    target = run(
        sql,
        name,
        started,
        "CREATE STREAM made AS SELECT id, CAST(user AS INT) AS n, amount / 0 AS d FROM orders "
        "EMIT CHANGES",
        4,
        stream,
    )
    assert set(map(str, sql.table(target.topic).values())) == {"{'n': None, 'd': None}"}
