import datetime
import threading
import time
from typing import Any

import pymysql
import pytest

from headrace.connect import OptionError, PermanentError
from headrace.connect.connectors.ddl import arrow_schema
from headrace.connect.connectors.mysql_changes.source import MySqlChanges
from headrace.connect.plugin import SourceOffset
from headrace.connect.plugins import Plugins
from headrace.connect.validation import parsed
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
        "database.include.list": login.name,
        "topic.prefix": "shop",
        **named,
    }


class Reader:
    """Reads one table as the host does."""

    def __init__(self, source: MySqlChanges, start: SourceOffset | None = None) -> None:
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

    def next(self, limit: int = MANY) -> list[dict[str, Any]]:
        self.plan(limit)
        if self.end is None or self.end == self.start:
            return []
        rows = self.read()
        assert repr(self.read()) == repr(rows), "a range can be read again"
        self.done()
        return rows


@pytest.fixture
def shop(mariadb: EmptyDatabase) -> EmptyDatabase:
    mariadb.run("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, n DECIMAL(10,2))")
    return mariadb


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
    source = MySqlChanges(config(shop))
    source.check()
    reader = Reader(source)
    assert reader.stream.topic == f"shop.{shop.dialect.login.name}.t"
    rows = reader.next()
    assert brief(rows) == [(1, "r", None, "a"), (2, "r", None, None)]
    block = rows[0]["value"]["source"]
    assert (block["snapshot"], block["table"], block["connector"]) == ("true", "t", "mariadb")
    shop.run("INSERT INTO t VALUES (3, 'c', 0)", "DELETE FROM t WHERE id = 1")
    assert brief(reader.next()) == [(3, "c", None, "c"), (1, "d", "a", None), (1, None)]
    assert reader.next() == []
    shop.run("UPDATE t SET name = 'x' WHERE id = 2")
    (row,) = reader.next()
    assert brief([row]) == [(2, "u", None, "x")]
    block = row["value"]["source"]
    assert (block["snapshot"], block["db"], block["server_id"]) == (
        "false", shop.dialect.login.name, 1,
    )  # fmt: skip
    assert block["gtid"].startswith("0-1-")
    assert block["file"].startswith("binlog.")
    assert block["pos"] > 0
    assert row["value"]["ts_ms"] > 1_700_000_000_000


def test_a_snapshot_has_the_rows_at_its_position_whenever_it_is_read(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0), (3, 'c', 0)")
    reader = Reader(MySqlChanges(config(shop)))
    reader.plan()
    wanted = sorted(brief(reader.read()))
    assert wanted == [(1, "r", None, "a"), (2, "r", None, "b"), (3, "r", None, "c")]
    shop.run(
        "INSERT INTO t VALUES (4, 'd', 0)",
        "UPDATE t SET name = 'x' WHERE id = 1",
        "UPDATE t SET name = 'y' WHERE id IN (1, 4)",
        "DELETE FROM t WHERE id = 2",
        "UPDATE t SET id = 5 WHERE id = 3",
        "INSERT INTO t VALUES (2, 'again', 0), (3, 'again', 0)",
    )
    assert sorted(brief(reader.read())) == wanted
    reader.done()
    assert len(reader.next()) == 11, "the changes follow, each once"


def test_a_snapshot_of_a_table_without_a_key_counts_its_rows(shop: EmptyDatabase) -> None:
    shop.run("CREATE TABLE u (name VARCHAR(9), f FLOAT)")
    shop.run("INSERT INTO u VALUES ('a', 0.1), ('a', 0.1), ('b', NULL), ('c', 16777217)")
    name = shop.dialect.login.name
    reader = Reader(MySqlChanges(config(shop, table_include_list=f"{name}.u")))
    reader.plan()

    def rows() -> list[str]:
        return sorted(repr(row["value"]["after"]) for row in reader.read())

    wanted = rows()
    assert len(wanted) == 4
    shop.run(
        "DELETE FROM u WHERE name = 'a' LIMIT 1",
        "UPDATE u SET name = 'x' WHERE name = 'c'",
        "INSERT INTO u VALUES ('b', NULL), ('d', 1)",
    )
    assert rows() == wanted
    reader.done()
    assert [row["value"]["op"] for row in reader.next()] == ["d", "u", "c", "c"]


