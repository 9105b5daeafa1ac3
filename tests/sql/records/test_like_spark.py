"""Keys and values are the bytes that the Spark host writes, and the host reads them alike."""

import datetime
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType, TimestampType

from headrace.sql.host.reading import PROBLEM, read_rows
from headrace.sql.host.session import SPARK_SETTINGS
from headrace.sql.host.types import type_of
from headrace.sql.host.writing import written_rows
from headrace.sql.plans import WINDOWEND, WINDOWSTART, PlanKind, QueryPlan
from headrace.sql.records.decoding import RowReader
from headrace.sql.records.encoding import RowWriter
from headrace.sql.sources import SqlSource, Window
from headrace.wire.records import Record
from tests.sql.records.rows import source

pytestmark = pytest.mark.spark

SIMPLE = (
    "b boolean; l tinyint; h smallint; i int; n bigint; f float; d double; x decimal(20,2);"
    " y decimal(38,10); s string; o binary; day date; t timestamp"
)
NESTED = (
    "a array<int>; w array<struct<p: string, q: decimal(5,1)>>; m map<string,double>;"
    " r struct<x: bigint, y: struct<z: timestamp, v: binary>, day: date>"
)


@pytest.fixture(autouse=True)
def _settings_of_the_host(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in SPARK_SETTINGS}
    for name, text in SPARK_SETTINGS.items():
        spark.conf.set(name, text)
    yield
    for name, earlier in before.items():
        if earlier is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, earlier)


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


SIMPLE_ROWS: list[dict[str, Any]] = [
    {
        "b": True,
        "l": -128,
        "h": 32767,
        "i": -5,
        "n": 2**63 - 1,
        "f": 0.1,
        "d": 0.1,
        "x": Decimal("-12345678901234567.89"),
        "y": Decimal("0.0000000001"),
        "s": 'ä "quoted", \\ and \x01\n\t/',
        "o": b"\x00\xff",
        "day": datetime.date(2026, 2, 3),
        "t": at("2026-01-02T03:04:05.678"),
    },
    {
        "b": False,
        "l": 0,
        "h": 0,
        "i": 0,
        "n": -(2**63),
        "f": -1.5e-10,
        "d": -1.5e300,
        "x": Decimal("0.00"),
        "y": Decimal(10) ** 27,
        "s": "",
        "o": b"",
        "day": datetime.date(1969, 12, 31),
        "t": at("1969-12-31T23:59:59.999"),
    },
    {
        "f": float("inf"),
        "d": float("nan"),
        "s": "null",
        "n": 10**7,
        "x": Decimal("1E+3"),
        "y": Decimal("-1.5"),
        "t": at("2026-06-30T00:00:00.000001"),
    },
    {"f": 16777216.0, "d": 1e7, "s": "\ufffd\U0001f600\u2028"},
    {"f": 0.001, "d": 123456.789, "s": " spaces "},
    {},
]
NESTED_ROWS: list[dict[str, Any]] = [
    {
        "a": [1, None, 3],
        "w": [{"p": "x", "q": Decimal("1.5")}, None, {"p": None, "q": None}],
        "m": {"k": 0.5},
        "r": {
            "x": 5,
            "y": {"z": at("2026-01-02T03:04:05.678"), "v": b"\x00"},
            "day": datetime.date(2026, 2, 3),
        },
    },
    {"a": [], "w": [], "m": {"none": None}, "r": {"x": None, "y": None, "day": None}},
    {},
]


def spark_records(
    spark: SparkSession, of: SqlSource, rows: list[dict[str, Any]]
) -> list[tuple[bytes | None, bytes | None]]:
    """The keys and values that the host makes of rows."""
    schema = StructType()
    for each in of.columns:
        schema = schema.add(each.name, type_of(each.type))
    names = [each.name for each in of.columns]
    if of.window is not None:
        schema = schema.add(WINDOWSTART, LongType()).add(WINDOWEND, LongType())
        names += [WINDOWSTART, WINDOWEND]
    frame = spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)
    columns = tuple(each.name for each in of.columns)
    plan = QueryPlan(PlanKind.STATELESS, (), "", columns, (), makes_table=False, window=of.window)
    found = written_rows(frame, plan, of).collect()
    return [(_octets(row["key"]), _octets(row["value"])) for row in found]


