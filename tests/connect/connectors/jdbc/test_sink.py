import datetime
import decimal
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from headrace.connect import OptionError, PermanentError, RecordError, SinkTask
from headrace.connect.connectors.jdbc.sink import DebeziumJdbcSink, JdbcSink
from tests.connect.conftest import EmptyDatabase
from tests.support.databases import killed

TASK = SinkTask("c", 0, 0, 0)
UPSERT = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
ADVICE = {"auto.create": "true", "auto.evolve": "true"}


def records(
    values: Sequence[object] | pa.Array,
    keys: Sequence[object] | None = None,
    topics: Sequence[str] | None = None,
) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "topic": list(topics or ["t"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "key": pa.array(keys) if keys else pa.nulls(count),
            "value": values if isinstance(values, pa.Array) else pa.array(values),
        }
    )


def write(sink: JdbcSink, *batches: pa.RecordBatch) -> None:
    sink.open(TASK)
    try:
        for batch in batches:
            sink.write(batch)
        sink.close()
    finally:
        sink.abandon()


def test_the_last_record_of_a_key_wins_within_a_batch_and_after_it(empty: EmptyDatabase) -> None:
    empty.run("CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR(20), n INTEGER DEFAULT 7)")
    sink = JdbcSink({**empty.config, **UPSERT, "topics": "t"})
    sink.check()
    named = [{"name": name} for name in "abcd"]
    write(sink, records(named, [1, 2, 1, 3]), records([{"name": "e"}], [3]))
    assert sorted(map(tuple, empty.run("SELECT id, name, n FROM t"))) == [
        (1, "c", 7),
        (2, "b", 7),
        (3, "e", 7),
    ]


def test_deletes_and_writes_of_a_key_keep_their_order(empty: EmptyDatabase) -> None:
    empty.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR(20), n INTEGER)",
        "INSERT INTO t VALUES (1, 'x', 1), (2, 'x', 1), (3, 'x', 1), (4, 'x', 1)",
    )
    sink = JdbcSink({**empty.config, **UPSERT, "delete.enabled": "true"})
    values = [{"name": "a"}, None, None, {"name": "b"}, {"name": "c"}, {"name": "d"}, None]
    write(sink, records(values, [1, 1, 2, 2, 3, 3, 5]))
    assert sorted(map(tuple, empty.run("SELECT * FROM t"))) == [
        (2, "b", None),
        (3, "d", 1),
        (4, "x", 1),
    ]


def test_a_batch_of_tombstones_deletes(empty: EmptyDatabase) -> None:
    empty.run("CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    sink = JdbcSink({**empty.config, **UPSERT, "delete.enabled": "true"})
    write(sink, records(pa.nulls(2), [1, 3]))
    assert [tuple(row) for row in empty.run("SELECT * FROM t")] == [(2,)]


def test_update_changes_rows_and_adds_none(empty: EmptyDatabase) -> None:
    empty.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'x'), (2, 'x')",
    )
    sink = JdbcSink({**empty.config, **UPSERT, "insert.mode": "update"})
    write(sink, records([{"name": "a"}, {"name": "b"}, {"name": "c"}], [1, 3, 1]))
    assert sorted(map(tuple, empty.run("SELECT * FROM t"))) == [(1, "c"), (2, "x")]


def test_inserts_without_a_key_are_all_there(empty: EmptyDatabase) -> None:
    empty.run("CREATE TABLE t (name VARCHAR(20))")
    write(JdbcSink(empty.config), records([{"name": "a"}, {"name": "a"}]))
    assert len(empty.run("SELECT * FROM t")) == 2


def test_the_place_in_the_topic_can_be_the_key(empty: EmptyDatabase) -> None:
    sink = JdbcSink({**empty.config, **ADVICE, "insert.mode": "upsert", "pk.mode": "kafka"})
    for _ in range(2):
        write(sink, records([{"name": "a"}, {"name": "b"}]))
    found = empty.run(
        "SELECT __connect_topic, __connect_partition, __connect_offset, name FROM t ORDER BY 3"
    )
    assert [tuple(row) for row in found] == [("t", 0, 0, "a"), ("t", 0, 1, "b")]