def test_a_snapshot_beside_writers_loses_and_doubles_nothing(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t SELECT seq, 'first', 0 FROM seq_1_to_2000")
    is_over = threading.Event()

    def write() -> None:
        connection = shop.dialect.connect()
        number = 0
        while not is_over.is_set():
            number += 1
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO t VALUES (%s, 'new', 0)", [10_000 + number])
                cursor.execute("UPDATE t SET n = n + 1 WHERE id = %s", [number % 2000 + 1])
                cursor.execute("DELETE FROM t WHERE id = %s", [(number * 7) % 2000 + 1])
            connection.commit()
        connection.close()

    writers = [threading.Thread(target=write)]
    for writer in writers:
        writer.start()
    state: dict[int, Any] = {}
    try:
        reader = Reader(MySqlChanges(config(shop)))
        for turn in range(20):
            reader.plan()
            if turn == 0:
                first = {row["key"]["id"]: row["value"]["after"] for row in reader.read()}
                again = {row["key"]["id"]: row["value"]["after"] for row in reader.read()}
                assert first == again
            if reader.end != reader.start:
                apply(state, reader.read())
            reader.done()
            if turn == 15:
                is_over.set()
                for writer in writers:
                    writer.join()
    finally:
        is_over.set()
    assert reader.next() == []
    found = {number: (row["name"], row["n"]) for number, row in state.items()}
    assert found == {number: (name, n) for number, name, n in shop.run("SELECT * FROM t")}


def apply(state: dict[int, Any], rows: list[dict[str, Any]]) -> None:
    """Every event must fit the rows that are there, so that a lost or doubled one is detected."""
    for row in rows:
        if (value := row["value"]) is None:
            continue
        number = row["key"]["id"]
        if value["op"] in "rc":
            assert number not in state, value
        else:
            assert state.pop(number) == value["before"]
        if value["op"] != "d":
            state[number] = value["after"]


def test_a_connector_that_starts_again_goes_on(shop: EmptyDatabase) -> None:
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    shop.run("INSERT INTO t VALUES (1, 'a', 1.5)")
    assert len(reader.next()) == 1
    shop.run("INSERT INTO t VALUES (2, 'b', 1.5)")
    again = Reader(MySqlChanges(config(shop)), reader.start)
    assert brief(again.next()) == [(2, "c", None, "b")]


def test_ranges_end_with_whole_transactions(shop: EmptyDatabase) -> None:
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    for first in (0, 10, 20):
        shop.run(f"INSERT INTO t SELECT seq, 'x', 0 FROM seq_{first}_to_{first + 9}")
    sizes = []
    while rows := reader.next(limit=5):
        sizes.append(len(rows))
    assert sizes == [10, 10, 10]


def test_tables_of_one_transaction_have_their_changes(shop: EmptyDatabase) -> None:
    shop.run("CREATE TABLE u (id INTEGER PRIMARY KEY, name TEXT)")
    source = MySqlChanges(config(shop))
    partitions = [stream.partitions[0] for stream in source.streams()]
    starts = [source.latest(partition, None, MANY) for partition in partitions]
    shop.run(
        "BEGIN",
        "INSERT INTO t VALUES (1, 'a', 0)",
        "INSERT INTO u VALUES (1, 'u')",
        "INSERT INTO t VALUES (2, 'b', 0)",
        "ROLLBACK",
        "BEGIN",
        "INSERT INTO t VALUES (3, 'c', 0)",
        "INSERT INTO u VALUES (3, 'v')",
        "UPDATE t, u SET t.name = 'both', u.name = 'both' WHERE t.id = u.id",
    )
    found = []
    for partition, start in zip(partitions, starts, strict=True):
        end = source.latest(partition, start, MANY)
        assert end is not None
        batches = source.read(partition, start, end)
        found.append(brief([row for batch in batches for row in batch.to_pylist()]))
    assert found[0] == [(3, "c", None, "c"), (3, "u", "c", "both")]
    assert found[1] == [(3, "c", None, "v"), (3, "u", "v", "both")]


def test_a_changed_key_is_a_deletion_and_a_new_row(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    shop.run("UPDATE t SET id = 2")
    assert brief(reader.next()) == [(1, "d", "a", None), (1, None), (2, "c", None, "a")]


def test_without_tombstones_a_deletion_is_one_event(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader = Reader(MySqlChanges(config(shop, tombstones_on_delete="false")))
    reader.next()
    shop.run("DELETE FROM t")
    assert brief(reader.next()) == [(1, "d", "a", None)]


TYPES = {
    "tiny": ("TINYINT", "-128"),
    "utiny": ("TINYINT UNSIGNED", "255"),
    "small": ("SMALLINT", "-32768"),
    "usmall": ("SMALLINT UNSIGNED", "65535"),
    "medium": ("MEDIUMINT", "-8388608"),
    "umedium": ("MEDIUMINT UNSIGNED", "16777215"),
    "i": ("INT", "-2147483648"),
    "ui": ("INT UNSIGNED", "4294967295"),
    "big": ("BIGINT", "-9223372036854775808"),
    "ubig": ("BIGINT UNSIGNED", "18446744073709551615"),
    "y": ("YEAR", "2026"),
    "after_year": ("INT UNSIGNED", "4294967295"),
    "after_year2": ("INT", "-1"),
    "f": ("FLOAT", "16777217"),
    "f2": ("FLOAT", "-0.1"),
    "d": ("DOUBLE", "-1.7976931348623157e308"),
    "d2": ("DOUBLE", "0.1"),
    "p": ("DECIMAL(38,10)", "-1234567890123456789012345678.0123456789"),
    "p2": ("DECIMAL(5,5)", "0.00001"),
    "p3": ("DECIMAL(10,0)", "-7"),
    "p4": ("DECIMAL(65,30)", "-12345678901234567890123456789012345.000000000000000000000000000001"),
    "p5": ("DECIMAL(65,30)", "0"),
    "bit1": ("BIT", "b'1'"),
    "bit12": ("BIT(12)", "b'101100001111'"),
    "bit64": ("BIT(64)", "b'1'"),
    "c": ("CHAR(5)", "'ab '"),
    "c255": ("CHAR(255) CHARACTER SET utf8mb4", "'Zürich €'"),
    "v": ("VARCHAR(20)", "'naïve ☃'"),
    "v300": ("VARCHAR(300)", "REPEAT('ä', 300)"),
    "lat": ("VARCHAR(20) CHARACTER SET latin1", "'caf\u00e9 \u20ac'"),
    "wide": ("VARCHAR(20) CHARACTER SET utf16", "'\U0001f600 x'"),
    "kr": ("VARCHAR(20) CHARACTER SET euckr", "'한국'"),
    "uca": ("VARCHAR(20) COLLATE utf8mb4_uca1400_ai_ci", "'été'"),
    "b": ("BINARY(6)", "x'610000'"),
    "vb": ("VARBINARY(20)", "x'00ff00'"),
    "t1": ("TINYTEXT", "'tiny'"),
    "t2": ("TEXT", "REPEAT('x', 60000)"),
    "t3": ("MEDIUMTEXT", "REPEAT('y', 70000)"),
    "t4": ("LONGTEXT", "''"),
    "b1": ("TINYBLOB", "x'00'"),
    "b2": ("BLOB", "REPEAT(x'ff', 60000)"),
    "b3": ("MEDIUMBLOB", "''"),
    "b4": ("LONGBLOB", "REPEAT(x'00', 70000)"),
    "e": ("ENUM('small','it''s','große, \"x\"')", "'große, \"x\"'"),
    "e2": ("ENUM('a','b') CHARACTER SET latin1", "'b'"),
    "s": ("SET('x','y','z')", "'x,z'"),
    "s0": ("SET('x','y','z')", "''"),
    "day": ("DATE", "'9999-12-31'"),
    "zero": ("DATE", "'0000-00-00'"),
    "zero2": ("DATETIME", "'0000-00-00 00:00:00'"),
    "month": ("DATE", "'2026-02-00'"),
    "dt": ("DATETIME", "'1000-01-01 00:00:00'"),
    "dt3": ("DATETIME(3)", "'2026-01-02 03:04:05.678'"),
    "dt6": ("DATETIME(6)", "'2026-01-02 03:04:05.000001'"),
    "ts": ("TIMESTAMP NULL", "'2026-01-02 03:04:05'"),
    "ts1": ("TIMESTAMP(1) NULL", "'2026-01-02 03:04:05.6'"),
    "ts6": ("TIMESTAMP(6) NULL", "'2026-01-02 03:04:05.678901'"),
    "tm": ("TIME", "'-838:59:59'"),
    "tm2": ("TIME(2)", "'-00:00:00.01'"),
    "tm6": ("TIME(6)", "'12:34:56.789012'"),
    "tm3": ("TIME(3)", "'-01:00:00.500'"),
    "j": ("JSON", '\'{"a": [1, null, "ü"]}\''),
    "g": ("POINT", "POINT(1.5, -2)"),
    "u": ("UUID", "'123e4567-e89b-12d3-a456-426655440000'"),
    "a6": ("INET6", "'2001:db8::ff00'"),
    "a6v4": ("INET6", "'::ffff:192.0.2.1'"),
    "a4": ("INET4", "'192.0.2.0'"),
    "gen": ("INT AS (id + 1) STORED", ""),
    "virt": ("INT AS (id + 2) VIRTUAL", ""),
}


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL", "NO_LOG"])
def test_every_type_is_that_of_the_snapshot(mariadb: EmptyDatabase, metadata: str) -> None:
    types = {name: kind for name, (kind, _) in TYPES.items()}
    given = {name: value for name, (_, value) in TYPES.items() if value}
    names = ", ".join(given)
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
    mariadb.run(f"CREATE TABLE types (id INTEGER PRIMARY KEY, {columns})")

    def insert(first: int) -> None:
        mariadb.run(
            "SET SESSION sql_mode = ''",
            f"INSERT INTO types (id, {names}) VALUES ({first}, {', '.join(given.values())})",
            f"INSERT INTO types (id) VALUES ({first + 1})",
        )

    mariadb.run(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        insert(1)
        reader = Reader(MySqlChanges(config(mariadb)))
        snapshot = [value["value"]["after"] for value in reader.next()]
        assert len(snapshot) == 2
        insert(3)
        log = [value["value"]["after"] for value in reader.next()]
    finally:
        mariadb.run("SET GLOBAL binlog_row_metadata = FULL")
    for found in snapshot + log:
        for name in ("id", "gen", "virt"):
            found[name] = found[name] is not None
    for expected, found in zip(snapshot, log, strict=True):
        differ = {name: (expected[name], found[name]) for name in types
                  if repr(expected[name]) != repr(found[name])}  # fmt: skip
        assert differ == {}
    assert snapshot[0]["e"] == 'große, "x"'
    assert snapshot[0]["zero"] is None
    assert snapshot[0]["f"] == 16777216.0


@pytest.mark.parametrize(
    ("mode", "found"), [("precise", "Decimal('1.50')"), ("double", "1.5"), ("string", "'1.50'")]
)
def test_decimals_have_the_type_that_is_asked_for(
    shop: EmptyDatabase, mode: str, found: str
) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 1.5)")
    reader = Reader(MySqlChanges(config(shop, decimal_handling_mode=mode)))
    rows = reader.next()
    shop.run("INSERT INTO t VALUES (2, 'a', 1.5)")
    rows += reader.next()
    assert [repr(row["value"]["after"]["n"]) for row in rows] == [found] * 2


def test_columns_can_be_left_out(shop: EmptyDatabase) -> None:
    name = shop.dialect.login.name
    shop.run("INSERT INTO t VALUES (1, 'a', 1.5)")
    reader = Reader(MySqlChanges(config(shop, column_exclude_list=rf"{name}\.t\.(n|id)")))
    (row,) = reader.next()
    assert row["value"]["after"] == {"id": 1, "name": "a"}, "the key is always there"
    shop.run("UPDATE t SET name = 'b'")
    (row,) = reader.next()
    assert row["value"]["before"] == {"id": 1, "name": "a"}


def test_columns_that_come_and_go_do_not_disturb(shop: EmptyDatabase) -> None:
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    shop.run(
        "INSERT INTO t VALUES (1, 'a', 0)",
        "ALTER TABLE t ADD COLUMN more TEXT FIRST",
        "INSERT INTO t VALUES ('new', 2, 'b', 0)",
        "ALTER TABLE t DROP COLUMN n",
        "INSERT INTO t VALUES ('new', 3, 'c')",
    )
    rows = reader.next()
    assert brief(rows) == [(1, "c", None, "a"), (2, "c", None, "b"), (3, "c", None, "c")]
    assert rows[2]["value"]["after"] == {"id": 3, "name": "c", "n": None}
    restarted = Reader(MySqlChanges(config(shop)))
    assert "more" in restarted.stream.schema


def test_without_names_in_the_log_an_altered_table_is_refused(shop: EmptyDatabase) -> None:
    shop.run("SET GLOBAL binlog_row_metadata = NO_LOG")
    try:
        reader = Reader(MySqlChanges(config(shop)))
        reader.next()
        shop.run("ALTER TABLE t ADD COLUMN more TEXT", "INSERT INTO t VALUES (1, 'a', 0, 'x')")
        with pytest.raises(PermanentError, match="binlog_row_metadata=FULL"):
            reader.next()
    finally:
        shop.run("SET GLOBAL binlog_row_metadata = FULL")


def test_without_a_snapshot_only_changes_are_read(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader = Reader(MySqlChanges(config(shop, snapshot_mode="no_data")))
    assert reader.next() == []
    shop.run("INSERT INTO t VALUES (2, 'b', 0)")
    assert brief(reader.next()) == [(2, "c", None, "b")]


def test_a_snapshot_alone_ends(shop: EmptyDatabase) -> None:
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader = Reader(MySqlChanges(config(shop, snapshot_mode="initial_only")))
    assert not reader.source.is_finished(reader.partition, reader.start)
    assert len(reader.next()) == 1
    assert reader.source.is_finished(reader.partition, reader.start)


def test_the_offset_follows_a_log_without_changes(shop: EmptyDatabase) -> None:
    shop.run("CREATE TABLE z (id INTEGER PRIMARY KEY)")
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    shop.run("INSERT INTO z VALUES (1)")
    before = reader.start
    assert reader.next() == []
    assert reader.start == before, "a few bytes are not worth an epoch"
    shop.run("FLUSH BINARY LOGS")
    assert reader.next() == []
    assert reader.start is not None
    assert before is not None
    assert reader.start["file"] != before["file"], "so that the server may forget the old file"
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    assert brief(reader.next()) == [(1, "c", None, "a")]


def test_a_range_is_bounded_by_the_bytes_of_the_log(
    shop: EmptyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.connect.connectors.mysql_changes.source.RANGE_BYTES", 100_000)
    shop.run("CREATE TABLE z (id INTEGER PRIMARY KEY, more TEXT)")
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    for number in range(10):
        shop.run(f"INSERT INTO z VALUES ({number}, REPEAT('x', 50000))")
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    sizes = [len(reader.next()) for _ in range(6)]
    assert sizes[:2] == [0, 0], "the table has no changes in the first bytes"
    assert sum(sizes) == 1


def test_a_purged_log_is_a_sentence(shop: EmptyDatabase) -> None:
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    shop.run("INSERT INTO t VALUES (1, 'a', 0)", "FLUSH BINARY LOGS")
    ((current, *_),) = shop.run("SHOW MASTER STATUS")
    end = time.monotonic() + 60
    while True:  # until the engine has stored what the old file is needed for
        shop.run(f"PURGE BINARY LOGS TO '{current}'")
        if shop.run("SHOW BINARY LOGS")[0][0] == current:
            break
        assert time.monotonic() < end
        time.sleep(0.1)
    with pytest.raises(PermanentError, match=r"changes are lost.*reset the connector's offsets"):
        reader.next()


def test_a_log_that_became_shorter_is_a_sentence(shop: EmptyDatabase) -> None:
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    assert reader.start is not None
    reader.start = {**reader.start, "pos": int(str(reader.start["pos"])) + 10**6}
    with pytest.raises(PermanentError, match="reset the connector's offsets"):
        reader.next()


def test_a_killed_server_loses_and_repeats_nothing(shop: EmptyDatabase) -> None:
    assert shop.server is not None
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    reader.plan()
    with killed(shop.server), pytest.raises(pymysql.err.OperationalError):
        reader.read()
    assert brief(reader.read()) == [(1, "c", None, "a")]
    reader.done()
    with killed(shop.server):
        pass
    shop.run("INSERT INTO t VALUES (2, 'b', 0)")
    assert brief(reader.next()) == [(2, "c", None, "b")]


@pytest.mark.parametrize(
    ("variable", "value", "usual"),
    [
        ("binlog_format", "MIXED", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("log_bin_compress", "ON", "OFF"),
    ],
)
def test_a_server_with_unsuitable_settings_is_refused(
    shop: EmptyDatabase, variable: str, value: str, usual: str
) -> None:
    reader = Reader(MySqlChanges(config(shop)))
    reader.next()
    shop.run(f"SET GLOBAL {variable} = {value}")
    try:
        with pytest.raises(OptionError, match=f"{variable}={value} instead of {usual}"):
            MySqlChanges(config(shop)).check()
        shop.run("INSERT INTO t VALUES (1, REPEAT('a', 1000), 0)", "DELETE FROM t")
    finally:
        shop.run(f"SET GLOBAL {variable} = {usual}")
    if variable != "binlog_format":
        with pytest.raises(PermanentError, match=variable):
            reader.next()


def test_a_user_without_rights_is_refused(shop: EmptyDatabase) -> None:
    name = shop.dialect.login.name
    shop.run(
        f"CREATE USER {name}@'%' IDENTIFIED BY 'x'",
        f"GRANT SELECT ON {name}.* TO {name}@'%'",
    )
    given = config(shop, database_user=name, database_password="x")
    with pytest.raises(OptionError, match="privilege"):
        MySqlChanges(given).check()
    shop.run(f"GRANT BINLOG MONITOR ON *.* TO {name}@'%'")
    with pytest.raises(OptionError, match="REPLICATION SLAVE"):
        MySqlChanges(given).check()
    shop.run(f"GRANT REPLICATION SLAVE ON *.* TO {name}@'%'")
    MySqlChanges(given).check()
    reader = Reader(MySqlChanges(given))
    reader.next()
    shop.run("INSERT INTO t VALUES (1, 'a', 0)")
    assert brief(reader.next()) == [(1, "c", None, "a")]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"snapshot_mode": "always"}, "snapshot.mode"),
        ({"decimal_handling_mode": "exact"}, "decimal.handling.mode"),
        ({"table_include_list": "no.table"}, "database.hostname"),
        ({"database_port": "1"}, "database.hostname"),
    ],
)
def test_options_that_cannot_work_are_named(
    shop: EmptyDatabase, options: dict[str, str], named: str
) -> None:
    with pytest.raises(OptionError) as raised:
        MySqlChanges(config(shop, **options)).check()
    assert raised.value.option == named


@pytest.mark.parametrize("name", MySqlChanges.aliases)
def test_options_of_debezium_that_are_missing_are_named(name: str) -> None:
    given = {
        "name": "shop",
        "connector.class": name,
        "database.hostname": "db",
        "database.user": "u",
        "database.server.id": "5",
        "topic.prefix": "shop",
        "gtid.source.includes": "a",
    }
    errors = parsed(Plugins().find(name), given).errors
    assert len(errors) == 1
    assert "gtid.source.includes" in str(errors[0])


def test_a_snapshot_of_another_engine_is_refused(shop: EmptyDatabase) -> None:
    shop.run("CREATE TABLE old (id INTEGER PRIMARY KEY, name TEXT) ENGINE=MyISAM")
    name = shop.dialect.login.name
    given = config(shop, table_include_list=f"{name}.old")
    with pytest.raises(OptionError, match="MyISAM"):
        MySqlChanges(given).check()
    reader = Reader(MySqlChanges({**given, "snapshot.mode": "no_data"}))
    reader.next()
    shop.run("INSERT INTO old VALUES (1, 'a')")
    assert brief(reader.next()) == [(1, "c", None, "a")]


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        (
            "adaptive_time_microseconds",
            {
                "d": 18263,
                "t": -3_020_399_000_000,
                "t6": 3_723_000_004,
                "dt": 1_577_923_201_000,
                "dt6": 1_577_923_200_000_001,
                "at": "2020-01-02T03:04:05Z",
                "at3": "2020-01-02T03:04:05.600Z",
            },
        ),
        (
            "connect",
            {
                "d": datetime.date(2020, 1, 2),
                "t6": 3_723_000,
                "dt": datetime.datetime(2020, 1, 2, 0, 0, 1),
                "at3": "2020-01-02T03:04:05.600Z",
            },
        ),
    ],
)
def test_times_are_encoded_as_debezium_does(
    shop: EmptyDatabase, mode: str, wanted: dict[str, object]
) -> None:
    shop.run(
        "CREATE TABLE times (id INTEGER PRIMARY KEY, d DATE, t TIME, t6 TIME(6), dt DATETIME, "
        "dt6 DATETIME(6), at TIMESTAMP NULL, at3 TIMESTAMP(3) NULL)"
    )
    time = "-838:59:59" if "t" in wanted else "23:59:59"
    values = (
        f"'2020-01-02', '{time}', '01:02:03.000004', '2020-01-02 00:00:01', "
        "'2020-01-02 00:00:00.000001', '2020-01-02 03:04:05', '2020-01-02 03:04:05.6'"
    )
    shop.run("SET time_zone = '+00:00'", f"INSERT INTO times VALUES (1, {values})")
    name = shop.dialect.login.name
    options = {"time_precision_mode": mode, "table_include_list": f"{name}.times"}
    reader = Reader(MySqlChanges(config(shop, **options)))
    rows = reader.next()
    shop.run(
        "SET time_zone = '+00:00'",
        f"INSERT INTO times VALUES (2, {values})",
        "DELETE FROM times WHERE id = 1",
    )
    changed, deleted, _ = reader.next()
    for row in (*rows, changed):
        after = row["value"]["after"]
        assert {name: after[name] for name in wanted} == wanted
    assert deleted["value"]["before"]["d"] == wanted["d"]


def test_a_duration_is_no_time_of_kafka_connect(shop: EmptyDatabase) -> None:
    shop.run("CREATE TABLE times (id INTEGER PRIMARY KEY, t TIME)")
    shop.run("INSERT INTO times VALUES (1, '25:00:00')")
    name = shop.dialect.login.name
    options = {"time_precision_mode": "connect", "table_include_list": f"{name}.times"}
    with pytest.raises(PermanentError, match="25:00:00 is no time of a day"):
        Reader(MySqlChanges(config(shop, **options))).next()
