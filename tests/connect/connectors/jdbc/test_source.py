import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.connect import OptionError, PermanentError
from headrace.connect.connectors.ddl import arrow_schema
from headrace.connect.connectors.jdbc.positions import RowPosition
from headrace.connect.connectors.jdbc.source import JdbcSource
from headrace.connect.plugin import SourceOffset
from tests.connect.conftest import EmptyDatabase
from tests.support.databases import killed

MANY = 10**6


def source(database: EmptyDatabase, mode: str, **options: str) -> JdbcSource:
    named = {name.replace("_", "."): value for name, value in options.items()}
    tables = {} if "query" in named else {"table.whitelist": "t"}
    return JdbcSource({**database.config, "mode": mode, "topic.prefix": "p-", **tables, **named})


class Reader:
    """Reads a source of one table as the host does."""

    def __init__(self, found: JdbcSource, start: SourceOffset | None = None) -> None:
        self.source = found
        (self.stream,) = found.streams()
        (self.partition,) = self.stream.partitions
        self.start = start

    def next(self, limit: int = MANY) -> list[dict[str, Any]]:
        end = self.source.latest(self.partition, self.start, limit)
        if end is None or end == self.start:
            return []
        rows = self._read(end)
        assert repr(self._read(end)) == repr(rows), "a range can be read again"
        self.start = end
        return rows

    def _read(self, end: SourceOffset) -> list[dict[str, Any]]:
        rows = []
        for batch in self.source.read(self.partition, self.start, end):
            assert batch.schema.equals(arrow_schema(self.stream.schema))
            rows += batch.to_pylist()
        return rows


def test_rows_are_read_once_by_a_number_that_grows(empty: EmptyDatabase) -> None:
    empty.run("CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY, name VARCHAR(20))")
    found = source(empty, "incrementing", incrementing_column_name="id")
    found.check()
    reader = Reader(found)
    assert reader.stream.topic == "p-t"
    assert reader.next() == []
    empty.run("INSERT INTO t VALUES (1, 'a'), (2, NULL), (5, '')")
    assert reader.next(2) == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    assert reader.start == {"incrementing": 2}
    assert reader.next(2) == [{"id": 5, "name": ""}]
    assert reader.next() == []
    empty.run("INSERT INTO t VALUES (6, 'b')")
    reader = Reader(source(empty, "incrementing", incrementing_column_name="id"), reader.start)
    assert reader.next() == [{"id": 6, "name": "b"}]


def test_partitions_are_named_as_confluents(empty: EmptyDatabase) -> None:
    empty.run("CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY)")
    reader = Reader(source(empty, "incrementing", incrementing_column_name="id"))
    schema = {"postgresql": "public.", "mariadb": f"{empty.dialect.login.name}.", "sqlite": ""}
    assert reader.partition == {"protocol": "1", "table": f"{schema[empty.kind]}t"}


def test_the_counting_column_is_found(empty: EmptyDatabase) -> None:
    kind = {
        "postgresql": "BIGSERIAL PRIMARY KEY",
        "mariadb": "BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT",
        "sqlite": "INTEGER PRIMARY KEY",
    }[empty.kind]
    empty.run(f"CREATE TABLE t (name VARCHAR(20), id {kind})", "INSERT INTO t (name) VALUES ('a')")
    found = source(empty, "incrementing")
    found.check()
    assert [row["name"] for row in Reader(found).next()] == ["a"]


TIME = {"postgresql": "TIMESTAMP(6)", "mariadb": "DATETIME(6)", "sqlite": "DATETIME"}


