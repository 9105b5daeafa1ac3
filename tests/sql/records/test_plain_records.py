"""KAFKA and DELIMITED, keys with a window, headers, and the time of a row."""

import datetime
import math
from decimal import Decimal

import pytest

from headrace.client.errors import ClientError
from headrace.sql.records.decoding import RowReader
from headrace.sql.records.encoding import RowWriter
from headrace.sql.records.errors import UnreadableRecord, UnwritableRow, WrongValue
from headrace.sql.sources import ColumnRole, SqlColumn, Window
from tests.sql.records.rows import columns, read, record, source


@pytest.mark.parametrize(
    ("kind", "octets", "value"),
    [
        ("string", "ä".encode(), "ä"),
        ("string", b"", ""),
        ("int", b"\xff\xff\xff\xfe", -2),
        ("bigint", b"\x80" + b"\0" * 7, -(2**63)),
        ("double", b"\x3f\xf8" + b"\0" * 6, 1.5),
        ("binary", b"\0\xff", b"\0\xff"),
        ("smallint", b"\x01\x00", 256),
        ("float", b"\x3f\xc0\0\0", 1.5),
        ("boolean", b"\x01", True),
    ],
)
def test_kafkas_bytes_are_read_and_written(kind: str, octets: bytes, value: object) -> None:
    of = source(f"k {kind} key; v {kind}", value="KAFKA")
    assert read(of, octets, octets).values == (value, value)
    assert RowWriter(of).write({"k": value, "v": value}) == (octets, octets)


def test_bytes_of_another_width_are_unreadable() -> None:
    of = source("k int key, v string", value="KAFKA")
    with pytest.raises(UnreadableRecord, match="key: k has 3 bytes; int in the format KAFKA has 4"):
        read(of, b"abc", b"x")


def test_types_that_a_format_does_not_have_are_refused_at_once() -> None:
    with pytest.raises(WrongValue, match="array<int>, which the format KAFKA does not have"):
        RowReader(source("k array<int> key; v int"))
    with pytest.raises(WrongValue, match="array<int>, which the format DELIMITED does not have"):
        RowReader(source("k int key; v array<int>", value="DELIMITED"))
    with pytest.raises(ClientError, match="needs a schema registry"):
        RowReader(source("k int key, v int", value="AVRO"))


EVERY = "a bigint; b string; c double; d decimal(6,2); e boolean; f date; g timestamp; h binary"


def test_a_line_is_read_and_written() -> None:
    of = source(f"k string key; {EVERY}", value="DELIMITED")
    line = b'-5,"x,""y""",1.0E10,12.50,true,20455,1767323045678,AP8='
    row = read(of, b"k", line)
    assert row.values[1:] == (
        -5,
        'x,"y"',
        1e10,
        Decimal("12.50"),
        True,
        datetime.date(2026, 1, 2),
        datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC),
        b"\0\xff",
    )
    names = [column.name for column in of.columns]
    assert RowWriter(of).write(dict(zip(names, row.values, strict=True))) == (b"k", line)


def test_nothing_between_delimiters_is_null_and_quotes_are_an_empty_string() -> None:
    of = source("k string key, a string, b string, c int", value="DELIMITED", delimiter="|")
    assert read(of, b"k", b'|""|').values == ("k", None, "", None)
    assert read(of, b"k", b"").values == ("k", None, None, None)
    assert RowWriter(of).write({"b": ""})[1] == b'|""|'
    octets = source("k string key, a binary, b binary", value="DELIMITED")
    assert RowWriter(octets).write({"a": b""})[1] == b'"",'
    assert read(octets, b"k", b'"",').values == ("k", b"", None)
    assert read(of, b"k", b'"a\nb|"||7').values == ("k", "a\nb|", None, 7)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"1", "1 fields instead of 2"),
        (b"1,2,3", "3 fields instead of 2"),
        (b"x,y", "a is not of the type int: 'x'"),
        (b'1,"y', "a quote without an end"),
        (b'1,"y"z', "text follows the closing quote"),
    ],
)
def test_a_line_that_does_not_fit_is_unreadable(line: bytes, why: str) -> None:
    with pytest.raises(UnreadableRecord, match=f"value: {why}"):
        read(source("k string key, a int, b string", value="DELIMITED"), b"k", line)


def test_infinity_has_javas_names() -> None:
    of = source("k string key, a double", value="DELIMITED")
    assert RowWriter(of).write({"a": math.inf})[1] == b"Infinity"
    assert read(of, b"k", b"-Infinity").values == ("k", -math.inf)


# ------------------------------------------------------------------------------------- windows

TUMBLING = Window("TUMBLING", 1000)
SESSION = Window("SESSION", None)


def test_a_key_ends_with_the_start_of_its_window() -> None:
    of = source("k string key, v int", window=TUMBLING)
    key = b"abc" + (5000).to_bytes(8, "big")
    row = read(of, key, b'{"v":1}')
    assert (row.values, row.window_start, row.window_end) == (("abc", 1), 5000, 6000)
    assert RowWriter(of).key({"k": "abc", "WINDOWSTART": 5000, "WINDOWEND": 6000}) == key
    with pytest.raises(UnreadableRecord, match="key: 3 bytes are too few for a window"):
        read(of, b"abc", b"{}")


