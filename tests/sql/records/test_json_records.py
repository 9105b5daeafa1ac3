"""JSON keys and values."""

import datetime
from decimal import Decimal

import pytest

from headrace.sql.records.encoding import RowWriter
from headrace.sql.records.errors import UnreadableRecord, UnwritableRow
from tests.sql.records.rows import read, source

UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)

CASES = [
    ("boolean", b"true", True),
    ("tinyint", b"-128", -128),
    ("bigint", b"9223372036854775807", 2**63 - 1),
    ("double", b"0.1", 0.1),
    ("double", b"1.0E10", 1e10),
    ("double", b'"NaN"', pytest.approx(float("nan"), nan_ok=True)),
    ("double", b'"-Infinity"', float("-inf")),
    ("float", b"0.1", 0.10000000149011612),
    ("decimal(38,2)", b"123456789012345678901234567890123456.78",
     Decimal("123456789012345678901234567890123456.78")),
    ("decimal(10,8)", b"1.0E-7", Decimal("0.00000010")),
    ("string", '"ä\\"\\u0001\\n"'.encode(), 'ä"\x01\n'),
    ("binary", b'"AP8="', b"\x00\xff"),
    ("date", b"20455", datetime.date(2026, 1, 2)),
    ("date", b"-1", datetime.date(1969, 12, 31)),
    ("timestamp", b"1767323045678", MOMENT),
    ("timestamp_ntz", b"1767323045678", MOMENT.replace(tzinfo=None)),
    ("time", b"3661001", datetime.time(1, 1, 1, 1000)),
    ("variant", b'{"a":[1,"x",null]}', {"a": [1, "x", None]}),
    ("array<int>", b"[1,null,3]", [1, None, 3]),
    ("map<string,bigint>", b'{"a":1,"b":null}', {"a": 1, "b": None}),
    ("map<int,string>", b'[[1,"a"],[2,null]]', {1: "a", 2: None}),
    ("struct<a: int, b: struct<c: string>>", b'{"a":1,"b":{"c":null}}',
     {"a": 1, "b": {"c": None}}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "document", "value"), CASES, ids=lambda each: str(each)[:40])
def test_a_value_is_read_and_written(kind: str, document: bytes, value: object) -> None:
    of = source(f"k string key; v {kind}")
    row = read(of, b"k", b'{"v":' + document + b"}")
    assert row.values == ("k", value)
    written = RowWriter(of).write({"k": "k", "v": row.values[1]})
    assert written == (b"k", b'{"v":' + document + b"}")


@pytest.mark.parametrize(
    ("kind", "document", "value"),
    [
        ("string", b"5", "5"),
        ("string", b"1.50", "1.5"),
        ("string", b"true", "true"),
        ("string", b'{"x": [1.50, "y"] }', '{"x":[1.5,"y"]}'),
        ("array<string>", b'[1.0, "a", null, {}]', ["1.0", "a", None, "{}"]),
        ("map<string,string>", b'{"a" : 1, "b\\u0041": "x"}', {"a": "1", "bA": "x"}),
        ("struct<s: string, d: decimal(3,2), n: int>", b' {"s": 1.10, "d": 1.1, "n": 5}',
         {"s": "1.1", "d": Decimal("1.10"), "n": 5}),
        ("double", b"5", 5.0),
        ("decimal(5,2)", b'"1.5"', Decimal("1.50")),
        ("decimal(5,2)", b"1.005", Decimal("1.01")),
        ("decimal(5,2)", b"-0.001", Decimal("0.00")),
        ("timestamp", b'"2026-01-02T03:04:05.678Z"', MOMENT),
        ("date", b'"2026-01-02"', datetime.date(2026, 1, 2)),
    ],
)  # fmt: skip
def test_other_documents_are_read_as_spark_reads_them(
    kind: str, document: bytes, value: object
) -> None:
    of = source(f"k string key; v {kind}")
    found = read(of, b"k", b'{ "other": 1, "v":' + document + b"} ").values[1]
    assert str(found) == str(value)


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("int", b'"5"'),
        ("int", b"1.0"),
        ("int", b"2147483648"),
        ("bigint", b"9223372036854775808"),
        ("boolean", b"1"),
        ("double", b'"x"'),
        ("double", b"true"),
        ("decimal(3,2)", b"10"),
        ("decimal(3,2)", b"true"),
        ("binary", b'"*"'),
        ("date", b'"x"'),
        ("time", b"86400000"),
        ("timestamp", b"99999999999999999"),
        ("array<int>", b"{}"),
        ("struct<a: int>", b"[]"),
        ("struct<a: int>", b'{"a": "x"}'),
        ("map<string,int>", b"5"),
        ("map<string,int>", b"[]"),
    ],
)
def test_a_document_of_another_type_is_unreadable(kind: str, document: bytes) -> None:
    with pytest.raises(UnreadableRecord, match=r"value: value\.v.* is not "):
        read(source(f"k string key; v {kind}"), b"k", b'{"v":' + document + b"}")


@pytest.mark.parametrize("value", [b"{", b'{"v":1} x', b"\xff", b"x"])
def test_a_value_that_is_no_json_is_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadableRecord, match=r"^value: .*not (JSON|UTF-8)"):
        read(source("k string key, v int"), b"k", value)


def test_a_null_document_is_a_row_without_values_and_no_tombstone() -> None:
    of = source("k string key, v int")
    for document in (b"null", b" ", b"{}", b'{"v":null}'):
        row = read(of, b"k", document)
        assert row.values == ("k", None)
        assert not row.is_deleted
    assert read(of, b"k", None).is_deleted


def test_a_single_key_is_not_wrapped_and_several_are() -> None:
    single = source("k bigint key, v int", key="JSON")
    assert RowWriter(single).write({"k": 5, "v": None}) == (b"5", b'{"v":null}')
    assert read(single, b"5", b"{}").values == (5, None)
    several = source("a string key, b int key, v int", key="JSON")
    assert RowWriter(several).key({"a": "x", "b": 1}) == b'{"a":"x","b":1}'
    assert read(several, b'{"b":1,"a":"x"}', b'{"v":2}').values == ("x", 1, 2)


def test_a_single_value_is_wrapped_unless_the_source_says_otherwise() -> None:
    of = source("k string key, v string", wrap_single_value=False)
    assert RowWriter(of).write({"k": "k", "v": "x"}) == (b"k", b'"x"')
    assert read(of, b"k", b'"x"').values == ("k", "x")
    assert read(of, b"k", b"1e10").values == ("k", "1.0E10")
    assert RowWriter(of).write({"k": "k"}) == (b"k", b"null")


def test_values_of_an_insert_are_converted_or_refused() -> None:
    writer = RowWriter(source("k string key, t timestamp, d date, x binary"))
    assert writer.write({"K": "k", "T": "2026-01-02T03:04:05.678", "x": b"\0"})[1] == (
        b'{"t":1767323045678,"d":null,"x":"AA=="}'
    )
    with pytest.raises(UnwritableRow, match="s: t is not of the type timestamp: 'x'"):
        writer.write({"t": "x"})
    with pytest.raises(UnwritableRow, match="s has no column other"):
        writer.write({"other": 1})
