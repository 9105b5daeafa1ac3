"""Views of all formats, and rows that are written in the same format."""

import base64
import datetime
import json
import struct
from decimal import Decimal
from typing import Any

import pytest

from headrace.schemas.client import SchemaClient
from headrace.sql.records.decoding import RowReader
from headrace.sql.records.encoding import RowWriter
from headrace.sql.sources import ColumnRole, Format, SqlColumn, SqlSource, Window
from headrace.wire.records import Record
from tests.sql.host.conftest import SqlUnderTest, column, key, source, stateless

pytestmark = pytest.mark.spark

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "word": 'a "quoted", word\nof two lines',
        "small": -5,
        "big": (1 << 63) - 1,
        "ratio": 0.1,
        "price": Decimal("12345678901234.56"),
        "yes": True,
        "octets": b"\x00\xff",
        "day": datetime.date(2026, 2, 3),
        "moment": MOMENT,
    },
    {
        "id": 2,
        "word": "",
        "small": 0,
        "big": -(1 << 63),
        "ratio": -1.5e300,
        "price": Decimal("-0.01"),
        "yes": False,
        "octets": b"",
        "day": datetime.date(1969, 12, 31),
        "moment": datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC),
    },
    {"id": 3},
]
COLUMNS = (
    column("word"),
    column("small", "int"),
    column("big", "bigint"),
    column("ratio", "double"),
    column("price", "decimal(20,2)"),
    column("yes", "boolean"),
    column("octets", "binary"),
    column("day", "date"),
    column("moment", "timestamp"),
)
NESTED = (
    column("tags", "array<string>"),
    column("sizes", "map<string,int>"),
    column("place", "struct<street:string,floors:array<bigint>,since:timestamp>"),
)
NESTED_VALUES = {
    "tags": ["a", None, "c"],
    "sizes": {"x": 1, "y": None},
    "place": {"street": "Main", "floors": [1, 2], "since": MOMENT},
}
READABLE = {
    "JSON": (Format.JSON, (*COLUMNS, *NESTED)),
    "DELIMITED": (Format.DELIMITED, COLUMNS),
    "AVRO": (Format.AVRO, (*COLUMNS, *NESTED)),
    "JSON_SR": (Format.JSON_SR, COLUMNS),
    "PROTOBUF": (Format.PROTOBUF, COLUMNS[:4]),
}


def read_all(sql: SqlUnderTest, table: SqlSource) -> list[dict[str, Any]]:
    """The rows of a topic, as the reader without Spark reads them."""
    reader = RowReader(table, SchemaClient((sql.registry,)))
    names = [each.name for each in table.columns]
    found = []
    for each in sql.records(table.topic):
        record = Record(each.offset, each.timestamp, each.key, each.value)
        found.append(dict(zip(names, reader.read(record).values, strict=True)))
    return found


@pytest.mark.parametrize("case", READABLE)
def test_a_row_of_every_type_is_read_and_written_unchanged(
    sql: SqlUnderTest, name: str, started: list[str], case: str
) -> None:
    form, columns = READABLE[case]
    given = source("given", sql.create(f"{name}_in"), key("id", "int"), *columns, value_format=form)
    target = source("made", sql.create(f"{name}_out"), *given.columns, value_format=form)
    writer = RowWriter(given, SchemaClient((sql.registry,)))
    names = {each.name for each in given.columns}
    for row in ROWS:
        whole = {**row, **(NESTED_VALUES if row["id"] == 1 else {})}
        octets = writer.write({name: value for name, value in whole.items() if name in names})
        sql.send(given.topic, octets[1], octets[0])
    sql.flush()
    listed = ", ".join(each.name for each in given.columns)
    plan = stateless(
        f"SELECT {listed}, __time FROM given", [each.name for each in given.columns], "given"
    )
    started.append(name)
    sql.start(name, plan, [given], target)
    sql.has_read(name, len(ROWS))
    found = sorted(read_all(sql, target), key=lambda row: row["id"])
    wanted = sorted(read_all(sql, given), key=lambda row: row["id"])
    assert found == wanted
    assert len(found) == 3
    assert found[0]["big"] == (1 << 63) - 1
    times = {each.timestamp for each in sql.records(given.topic)}
    assert {each.timestamp for each in sql.records(target.topic)} == times


