import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from headrace.connect import OptionError, PermanentError
from headrace.connect.connectors.ddl import arrow_schema
from headrace.connect.connectors.postgresql_changes.source import PostgresqlChanges
from headrace.connect.plugin import SourceOffset
from tests.connect.conftest import EmptyDatabase
from tests.support.databases import killed

MANY = 10**6


def config(database: EmptyDatabase, **options: str) -> dict[str, str]:
    login = database.dialect.login
    named = {name.replace("_", "."): value for name, value in options.items()}
    return {
        "database.hostname": login.host,
        "database.port": str(login.port),
        "database.user": login.user,
        "database.dbname": login.name,
        "topic.prefix": "shop",
        "slot.name": f"slot_{login.name}",
        **named,
    }


class Reader:
    """Reads one table as the host does."""

    def __init__(self, source: PostgresqlChanges, start: SourceOffset | None = None) -> None:
        self.source = source
        self.stream = source.streams()[0]
        (self.partition,) = self.stream.partitions
        self.start = start
        self.end: SourceOffset | None = start

    def plan(self, limit: int = MANY) -> None:
        self.end = self.source.latest(self.partition, self.start, limit)

    def read(self) -> list[dict[str, Any]]:
        assert self.end is not None
        rows = []
        for batch in self.source.read(self.partition, self.start, self.end):
            assert batch.schema.equals(arrow_schema(self.stream.schema))
            rows += batch.to_pylist()
        return rows

    def done(self) -> None:
        self.start = self.end
        assert self.end is not None
        self.source.commit(self.partition, self.end)

    def next(self, limit: int = MANY) -> list[dict[str, Any]]:
        self.plan(limit)
        if self.end is None or self.end == self.start:
            return []
        rows = self.read()
        assert repr(self.read()) == repr(rows), "a range can be read again"
        self.done()
        return rows


@pytest.fixture
def shop(postgresql: EmptyDatabase) -> Iterator[EmptyDatabase]:
    postgresql.run("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, n NUMERIC(10,2))")
    yield postgresql
    # A server has few slots, and a database with one cannot be used by the next test run.
    postgresql.run(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        "WHERE database = current_database()"
    )