def test_keys_of_several_fields_and_of_the_value(empty: EmptyDatabase) -> None:
    options = {"insert.mode": "upsert", "pk.mode": "record_key"}
    keys = [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 1, "b": "x"}]
    values = [{"n": n, "left_out": 0} for n in (1, 2, 3)]
    whitelist = {"fields.whitelist": "n", "table.name.format": "x_${topic}"}
    write(JdbcSink({**empty.config, **ADVICE, **options, **whitelist}), records(values, keys))
    found = empty.run("SELECT a, b, n FROM x_t ORDER BY n")
    assert [tuple(row) for row in found] == [(1, "y", 2), (1, "x", 3)]
    options = {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "id"}
    write(
        JdbcSink({**empty.config, **ADVICE, **options}),
        records([{"id": 1, "n": 1}, {"id": 1, "n": 2}]),
    )
    assert [tuple(row) for row in empty.run("SELECT id, n FROM t")] == [(1, 2)]


EVERYTHING = pa.schema(
    [
        ("b", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("price", pa.decimal128(20, 4)),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "UTC")),
        ("nested", pa.struct([("x", pa.list_(pa.int32()))])),
        ("map", pa.map_(pa.string(), pa.int64())),
    ]
)
ROW: dict[str, Any] = {
    "b": True,
    "i8": -8,
    "i16": -16,
    "i32": 2**31 - 1,
    "i64": -(2**63),
    "f32": 1.5,
    "f64": 0.1,
    "price": decimal.Decimal("1234567890123456.7890"),
    "text": "a,\"b\"\n'c' \\ é \t;",
    "raw": bytes(range(256)),
    "day": datetime.date(2026, 2, 3),
    "local": datetime.datetime(2026, 2, 3, 4, 5, 6, 789),
    "instant": datetime.datetime(2026, 2, 3, 4, 5, 6, 789, datetime.UTC),
    "nested": {"x": [1, 2]},
    "map": [("k", 1)],
}


def test_created_tables_hold_every_type_exactly(empty: EmptyDatabase) -> None:
    nothing = dict.fromkeys(ROW)
    values = pa.array([ROW, nothing, {**nothing, "text": ""}], pa.struct(EVERYTHING))
    sink = JdbcSink({**empty.config, **ADVICE, **UPSERT})
    write(sink, records(values, [1, 2, 3]))
    dialect = empty.dialect
    connection = dialect.connect()
    try:
        from headrace.connect.connectors.jdbc.dialects import TableName

        columns = dialect.columns(connection, TableName("t"))
        names = ", ".join(dialect.expression(column) for column in columns)
        (batch,) = dialect.select(connection, f"SELECT {names} FROM t ORDER BY id", [], columns)
    finally:
        connection.close()
    rows = batch.to_pylist()
    found = rows[0]
    assert json.loads(found.pop("nested")) == {"x": [1, 2]}
    assert json.loads(found.pop("map")) == {"k": 1}
    expected = {"id": 1, **ROW}
    if empty.kind != "postgresql":  # DATETIME has no zone; it is UTC
        expected["instant"] = expected["instant"].replace(tzinfo=None)
    if empty.kind == "sqlite":
        expected["price"] = str(expected["price"])
    assert found == {name: expected[name] for name in found}
    assert len(found) == len(EVERYTHING) - 1
    assert rows[1] == {"id": 2, **nothing}
    assert rows[2] == {"id": 3, **nothing, "text": ""}
    assert "id bigint" in str(sink.columns("t"))
    assert sink.columns("no_such_table") is None


def test_new_fields_become_columns(empty: EmptyDatabase) -> None:
    sink = JdbcSink({**empty.config, **ADVICE, **UPSERT})
    write(sink, records([{"a": 1}], [1]), records([{"a": 2, "b": "x"}], [2]))
    found = empty.run("SELECT id, a, b FROM t ORDER BY id")
    assert [tuple(row) for row in found] == [(1, 1, None), (2, 2, "x")]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_tasks_may_create_and_change_the_same_tables_at_once(
    kind: str, request: pytest.FixtureRequest
) -> None:
    database: EmptyDatabase = request.getfixturevalue(kind)
    tables = [f"t{number}" for number in range(8)]
    barrier = threading.Barrier(3)

    def task(number: int) -> None:
        sink = JdbcSink({**database.config, **ADVICE, **UPSERT})
        sink.open(TASK)
        for table in tables:
            for value in ({"a": 1}, {"a": 1, "b": 2}):
                barrier.wait(60)
                sink.write(records([value], [number], [table]))
        sink.close()

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(task, number) for number in range(3)]:
            done.result()
    for table in tables:
        found = database.run(f"SELECT id, a, b FROM {table} ORDER BY id")
        assert [tuple(row) for row in found] == [(0, 1, 2), (1, 1, 2), (2, 1, 2)]