def test_a_session_has_its_end_before_its_start() -> None:
    of = source("k string key, v int", window=SESSION)
    key = b"abc" + (7000).to_bytes(8, "big") + (5000).to_bytes(8, "big")
    row = read(of, key, None)
    assert (row.values, row.window_start, row.window_end) == (("abc", None), 5000, 7000)
    assert row.is_deleted
    assert RowWriter(of).key({"k": "abc", "WINDOWSTART": 5000, "WINDOWEND": 7000}) == key
    with pytest.raises(UnwritableRow, match="WINDOWSTART and WINDOWEND are missing"):
        RowWriter(of).key({"k": "abc", "windowstart": 5000})


def test_the_end_of_windows_of_unknown_size_is_not_known() -> None:
    of = source("k string key, v int", window=Window("TUMBLING", None))
    row = read(of, b"abc" + bytes(8), b"{}")
    assert (row.window_start, row.window_end) == (0, None)


# ------------------------------------------------------------------- headers, nulls, many at once


def test_headers_are_columns() -> None:
    of = source(
        "k string key",
        columns=(
            SqlColumn("one", "binary", ColumnRole.HEADER, "h"),
            *columns("v int, k string key"),
            SqlColumn("all", "array<struct<key:string,value:binary>>", ColumnRole.HEADER),
        ),
    )
    headers = (("h", b"1"), ("g", None), ("h", b"2"))
    row = RowReader(of).read(record(b"k", b'{"v":1}', headers))
    everything = [{"key": name, "value": octets} for name, octets in headers]
    assert row.values == (b"2", 1, "k", everything)
    assert RowReader(of).read(record(b"k", b"{}")).values == (None, None, "k", [])


def test_many_records_are_read_at_once_and_bad_ones_are_told() -> None:
    of = source("k string key, v int")
    good, tombstone = record(b"a", b'{"v":1}'), record(b"a", None)
    bad, no_key = record(b"b", b"x"), record(None, b'{"v":2}')
    rows, unreadable = RowReader(of).read_many([good, bad, tombstone, no_key], 4)
    assert [(row.values, row.is_deleted) for row in rows] == [
        (("a", 1), False),
        (("a", None), True),
        ((None, 2), False),
    ]
    assert {(row.partition, row.offset, row.rowtime) for row in rows} == {(4, 7, 1000)}
    assert [(each.record, each.partition) for each in unreadable] == [(bad, 4)]
    assert "value: value is not JSON" in unreadable[0].reason


def test_a_row_without_any_key_column_has_no_key() -> None:
    assert RowWriter(source("k string key, v int")).key({"v": 1}) is None
    assert RowWriter(source("v int", key="NONE")).write({"v": 1}) == (None, b'{"v":1}')
    assert RowWriter(source("k string key, v int")).tombstone({"k": "a"}) == (b"a", None)
    assert RowWriter(source("k string key")).write({"k": "a"}) == (b"a", b"")


# ----------------------------------------------------------------------------------- row times


@pytest.mark.parametrize(
    ("kind", "pattern", "document", "moment"),
    [
        ("bigint", None, b"5", 5),
        ("timestamp", None, b"1767323045678", 1767323045678),
        ("string", None, b'"2026-01-02T03:04:05.678Z"', 1767323045678),
        ("string", "yyyy-MM-dd HH:mm:ss", b'"2026-01-02 03:04:05"', 1767323045000),
        ("string", "yyyyMMddHHmmssSSS", b'"20260102030405678"', 1767323045678),
        ("string", "yyyy-MM-dd'T'HH:mm:ss[.SSS]XXX", b'"2026-01-02T04:04:05+01:00"', 1767323045000),
        ("string", "d/M/yy h:mm a", b'"2/1/26 3:04 PM"', 1767366240000),
        ("string", "EEE, dd MMM yyyy HH:mm:ss Z", b'"Fri, 02 Jan 2026 03:04:05 +0000"',
         1767323045000),
        ("date", None, b"20455", 1767312000000),
    ],
)  # fmt: skip
def test_the_time_of_a_row_is_that_of_its_column(
    kind: str, pattern: str | None, document: bytes, moment: int
) -> None:
    of = source(f"k string key; t {kind}", timestamp="T", timestamp_format=pattern)
    assert read(of, b"k", b'{"t":' + document + b"}").rowtime == moment


def test_a_row_without_a_time_is_unreadable_and_a_tombstone_has_that_of_its_record() -> None:
    of = source("k string key, t string", timestamp="t", timestamp_format="yyyy-MM-dd")
    for document in (b"{}", b'{"t":"2026-13-01"}', b'{"t":"2026-1-1"}'):
        with pytest.raises(UnreadableRecord, match="the timestamp column t is"):
            read(of, b"k", document)
    assert read(of, b"k", None).rowtime == 1000
    with pytest.raises(ClientError, match="s has no column u, which its property timestamp names"):
        RowReader(source("k string key, t string", timestamp="u"))
