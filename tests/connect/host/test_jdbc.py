"""The JDBC connectors as queries: a table to a topic, and the topic to another table."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect.host.conftest import HostUnderTest

pytestmark = pytest.mark.spark

WITH_SCHEMA = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "true",
}


@pytest.fixture
def names(host: HostUnderTest) -> Iterator[list[str]]:
    """Names of connectors, which are stopped at the end."""
    found = ["table-in", "table-out"]
    yield found
    for name in found:
        host.stop(name)


def rows(database: Path) -> list[tuple[int, str, float | None]]:
    if not database.exists():
        return []
    with sqlite3.connect(database) as connection:
        try:
            return connection.execute(
                "select id, name, price from shop_items order by id"
            ).fetchall()
        except sqlite3.OperationalError:  # the table is not created yet
            return []


def test_rows_of_a_table_reach_another_one_with_their_types(
    host: HostUnderTest, names: list[str], tmp_path: Path
) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    wanted = [(n, f"item {n}", None if n % 10 == 0 else n / 4) for n in range(1, 201)]
    with sqlite3.connect(source) as connection:
        connection.execute("create table items (id integer primary key, name text, price real)")
        connection.executemany("insert into items values (?, ?, ?)", wanted[:150])
    host.create("shop_items", 2)
    host.start(
        names[0],
        {
            **WITH_SCHEMA,
            "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
            "connection.url": f"jdbc:sqlite:{source}",
            "mode": "incrementing", "incrementing.column.name": "id",
            "table.whitelist": "items", "topic.prefix": "shop_",
        },
    )  # fmt: skip
    host.start(
        names[1],
        {
            **WITH_SCHEMA,
            "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
            "connection.url": f"jdbc:sqlite:{target}",
            "topics": "shop_items", "insert.mode": "upsert", "pk.mode": "record_value",
            "pk.fields": "id", "auto.create": "true", "tasks.max": "2",
        },
    )  # fmt: skip
    host.wait(lambda: len(rows(target)), lambda found: found == 150)
    with sqlite3.connect(source) as connection:
        connection.executemany("insert into items values (?, ?, ?)", wanted[150:])
    host.wait(lambda: len(rows(target)), lambda found: found == 200)
    assert rows(target) == wanted