def test_rows_of_the_same_time_are_not_divided(empty: EmptyDatabase) -> None:
    empty.run(
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, changed {TIME[empty.kind]} NOT NULL)",
        "INSERT INTO t VALUES (1, '2026-01-01 00:00:00'), (2, '2026-01-01 00:00:01.001'), "
        "(3, '2026-01-01 00:00:01.001'), (4, '2026-01-01 00:00:01.001'), "
        "(5, '2026-01-01 00:00:02'), (6, '2099-01-01 00:00:00')",
    )
    found = source(empty, "timestamp", timestamp_column_name="changed")
    found.check()
    reader = Reader(found)
    assert [row["id"] for row in reader.next(2)] == [1, 2, 3, 4]
    assert reader.start == {"timestamp": 1767225601001, "timestamp_nanos": 1_000_000}
    assert [row["id"] for row in reader.next(2)] == [5]
    assert reader.next() == [], "the future is not read"
    empty.run("UPDATE t SET changed = '2026-01-01 00:00:03' WHERE id = 1")
    assert [row["id"] for row in reader.next()] == [1]


def test_time_and_number_divide_rows_of_the_same_time(empty: EmptyDatabase) -> None:
    empty.run(
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, changed {TIME[empty.kind]} NOT NULL)",
        "INSERT INTO t VALUES (4, '2026-01-01 00:00:00'), (1, '2026-01-01 00:00:01'), "
        "(2, '2026-01-01 00:00:01'), (3, '2026-01-01 00:00:01')",
    )
    options = {"timestamp_column_name": "changed", "incrementing_column_name": "id"}
    reader = Reader(source(empty, "timestamp+incrementing", **options))
    assert [row["id"] for row in reader.next(2)] == [4, 1]
    assert reader.start == {"incrementing": 1, "timestamp": 1767225601000, "timestamp_nanos": 0}
    assert [row["id"] for row in reader.next(1)] == [2]
    empty.run("INSERT INTO t VALUES (5, '2026-01-01 00:00:01')")
    assert [row["id"] for row in reader.next()] == [3, 5]


def test_a_delay_waits_for_transactions_that_still_run(empty: EmptyDatabase) -> None:
    now = {"postgresql": "now() AT TIME ZONE 'UTC'", "mariadb": "UTC_TIMESTAMP(6)",
           "sqlite": "datetime('now')"}[empty.kind]  # fmt: skip
    empty.run(
        f"CREATE TABLE t (changed {TIME[empty.kind]} NOT NULL)",
        f"INSERT INTO t VALUES ({now}), ('2026-01-01 00:00:00')",
    )
    options = {"timestamp_column_name": "changed", "timestamp_delay_interval_ms": "3600000"}
    assert len(Reader(source(empty, "timestamp", **options)).next()) == 1


def test_reading_begins_after_the_initial_time(empty: EmptyDatabase) -> None:
    empty.run(
        f"CREATE TABLE t (id INTEGER, changed {TIME[empty.kind]} NOT NULL)",
        "INSERT INTO t VALUES (1, '2026-01-01 00:00:00'), (2, '2026-01-01 00:00:01')",
    )
    options = {"timestamp_column_name": "changed", "timestamp_initial": "1767225600000"}
    assert [row["id"] for row in Reader(source(empty, "timestamp", **options)).next()] == [2]


def test_times_without_a_zone_are_in_the_zone_of_the_database(empty: EmptyDatabase) -> None:
    empty.run(
        f"CREATE TABLE t (id INTEGER, changed {TIME[empty.kind]} NOT NULL)",
        "INSERT INTO t VALUES (1, '2026-01-01 01:00:00')",
    )
    options = {"timestamp_column_name": "changed", "db_timezone": "Europe/Berlin"}
    reader = Reader(source(empty, "timestamp", **options))
    assert len(reader.next()) == 1
    assert reader.start == {"timestamp": 1767225600000, "timestamp_nanos": 0}
    assert reader.next() == []


def test_of_several_times_the_first_that_is_not_null_counts(empty: EmptyDatabase) -> None:
    kind = TIME[empty.kind]
    empty.run(
        f"CREATE TABLE t (id INTEGER, changed {kind} NULL, made {kind} NOT NULL)",
        "INSERT INTO t VALUES (1, NULL, '2026-01-01 00:00:00'), "
        "(2, '2026-01-02 00:00:00', '2025-01-01 00:00:00')",
    )
    found = source(empty, "timestamp", timestamp_column_name="changed,made")
    found.check()
    reader = Reader(found)
    assert [row["id"] for row in reader.next(1)] == [1]
    assert [row["id"] for row in reader.next(1)] == [2]