def test_topics_have_tables_of_their_own(empty: EmptyDatabase) -> None:
    sink = JdbcSink({**empty.config, **ADVICE, **UPSERT})
    write(sink, records([{"a": 1}, {"a": 2}, {"a": 3}], [1, 1, 2], ["t", "u", "t"]))
    assert len(empty.run("SELECT * FROM t")) == 2
    assert [tuple(row) for row in empty.run("SELECT id, a FROM u")] == [(1, 2)]


def test_refused_rows_are_named_and_nothing_is_written(empty: EmptyDatabase) -> None:
    empty.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL CHECK (n < 1000))",
        "CREATE TABLE u (id INTEGER PRIMARY KEY, n INTEGER)",
    )
    sink = JdbcSink({**empty.config, **UPSERT})
    values: list[dict[str, int | None]] = [{"n": n} for n in range(100)]
    values[10], values[70], values[99] = {"n": None}, {"n": 1000}, {"n": 5000}
    topics = ["u", *["t"] * 99]
    sink.open(TASK)
    with pytest.raises(RecordError) as raised:
        sink.write(records(values, list(range(100)), topics))
    assert set(raised.value.rows) == {10, 70, 99}
    assert all(raised.value.rows.values())
    assert list(empty.run("SELECT * FROM t UNION SELECT * FROM u")) == []
    good = [row for row in range(100) if row not in raised.value.rows]
    sink.write(records([values[row] for row in good], good))
    sink.close()
    assert len(empty.run("SELECT * FROM t")) == 97


def test_inserts_of_an_existing_key_are_refused(empty: EmptyDatabase) -> None:
    empty.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)", "INSERT INTO t VALUES (2, 0)")
    sink = JdbcSink({**empty.config, "pk.mode": "record_key", "pk.fields": "id"})
    with pytest.raises(RecordError) as raised:
        write(sink, records([{"n": 1}] * 4, [1, 2, 3, 3]))
    assert set(raised.value.rows) == {1, 3}


def test_records_that_are_no_rows_are_refused(empty: EmptyDatabase) -> None:
    empty.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
    for sink, batch, bad in (
        (JdbcSink({**empty.config, **UPSERT}), records([{"n": 1}, None], [1, 2]), [1]),
        (JdbcSink({**empty.config, **UPSERT}), records(["a", None], [1, 2]), [0]),
        (JdbcSink({**empty.config, **UPSERT}), records([{"n": 1}] * 2, [1, None]), [1]),
    ):
        with pytest.raises(RecordError) as raised:
            write(sink, batch)
        assert list(raised.value.rows) == bad


def test_a_nested_key_is_a_sentence(sqlite: EmptyDatabase) -> None:
    options = {"insert.mode": "upsert", "pk.mode": "record_key"}
    sink = JdbcSink({**sqlite.config, **ADVICE, **options})
    with pytest.raises(PermanentError, match="inner cannot be part of the primary key"):
        write(sink, records([{"n": 1}], [{"id": 1, "inner": {"a": 1}}]))


@pytest.mark.parametrize(
    ("statement", "options", "sentence"),
    [
        ("SELECT 1", {}, "table t does not exist"),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY)", {}, "has no column n"),
        (
            "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, m INTEGER NOT NULL)",
            {},
            "column m of the table t must not be null",
        ),
        ("CREATE TABLE t (id INTEGER, n INTEGER)", {}, "(?i)unique|conflict"),
        ("SELECT 1", {"pk.fields": "a,b"}, "exactly one name"),
    ],
)
def test_what_does_not_go_away_is_a_sentence(
    empty: EmptyDatabase, statement: str, options: dict[str, str], sentence: str
) -> None:
    empty.run(statement)
    sink = JdbcSink({**empty.config, **UPSERT, **options})
    with pytest.raises(PermanentError, match=sentence):
        write(sink, records([{"n": 1}], [1]))