def brief(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Key, operation, and the names before and after."""
    found = []
    for row in rows:
        value = row["value"]
        if value is None:
            found.append((row["key"]["id"], None))
            continue
        names = [value[side] and value[side]["name"] for side in ("before", "after")]
        found.append((row["key"]["id"], value["op"], *names))
    return found


def test_first_all_rows_are_read_and_then_the_log(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 1.5), (2, NULL, NULL)")
    source = PostgresqlChanges(config(shop))
    source.check()
    reader = Reader(source)
    assert reader.stream.topic == "shop.public.t"
    reader.plan()
    shop.run("INSERT INTO t VALUES (3, 'c', 0)", "DELETE FROM t WHERE id = 1")
    rows = reader.read()
    assert brief(rows) == [(1, "r", None, "a"), (2, "r", None, None)], "as when the slot was made"
    source_block = rows[0]["value"]["source"]
    assert (source_block["snapshot"], source_block["table"]) == ("true", "t")
    reader.done()
    assert brief(reader.next()) == [(3, "c", None, "c"), (1, "d", None, None), (1, None)]
    assert reader.next() == []
    shop.run("UPDATE t SET name = 'x' WHERE id = 2")
    (row,) = reader.next()
    assert brief([row]) == [(2, "u", None, "x")]
    assert row["value"]["source"]["lsn"] > 0
    assert row["value"]["source"]["txId"] > 0
    assert row["value"]["ts_ms"] > 1_700_000_000_000


def test_a_connector_that_starts_again_goes_on(shop: EmptyDatabase) -> None:
    reader = Reader(PostgresqlChanges(config(shop)))
    reader.next()
    shop.run("INSERT INTO t VALUES (1, 'a', 1.5)")
    assert len(reader.next()) == 1
    shop.run("INSERT INTO t VALUES (2, 'b', 1.5)")
    again = Reader(PostgresqlChanges(config(shop)), reader.start)
    assert brief(again.next()) == [(2, "c", None, "b")]


def test_ranges_end_with_whole_transactions(shop: EmptyDatabase) -> None:
    reader = Reader(PostgresqlChanges(config(shop)))
    reader.next()
    for first in (0, 10, 20):
        shop.run(f"INSERT INTO t SELECT n, 'x', 0 FROM generate_series({first}, {first + 9}) n")
    sizes = []
    while rows := reader.next(limit=5):
        sizes.append(len(rows))
    assert sizes == [10, 10, 10]


def test_a_slot_that_was_not_advanced_repeats_nothing(
    shop: EmptyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = PostgresqlChanges(config(shop))
    monkeypatch.setattr(source, "commit", lambda partition, end: None)
    reader = Reader(source)
    reader.next()
    for number in range(10):
        shop.run(f"INSERT INTO t VALUES ({number}, 'x', 0)")
    found = []
    while rows := reader.next(limit=4):
        found += [row["key"]["id"] for row in rows]
    assert found == list(range(10))


def test_the_server_may_forget_what_is_in_the_topic(shop: EmptyDatabase) -> None:
    reader = Reader(PostgresqlChanges(config(shop)))
    reader.next()
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader.next()
    assert reader.start is not None
    ((confirmed,),) = shop.run(
        "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots "
        "WHERE database = current_database()"
    )
    assert confirmed == reader.start["lsn"]


def test_a_changed_key_is_a_deletion_and_a_new_row(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader = Reader(PostgresqlChanges(config(shop)))
    reader.next()
    shop.run("UPDATE t SET id = 2")
    assert brief(reader.next()) == [(1, "d", None, None), (1, None), (2, "c", None, "a")]


def test_full_identity_has_the_row_before(shop: EmptyDatabase) -> None:
    shop.run("ALTER TABLE t REPLICA IDENTITY FULL", "INSERT INTO t VALUES (1, 'a', 0)")
    reader = Reader(PostgresqlChanges(config(shop, tombstones_on_delete="false")))
    reader.next()
    shop.run("UPDATE t SET name = 'b'", "DELETE FROM t")
    assert brief(reader.next()) == [(1, "u", "a", "b"), (1, "d", "b", None)]


def test_long_values_that_did_not_change_have_debeziums_stand_in(shop: EmptyDatabase) -> None:
    shop.run(
        "ALTER TABLE t ALTER name SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES (1, repeat('x', 100000), 0)",
    )
    reader = Reader(PostgresqlChanges(config(shop)))
    assert len(reader.next()[0]["value"]["after"]["name"]) == 100000
    shop.run("UPDATE t SET n = 1")
    assert brief(reader.next()) == [(1, "u", None, "__debezium_unavailable_value")]


def test_every_type_is_that_of_the_snapshot(shop: EmptyDatabase) -> None:
    shop.run(
        "CREATE TABLE types (id INTEGER PRIMARY KEY, b BOOLEAN, i BIGINT, f DOUBLE PRECISION, "
        "p NUMERIC(30,10), free NUMERIC, raw BYTEA, day DATE, local TIMESTAMP, "
        "instant TIMESTAMPTZ, j JSONB, tags TEXT[], c CHAR(3))"
    )
    row = (
        "INSERT INTO types VALUES (%d, true, -5, 'NaN', 1.5, 0.1, '\\x00ff', '2026-01-02', "
        "'2026-01-02 03:04:05.678901', '2026-01-02 03:04:05+02', '{\"a\": 1}', '{a}', 'x')"
    )
    shop.run(row % 1, "INSERT INTO types (id) VALUES (3)")
    reader = Reader(PostgresqlChanges(config(shop, table_include_list="public.types")))
    snapshot = [value["value"]["after"] for value in reader.next()]
    shop.run(row % 2, "INSERT INTO types (id) VALUES (4)")
    log = [value["value"]["after"] for value in reader.next()]
    for found in snapshot + log:
        found["id"] = 0
    assert repr(log) == repr(snapshot)


def test_other_tables_and_new_columns_do_not_disturb(shop: EmptyDatabase) -> None:
    shop.run("CREATE TABLE u (id INTEGER PRIMARY KEY)")
    options = config(shop, publication_autocreate_mode="all_tables", table_include_list="public.t")
    reader = Reader(PostgresqlChanges(options))
    reader.next()
    shop.run(
        "INSERT INTO u VALUES (1)",
        "INSERT INTO t VALUES (1, 'a', 0)",
        "ALTER TABLE t ADD COLUMN more TEXT",
        "INSERT INTO t VALUES (2, 'b', 0, 'new')",
        "ALTER TABLE t DROP COLUMN n",
        "INSERT INTO t VALUES (3, 'c', 'new')",
    )
    rows = reader.next()
    assert brief(rows) == [(1, "c", None, "a"), (2, "c", None, "b"), (3, "c", None, "c")]
    assert rows[2]["value"]["after"] == {"id": 3, "name": "c", "n": None}


def test_each_table_has_a_slot_of_its_own(shop: EmptyDatabase) -> None:
    shop.run("CREATE TABLE u (id INTEGER PRIMARY KEY)")
    source = PostgresqlChanges(config(shop))
    streams = source.streams()
    assert [stream.topic for stream in streams] == ["shop.public.t", "shop.public.u"]
    for stream in streams:
        source.latest(stream.partitions[0], None, MANY)
        source.commit(stream.partitions[0], {"lsn": 1})
    slots = shop.run(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    )
    name = f"slot_{shop.dialect.login.name}"
    assert {slot for (slot,) in slots} == {f"{name}_public_t", f"{name}_public_u"}


def test_an_interrupted_snapshot_is_read_again_with_the_rows_of_now(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader = Reader(PostgresqlChanges(config(shop)))
    reader.plan()
    exporters = reader.source._exporters
    exporters.popitem()[1].close()  # as if the process had died
    shop.run("INSERT INTO t VALUES (2, 'b', 0)")
    again = Reader(PostgresqlChanges(config(shop)))
    again.end = reader.end
    assert brief(again.read()) == [(1, "r", None, "a"), (2, "r", None, "b")]
    again.done()
    assert brief(again.next()) == [(2, "c", None, "b")], "nothing is lost"


def test_without_a_snapshot_only_changes_are_read(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader = Reader(PostgresqlChanges(config(shop, snapshot_mode="no_data")))
    assert reader.next() == []
    shop.run("INSERT INTO t VALUES (2, 'b', 0)")
    assert brief(reader.next()) == [(2, "c", None, "b")]


def test_a_killed_server_loses_and_repeats_nothing(shop: EmptyDatabase) -> None:
    assert shop.server is not None
    reader = Reader(PostgresqlChanges(config(shop)))
    reader.next()
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader.plan()
    with killed(shop.server), pytest.raises(Exception) as raised:
        reader.read()
    assert type(raised.value).__name__ == "OperationalError"
    assert brief(reader.read()) == [(1, "c", None, "a")]
    reader.done()
    with killed(shop.server):
        pass
    shop.run("INSERT INTO t VALUES (2, 'b', 0)")
    assert brief(reader.next()) == [(2, "c", None, "b")]


def test_a_slot_that_is_gone_is_a_sentence(shop: EmptyDatabase) -> None:
    reader = Reader(PostgresqlChanges(config(shop)))
    reader.next()
    shop.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
             "WHERE database = current_database()")  # fmt: skip
    with pytest.raises(PermanentError, match="changes are lost"):
        reader.next()


def test_a_publication_without_the_table_is_a_sentence(shop: EmptyDatabase) -> None:
    shop.run("CREATE PUBLICATION dbz_publication")
    with pytest.raises(PermanentError, match=r"does not have public\.t"):
        Reader(PostgresqlChanges(config(shop))).next()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"slot_name": "My-Slot"}, "slot.name"),
        ({"plugin_name": "wal2json"}, "plugin.name"),
        ({"table_include_list": "public.no"}, "database.hostname"),
        ({"database_dbname": "no"}, "database.hostname"),
    ],
)
def test_options_that_cannot_work_are_named(
    shop: EmptyDatabase, options: dict[str, str], named: str
) -> None:
    with pytest.raises(OptionError) as raised:
        PostgresqlChanges(config(shop, **options)).check()
    assert raised.value.option == named


TIMES = (
    "CREATE TABLE times (id INTEGER PRIMARY KEY, d DATE, t TIME, t3 TIME(3), tz TIMETZ, "
    "ts TIMESTAMP, ts3 TIMESTAMP(3), at TIMESTAMPTZ, n NUMERIC(12,8), free NUMERIC)"
)
VALUES = (
    "'2020-01-02', '01:02:03.000004', '01:02:03.004', '01:02:03.5+02', '2020-01-02 00:00:00.000001'"
    ", '1969-12-31 23:59:59.999', '2020-01-02 03:04:05.678+03', 0.00000001, 1.50"
)
AS_DEBEZIUM: dict[str, dict[str, object]] = {
    "adaptive": {
        "d": 18263,
        "t": 3_723_000_004,
        "t3": 3_723_004,
        "tz": "23:02:03.5Z",
        "ts": 1_577_923_200_000_001,
        "ts3": -1,
        "at": "2020-01-02T00:04:05.678Z",
    },
    "adaptive_time_microseconds": {"d": 18263, "t": 3_723_000_004, "t3": 3_723_004_000},
    "connect": {
        "d": datetime.date(2020, 1, 2),
        "t": 3_723_000,
        "ts": datetime.datetime(2020, 1, 2, 0, 0, 0, 1),
        "at": "2020-01-02T00:04:05.678Z",
    },
}


@pytest.mark.parametrize("mode", AS_DEBEZIUM)
def test_times_are_encoded_as_debezium_does(shop: EmptyDatabase, mode: str) -> None:
    shop.run(TIMES, f"INSERT INTO times VALUES (1, {VALUES})")
    options = {"time_precision_mode": mode, "table_include_list": "public.times"}
    reader = Reader(PostgresqlChanges(config(shop, **options)))
    (row,) = reader.next()
    shop.run(
        f"INSERT INTO times VALUES (2, {VALUES})",
        "INSERT INTO times VALUES (3)",
        "DELETE FROM times WHERE id = 1",
    )
    changed, empty, deleted, _ = reader.next()
    for found in (row, changed):
        after = found["value"]["after"]
        assert {name: after[name] for name in AS_DEBEZIUM[mode]} == AS_DEBEZIUM[mode]
    assert set(empty["value"]["after"].values()) == {3, None}
    assert deleted["value"]["after"] is None


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("precise", (Decimal("0.00000001"), "1.50")),
        ("double", (1e-8, 1.5)),
        ("string", ("0.00000001", "1.50")),
    ],
)
def test_decimals_have_the_type_of_the_option(
    shop: EmptyDatabase, mode: str, wanted: tuple[object, object]
) -> None:
    shop.run(TIMES, f"INSERT INTO times VALUES (1, {VALUES})")
    options = {"decimal_handling_mode": mode, "table_include_list": "public.times"}
    reader = Reader(PostgresqlChanges(config(shop, **options)))
    rows = reader.next()
    shop.run(f"INSERT INTO times VALUES (2, {VALUES})")
    for row in (*rows, *reader.next()):
        after = row["value"]["after"]
        assert (after["n"], after["free"]) == wanted