def test_bulk_reads_everything_at_every_poll(empty: EmptyDatabase) -> None:
    empty.run("CREATE TABLE t (id INTEGER)", "INSERT INTO t VALUES (1), (2)")
    reader = Reader(source(empty, "bulk", poll_interval_ms="0"))
    assert len(reader.next()) == 2
    assert len(reader.next()) == 2
    reader = Reader(source(empty, "bulk", poll_interval_ms="3600000"))
    assert len(reader.next()) == 2
    assert reader.next() == []
    assert not reader.source.once
    assert source(empty, "incrementing").once


def test_a_query_is_read_by_its_columns(empty: EmptyDatabase) -> None:
    empty.run(
        "CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY, price DECIMAL(10,2))",
        "CREATE TABLE u (id INTEGER, name VARCHAR(20))",
        "INSERT INTO t VALUES (1, 1.5), (2, 2.25)",
        "INSERT INTO u VALUES (1, 'a'), (2, 'b')",
    )
    query = "SELECT t.id AS number, price, name FROM t JOIN u ON t.id = u.id"
    options = {"query": query, "incrementing_column_name": "number"}
    reader = Reader(source(empty, "incrementing", **options))
    assert (reader.stream.topic, reader.partition) == ("p-", {"query": "query"})
    assert reader.next(1) == [{"number": 1, "price": decimal.Decimal("1.50"), "name": "a"}]
    assert [row["name"] for row in reader.next(1)] == ["b"]


POSTGRESQL = """
CREATE TABLE t (
  id BIGINT GENERATED ALWAYS AS IDENTITY, b BOOLEAN, i SMALLINT, f REAL, d DOUBLE PRECISION,
  price NUMERIC(30,10), free NUMERIC, raw BYTEA, day DATE, t TIME, local TIMESTAMP,
  instant TIMESTAMPTZ(3), j JSONB, u UUID, tags TEXT[], "Wide name" CHAR(3))
"""
POSTGRESQL_ROW = """
INSERT INTO t VALUES (DEFAULT, true, -7, 1.5, 'NaN', 12345678901234567890.0123456789, 0.1,
  '\\x00ff', '2026-02-03', '04:05:06.7', '2026-02-03 04:05:06.000789', '2026-02-03 04:05:06.7+02',
  '{"a": 1}', '00000000-0000-0000-0000-000000000001', '{a,b}', 'x')
"""


def test_every_type_of_postgresql_is_exact(postgresql: EmptyDatabase) -> None:
    postgresql.run(POSTGRESQL, POSTGRESQL_ROW, "INSERT INTO t DEFAULT VALUES")
    row, nothing = Reader(source(postgresql, "incrementing")).next()
    assert str(row.pop("d")) == "nan"
    assert row == {
        "id": 1,
        "b": True,
        "i": -7,
        "f": 1.5,
        "price": decimal.Decimal("12345678901234567890.0123456789"),
        "free": "0.1",
        "raw": b"\x00\xff",
        "day": datetime.date(2026, 2, 3),
        "t": "04:05:06.7",
        "local": datetime.datetime(2026, 2, 3, 4, 5, 6, 789),
        "instant": datetime.datetime(2026, 2, 3, 2, 5, 6, 700000, datetime.UTC),
        "j": '{"a": 1}',
        "u": "00000000-0000-0000-0000-000000000001",
        "tags": "{a,b}",
        "Wide name": "x  ",
    }
    assert nothing == {**dict.fromkeys([*row, "d"]), "id": 2}


MARIADB = """
CREATE TABLE t (
  id BIGINT UNSIGNED PRIMARY KEY AUTO_INCREMENT, b BIT(1), i TINYINT, u INT UNSIGNED, f FLOAT,
  d DOUBLE, price DECIMAL(30,10), raw VARBINARY(10), day DATE, t TIME(1), local DATETIME(6),
  instant TIMESTAMP(3) NULL, j JSON, e ENUM('x', 'y'), y YEAR, text LONGTEXT)
"""
MARIADB_ROW = """
INSERT INTO t VALUES (NULL, b'1', -7, 4294967295, 1.5, 0.1, 12345678901234567890.0123456789,
  x'00ff', '2026-02-03', '04:05:06.7', '2026-02-03 04:05:06.000789', '2026-02-03 02:05:06.7',
  '{"a": 1}', 'y', 2026, 'é')
"""