def test_single_values_of_the_format_kafka(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    given = source(
        "given",
        sql.create(f"{name}_in"),
        key("id", "bigint"),
        column("ratio", "double"),
        value_format=Format.KAFKA,
    )
    target = source(
        "made",
        sql.create(f"{name}_out"),
        key("ratio", "double"),
        column("id", "int"),
        value_format=Format.KAFKA,
    )
    for number in (-7, 5):
        sql.send(given.topic, struct.pack(">d", number / 2), struct.pack(">q", number))
    sql.send(given.topic, b"four", struct.pack(">q", 9))
    sql.flush()
    started.append(name)
    plan = stateless("SELECT ratio, id, __time FROM given", ["ratio", "id"], "given")
    sql.start(name, plan, [given], target)
    sql.has_read(name, 3)
    assert {(each.key, each.value) for each in sql.records(target.topic)} == {
        (struct.pack(">d", number / 2), struct.pack(">i", number)) for number in (-7, 5)
    }
    assert sql.status(name).bad_records == 1


def test_pseudo_columns_headers_and_rows_without_a_value(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    topic = sql.create(f"{name}_in")
    given = source(
        "given",
        topic,
        key("id"),
        column("n", "int"),
        SqlColumn("all", "array<struct<key:string,value:binary>>", ColumnRole.HEADER),
        SqlColumn("trace", "binary", ColumnRole.HEADER, "trace"),
    )
    names = ["id", "n", "rowtime_", "place", "trace_", "headers_"]
    target = source(
        "made",
        sql.create(f"{name}_out"),
        key("id"),
        column("n", "int"),
        column("rowtime_", "bigint"),
        column("place"),
        column("trace_"),
        column("headers_", "int"),
    )
    headers = [("trace", b"old"), ("other", b"x"), ("trace", b"new")]
    sql.send(topic, {"n": 1}, "a", 1000, partition=1, headers=headers)
    sql.send(topic, {"n": 2}, None, 2000, partition=0)
    sql.send(topic, None, "gone", 3000, partition=0)
    sql.send(topic, b"null", "null", 4000, partition=0)
    sql.flush()
    plan = stateless(
        "SELECT id, n, ROWTIME AS rowtime_, concat(ROWPARTITION, '/', ROWOFFSET) AS place, "
        "string(trace) AS trace_, size(all) AS headers_, __time FROM given",
        names,
        "given",
    )
    started.append(name)
    sql.start(name, plan, [given], target)
    sql.has_read(name, 4)
    assert {each.key: each.json for each in sql.records(target.topic)} == {
        b"a": {"n": 1, "rowtime_": 1000, "place": "1/0", "trace_": "new", "headers_": 3},
        None: {"n": 2, "rowtime_": 2000, "place": "0/0", "trace_": None, "headers_": 0},
        b"null": {"n": None, "rowtime_": 4000, "place": "0/2", "trace_": None, "headers_": 0},
    }


@pytest.mark.parametrize(
    ("kind", "pattern", "texts"),
    [
        ("bigint", None, [5000, None]),
        ("string", "yyyy-MM-dd HH:mm:ss", ["1970-01-01 00:00:05", "yesterday"]),
        ("string", None, ["1970-01-01T00:00:05Z", ""]),
        ("timestamp", None, [5000, None]),
    ],
)
def test_the_time_of_a_row_may_be_a_column(
    sql: SqlUnderTest,
    name: str,
    started: list[str],
    kind: str,
    pattern: str | None,
    texts: list[Any],
) -> None:
    given = source(
        "given",
        sql.create(f"{name}_in"),
        column("at", kind),
        timestamp="AT",
        timestamp_format=pattern,
    )
    target = source("made", sql.create(f"{name}_out"), column("t", "bigint"))
    for text in texts:
        sql.send(given.topic, {"at": text})
    sql.flush()
    started.append(name)
    plan = stateless("SELECT ROWTIME AS t, __time FROM given", ["t"], "given")
    sql.start(name, plan, [given], target)
    sql.has_read(name, 2)
    assert sql.values(target.topic) == [{"t": 5000}]
    assert sql.records(target.topic)[0].timestamp == 5000
    assert sql.status(name).bad_records == 1


def test_windowed_keys_are_read_and_written(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    tumbling, session = Window("TUMBLING", 1000), Window("SESSION", None)
    for index, (window, suffix, end) in enumerate(
        [
            (tumbling, struct.pack(">q", 5000), 6000),
            (session, struct.pack(">qq", 7000, 5000), 7000),
        ]
    ):
        query = f"{name}_{index}"
        given = source("given", sql.create(f"{query}_in"), key("id"), column("n"), window=window)
        target = source("made", sql.create(f"{query}_out"), *given.columns, window=window)
        sql.send(given.topic, {"n": "x"}, b"k" + suffix)
        sql.send(given.topic, {"n": "x"}, b"short")
        sql.flush()
        started.append(query)
        plan = stateless(
            "SELECT id, concat(WINDOWSTART, '-', WINDOWEND) AS n, WINDOWSTART, WINDOWEND, __time "
            "FROM given",
            ["id", "n"],
            "given",
            window=window,
        )
        sql.start(query, plan, [given], target)
        sql.has_read(query, 2)
        (written,) = sql.records(target.topic)
        assert written.key == b"k" + suffix
        assert written.json == {"n": f"5000-{end}"}
        assert sql.status(query).bad_records == 1


def test_records_that_cannot_be_read_are_in_the_processing_log(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    given = source("given", sql.create(f"{name}_in", 1), column("n", "int"))
    target = source("made", sql.create(f"{name}_out"), column("n", "int"))
    for value in (b'{"n": 1}', b'{"n": "one"}', b"not JSON", b"\xff", b'{"n": 2}'):
        sql.send(given.topic, value)
    sql.flush()
    started.append(name)
    plan = stateless("SELECT n, __time FROM given", ["n"], "given")
    sql.start(name, plan, [given], target)
    status = sql.wait(lambda: sql.status(name), lambda found: found.bad_records == 3)
    assert status.rows == 5
    assert sorted(each["n"] for each in sql.values(target.topic)) == [1, 2]

    def told() -> list[dict[str, Any]]:
        entries = [json.loads(each.value or b"") for each in sql.records("test-processing-log")]
        found = [each["message"]["deserializationError"] for each in entries]
        return [each for each in found if each.get("topic") == given.topic]

    found = sql.wait(told, lambda entries: len(entries) == 3)
    assert {(each["partition"], each["offset"]) for each in found} == {(0, 1), (0, 2), (0, 3)}
    assert {each["offset"]: each["errorMessage"] for each in found}[3] == "value: not UTF-8"


def test_base64_of_bytes_in_json_is_that_of_other_programs(
    sql: SqlUnderTest, name: str, started: list[str]
) -> None:
    given = source("given", sql.create(f"{name}_in"), column("o", "binary"))
    target = source("made", sql.create(f"{name}_out"), column("o", "binary"))
    text = base64.b64encode(bytes(range(100))).decode()
    sql.send(given.topic, {"o": text})
    sql.flush()
    started.append(name)
    sql.start(name, stateless("SELECT o, __time FROM given", ["o"], "given"), [given], target)
    sql.has_read(name, 1)
    assert sql.values(target.topic) == [{"o": text}]