def _octets(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def keyed(rows: list[dict[str, Any]], **keys: Any) -> list[dict[str, Any]]:
    return [{**keys, **row} for row in rows]


KAFKA_VALUES: dict[str, list[Any]] = {
    "string": ["ä", ""],
    "int": [1, -(2**31)],
    "bigint": [1, -(2**63)],
    "smallint": [-2],
    "double": [0.1, -1e300],
    "float": [0.5],
    "boolean": [True, False],
    "binary": [b"\x00\xff", b""],
}
CASES: dict[str, tuple[SqlSource, list[dict[str, Any]]]] = {
    "JSON": (
        source(f"k string key; {SIMPLE}; {NESTED}"),
        keyed([*SIMPLE_ROWS, *NESTED_ROWS], k="k"),
    ),
    "DELIMITED": (
        source(f"k string key; {SIMPLE}", "DELIMITED", "DELIMITED"),
        keyed(SIMPLE_ROWS, k='a,"b"'),
    ),
    "unwrapped": (
        source("k bigint key; v string", "JSON", wrap_single_value=False),
        [{"k": 5, "v": "x"}, {"k": -1, "v": None}, {"k": None, "v": ""}],
    ),
    "several keys": (
        source("a string key; b timestamp key; c double key; v int", "JSON"),
        [
            {"a": "x", "b": at("2026-01-02T03:04:05"), "c": 1e10, "v": 1},
            {"a": None, "b": None, "c": 0.5, "v": None},
            {"a": None, "b": None, "c": None, "v": 2},
        ],
    ),
    **{
        f"KAFKA {kind}": (
            source(f"k {kind} key; v {kind}", value="KAFKA"),
            [{"k": value, "v": value} for value in values] + [{"k": values[0], "v": None}],
        )
        for kind, values in KAFKA_VALUES.items()
    },
    "tumbling": (
        source("k string key; v int", window=Window("TUMBLING", 1000)),
        [{"k": "a", "v": 1, WINDOWSTART: 5000, WINDOWEND: 6000}],
    ),
    "session": (
        source("k int key; v int", "JSON", window=Window("SESSION", None)),
        [{"k": 7, "v": 1, WINDOWSTART: 5000, WINDOWEND: 5999}],
    ),
    "no value": (source("k string key"), [{"k": "a"}]),
}


@pytest.mark.parametrize("name", CASES)
def test_records_are_those_of_spark_byte_by_byte(name: str, spark: SparkSession) -> None:
    of, rows = CASES[name]
    writer = RowWriter(of)
    assert [writer.write(row) for row in rows] == spark_records(spark, of, rows)


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_spark(name: str, spark: SparkSession) -> None:
    of, rows = CASES[name]
    writer = RowWriter(of)
    pairs = [writer.write(row) for row in rows]
    compare(spark, of, [pair for pair in pairs if pair[0] is not None])


DOCUMENTS = {
    "boolean": ["true", "1", '"true"', "null"],
    "int": ["5", "5.0", '"5"', "2147483648", "-2147483648", "1e2", "true", "[]"],
    "bigint": ["9223372036854775807", "9223372036854775808", '""'],
    "double": ["5", "1e400", '"NaN"', "NaN", '"Infinity"', '"-INF"', '"x"', '""', "true"],
    "float": ["0.1", "1e300"],
    "decimal(5,2)": ["1.005", "1234.5", '"1.5"', '"x"', "1e1", "true"],
    "string": ["5", "1.50", "true", '{"a": [1.0, "x"] }', "[ 1 ]", '"\\u00e4\\ud83d\\ude00"'],
    "binary": ['"AP8="', '"*"', "5", '""'],
    "date": ["20455", '"2026-01-02"', '"20455"', '"x"', '"2026"', "true"],
    "timestamp": ["1767323045678", '"2026-01-02T03:04:05.678Z"', '"2026-01-02 03:04"', '"x"'],
    "array<int>": ["[1,2]", "[]", '["x"]', "{}", "5", "[null]"],
    "map<string,bigint>": ['{"a":1}', '{"a":"x"}', "[]", "{}"],
    "struct<a: int, b: string>": ['{"a":1,"b":2.50}', '{"b":null,"c":1}', "{}", "[]", '{"a":"x"}'],
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_documents_of_others_are_read_as_spark_reads_them(kind: str, spark: SparkSession) -> None:
    of = source(f"k string key; v {kind}")
    documents = [f'{{"v":{text}}}' for text in DOCUMENTS[kind]]
    documents += ["{}", "null", "", " {} ", "{", "x", '{"v":null,"V":1}', '{"other":{"v":1}}']
    compare(spark, of, [(b"k", text.encode()) for text in documents])


def test_lines_of_others_are_read_as_spark_reads_them(spark: SparkSession) -> None:
    of = source(
        "k string key; i int; s string; d double; b boolean; t timestamp", value="DELIMITED"
    )
    lines = [
        *("1,a,1.5,true,0", ",,,,", '1,"",1,false,5', "1,a,1.5,true", "1,a,1.5,true,0,9"),
        *("x,a,1,true,0", '1,"a,""b""",1e3,TRUE,2026-01-02', "1, a ,NaN,t,x", '"1",a,1,true,0'),
        *("99999999999,a,1,true,0", ""),
    ]
    compare(spark, of, [(b"k", text.encode()) for text in lines])


def compare(
    spark: SparkSession, of: SqlSource, pairs: list[tuple[bytes | None, bytes | None]]
) -> None:
    """The same rows, and the same records that are none."""
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    schema = StructType().add("key", BinaryType()).add("value", BinaryType())
    schema = schema.add("partition", IntegerType()).add("offset", LongType())
    schema = schema.add("timestamp", TimestampType())
    records = [(key, value, 0, place, moment) for place, (key, value) in enumerate(pairs)]
    found = read_rows(spark.createDataFrame(records, schema), of).orderBy("ROWOFFSET").collect()
    expected = {row["ROWOFFSET"]: row for row in found}
    rows, bad = RowReader(of).read_many(
        [Record(place, 0, key, value) for place, (key, value) in enumerate(pairs)], 0
    )
    unreadable = {each.record.offset for each in bad}
    assert {pairs[place] for place in unreadable} == {
        pairs[place] for place, row in expected.items() if row[PROBLEM] is not None
    }
    for row in rows:
        other = expected[row.offset]
        names = [each.name for each in of.columns]
        cells = dict(zip(names, map(_plain, row.values), strict=True))
        assert str(cells) == str({name: _plain(other[name]) for name in names}), pairs[row.offset]


def _plain(value: Any) -> Any:
    """A value of Spark as rows have it; decimals of any scale."""
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, SparkRow):
        return {name: _plain(each) for name, each in value.asDict().items()}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC)
    return value