def test_every_type_of_mariadb_is_exact(mariadb: EmptyDatabase) -> None:
    mariadb.run(MARIADB, MARIADB_ROW, "INSERT INTO t (id) VALUES (18446744073709551615)")
    row, nothing = Reader(source(mariadb, "incrementing")).next()
    assert row == {
        "id": 1,
        "b": True,
        "i": -7,
        "u": 4294967295,
        "f": 1.5,
        "d": 0.1,
        "price": decimal.Decimal("12345678901234567890.0123456789"),
        "raw": b"\x00\xff",
        "day": datetime.date(2026, 2, 3),
        "t": "04:05:06.7",
        "local": datetime.datetime(2026, 2, 3, 4, 5, 6, 789),
        "instant": datetime.datetime(2026, 2, 3, 2, 5, 6, 700000, datetime.UTC),
        "j": '{"a": 1}',
        "e": "y",
        "y": 2026,
        "text": "é",
    }
    assert nothing == {**dict.fromkeys(row), "id": 18446744073709551615}


def test_values_that_mariadb_shows_differently_are_exact(mariadb: EmptyDatabase) -> None:
    mariadb.run(
        "CREATE TABLE t (id INT PRIMARY KEY, f FLOAT, day DATE, local DATETIME, place POINT)",
        "SET SESSION sql_mode = ''",
        "INSERT INTO t VALUES (1, 16777217, '0000-00-00', '2026-01-00 00:00:00', POINT(1, 2))",
    )
    (row,) = Reader(source(mariadb, "incrementing", incrementing_column_name="id")).next()
    assert row["f"] == 16777216.0
    assert row["day"] is None
    assert row["local"] is None
    assert row["place"][4:9] == b"\x01\x01\0\0\0", "SRID and WKB"


def test_times_of_java_in_sqlite_are_times(sqlite: EmptyDatabase) -> None:
    sqlite.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, changed TIMESTAMP NOT NULL)",
        "INSERT INTO t VALUES (1, 1767225600123), (2, '2026-01-01T00:00:01Z')",
    )
    reader = Reader(source(sqlite, "timestamp", timestamp_column_name="changed"))
    assert reader.next(1) == [{"id": 1, "changed": datetime.datetime(2026, 1, 1, 0, 0, 0, 123000)}]
    assert reader.next(1) == [{"id": 2, "changed": datetime.datetime(2026, 1, 1, 0, 0, 1)}]


@pytest.mark.parametrize(
    ("mapping", "schema"),
    [
        ("none", "a decimal(4,0), b decimal(10,2), c decimal(30,2), d decimal(20,0)"),
        ("precision_only", "a smallint, b decimal(10,2), c decimal(30,2), d decimal(20,0)"),
        ("best_fit", "a smallint, b double, c decimal(30,2), d decimal(20,0)"),
        ("best_fit_eager_double", "a smallint, b double, c double, d decimal(20,0)"),
    ],
)
def test_decimals_become_other_numbers_if_wished(
    empty: EmptyDatabase, mapping: str, schema: str
) -> None:
    empty.run(
        "CREATE TABLE t (a DECIMAL(4,0), b DECIMAL(10,2), c DECIMAL(30,2), d DECIMAL(20,0))",
        "INSERT INTO t VALUES (12, 1.5, 2.5, 3)",
    )
    reader = Reader(source(empty, "bulk", numeric_mapping=mapping))
    assert reader.stream.schema == schema
    assert [float(value) for value in reader.next()[0].values()] == [12, 1.5, 2.5, 3]