def test_refused_logins_and_missing_databases_do_not_go_away(
    postgresql: EmptyDatabase, mariadb: EmptyDatabase
) -> None:
    mariadb.run("CREATE USER IF NOT EXISTS someone IDENTIFIED BY 'secret'")
    for database, user in ((postgresql, "someone"), (mariadb, "someone")):
        for config in (
            {"connection.url": database.url, "connection.user": user},
            {"connection.url": database.url + "x", "connection.user": database.user},
        ):
            with pytest.raises(PermanentError):
                JdbcSink(config).open(TASK)
            with pytest.raises(OptionError):
                JdbcSink(config).check()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_killed_server_is_a_passing_error(kind: str, request: pytest.FixtureRequest) -> None:
    database: EmptyDatabase = request.getfixturevalue(kind)
    assert database.server is not None
    config = {**database.config, **ADVICE, **UPSERT}
    sink = JdbcSink(config)
    sink.open(TASK)
    sink.write(records([{"n": 1}], [1]))
    with killed(database.server):
        with pytest.raises(Exception) as lost:
            sink.write(records([{"n": 2}], [2]))
        sink.abandon()
        with pytest.raises(Exception) as refused:
            JdbcSink(config).open(TASK)
    for raised in (lost, refused):
        assert type(raised.value).__name__ in (
            "OperationalError",
            "AdminShutdown",
            "InterfaceError",
        )
    write(JdbcSink(config), records([{"n": 2}], [2]))
    assert [tuple(row) for row in database.run("SELECT id, n FROM t ORDER BY id")] == [
        (1, 1),
        (2, 2),
    ]


def test_a_locked_database_is_a_passing_error(postgresql: EmptyDatabase) -> None:
    import psycopg

    postgresql.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)")
    holder = postgresql.dialect.connect()
    holder.execute("LOCK TABLE t")
    sink = JdbcSink({**postgresql.config, **UPSERT})
    sink.open(TASK)
    sink._connection.execute("SET lock_timeout = '10ms'")
    sink._connection.commit()
    with pytest.raises(psycopg.errors.LockNotAvailable):
        sink.write(records([{"n": 1}], [1]))
    holder.close()
    sink.write(records([{"n": 1}], [1]))
    sink.close()
    assert len(postgresql.run("SELECT * FROM t")) == 1


def test_change_events_of_debezium_are_rows(empty: EmptyDatabase) -> None:
    sink = DebeziumJdbcSink(
        {
            "connection.url": empty.url,
            "connection.username": empty.user,
            "insert.mode": "upsert",
            "primary.key.mode": "record_key",
            "schema.evolution": "basic",
            "delete.enabled": "true",
            "collection.name.format": "copy_${topic}",
        }
    )

    def event(op: str, before: object, after: object) -> dict[str, object]:
        return {"before": before, "after": after, "op": op}

    first, second = {"id": 1, "n": "a"}, {"id": 2, "n": "b"}
    values = [event("c", None, first), event("r", None, second), event("d", first, None), None]
    write(sink, records(values, [{"id": 1}, {"id": 2}, {"id": 1}, {"id": 1}], ["db.s.t"] * 4))
    assert [tuple(row) for row in empty.run("SELECT id, n FROM copy_db_s_t")] == [(2, "b")]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"insert.mode": "upsert"}, "pk.mode"),
        ({"delete.enabled": "true"}, "pk.mode"),
        ({"pk.mode": "kafka", "pk.fields": "a"}, "pk.fields"),
        ({"insert.mode": "replace"}, "insert.mode"),
        ({"connection.url": "jdbc:oracle:thin:@x"}, "connection.url"),
        ({"connection.url": "jdbc:sqlite:/no/such/folder/x.db"}, "connection.url"),
        ({"topics": "t,u"}, "table.name.format"),
        ({"db.timezone": "Europe/Berlin"}, "db.timezone"),
    ],
)
def test_options_that_cannot_work_are_named(
    sqlite: EmptyDatabase, options: dict[str, str], named: str
) -> None:
    with pytest.raises(OptionError) as raised:
        JdbcSink({**sqlite.config, **options}).check()
    assert raised.value.option == named