def test_tables_are_chosen_by_name_and_kind(empty: EmptyDatabase) -> None:
    empty.run(
        "CREATE TABLE a (id INTEGER)",
        "CREATE TABLE b (id INTEGER)",
        "CREATE VIEW v AS SELECT * FROM a",
    )

    def topics(**options: str) -> list[str]:
        named = {name.replace("_", "."): value for name, value in options.items()}
        config = {**empty.config, "mode": "bulk", "topic.prefix": "", **named}
        return [stream.topic for stream in JdbcSource(config).streams()]

    assert topics() == ["a", "b"]
    assert topics(table_types="TABLE,VIEW") == ["a", "b", "v"]
    assert topics(table_blacklist="a") == ["b"]
    assert topics(table_include_list="b") == ["b"]
    with pytest.raises(PermanentError, match="does not have c"):
        topics(table_whitelist="b,c")


def test_a_value_without_counterpart_is_a_sentence(postgresql: EmptyDatabase) -> None:
    postgresql.run("CREATE TABLE t (day DATE)", "INSERT INTO t VALUES ('infinity')")
    with pytest.raises(PermanentError, match="no counterpart"):
        Reader(source(postgresql, "bulk")).next()


def test_large_tables_come_in_blocks(postgresql: EmptyDatabase) -> None:
    postgresql.run(
        "CREATE TABLE t (id INTEGER NOT NULL, name TEXT)",
        "INSERT INTO t SELECT n, repeat('x', 100) || E'\\n\"' FROM generate_series(1, 100000) n",
    )
    found = source(postgresql, "incrementing", incrementing_column_name="id")
    (stream,) = found.streams()
    batches = list(found.read(stream.partitions[0], None, {"incrementing": 100000}))
    assert len(batches) > 1
    table = pa.Table.from_batches(batches)
    assert table.column("id").to_pylist() == list(range(1, 100001))
    assert set(table.column("name").to_pylist()) == {"x" * 100 + '\n"'}


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_killed_server_is_a_passing_error(kind: str, request: pytest.FixtureRequest) -> None:
    database: EmptyDatabase = request.getfixturevalue(kind)
    assert database.server is not None
    database.run("CREATE TABLE t (id INTEGER NOT NULL)", "INSERT INTO t VALUES (1)")
    reader = Reader(source(database, "incrementing", incrementing_column_name="id"))
    assert len(reader.next()) == 1
    with killed(database.server), pytest.raises(Exception) as raised:
        reader.next()
    assert type(raised.value).__name__ == "OperationalError"
    database.run("INSERT INTO t VALUES (2)")
    assert [row["id"] for row in reader.next()] == [2]


@pytest.mark.parametrize(
    "offset",
    [
        {"incrementing": 5},
        {"timestamp": 1767225601001, "timestamp_nanos": 1_234_000},
        {"incrementing": -1, "timestamp": -1, "timestamp_nanos": 999_000_000},
    ],
)
def test_offsets_of_confluents_connector_are_understood(offset: SourceOffset) -> None:
    position = RowPosition.of(offset)
    assert position is not None
    assert position.offset == offset


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"mode": "sometimes"}, "mode"),
        ({"mode": "timestamp"}, "timestamp.column.name"),
        ({"mode": "timestamp", "timestamp.column.name": "changed"}, "timestamp.column.name"),
        ({"mode": "incrementing", "incrementing.column.name": "x"}, "incrementing.column.name"),
        ({"mode": "incrementing", "incrementing.column.name": "n"}, "incrementing.column.name"),
        ({"mode": "incrementing"}, "incrementing.column.name"),
        ({"mode": "bulk", "table.whitelist": "u"}, "connection.url"),
        ({"mode": "bulk", "query": "SELECT 1"}, "query"),
        ({"mode": "bulk", "db.timezone": "Mars/North"}, "db.timezone"),
    ],
)
def test_options_that_cannot_work_are_named(
    sqlite: EmptyDatabase, options: dict[str, str], named: str
) -> None:
    sqlite.run("CREATE TABLE t (n INTEGER, changed DATETIME)")
    config = {**sqlite.config, "topic.prefix": "", "table.whitelist": "t", **options}
    with pytest.raises(OptionError) as raised:
        JdbcSource(config).check()
    assert raised.value.option == named
