"""Lines that become records, and bytes that become text."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.admin.record_text import (
    BadLine,
    LineFormat,
    json_field,
    json_headers,
    parse_line,
    printable,
)

maybe_bytes = st.none() | st.binary(max_size=40)


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3))
def test_any_record_survives_the_way_through_json(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = json.dumps(
        {
            **json_field("key", key),
            **json_field("value", value),
            "headers": json_headers(tuple(headers)),
        }
    )
    record = parse_line(line.encode(), LineFormat("json"))
    assert (record.key, record.value, record.headers) == (key, value, tuple(headers))


@given(st.binary(max_size=60))
def test_what_a_terminal_gets_is_always_printable(value: bytes) -> None:
    assert printable(value).isprintable()


def test_bytes_that_are_no_text_are_marked() -> None:
    assert json_field("value", b"\xff") == {
        "value": base64.b64encode(b"\xff").decode(),
        "value_encoding": "base64",
    }


def test_headers_may_be_an_object_pairs_or_what_consume_prints() -> None:
    for headers in ({"a": "1"}, [["a", "1"]], [{"key": "a", "value": "1"}]):
        line = json.dumps({"headers": headers}).encode()
        assert parse_line(line, LineFormat("json")).headers == (("a", b"1"),)


def test_a_null_marker_works_for_keys_and_values() -> None:
    form = LineFormat("key-value", b"=", null_marker=b"-")
    assert parse_line(b"-=x", form).key is None
    assert parse_line(b"x=-", form).value is None
    assert parse_line(b"x=--", form).value == b"--"


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b'{"vlaue": 1}',
        b'{"partition": "0"}',
        b'{"timestamp": 1.5}',
        b'{"value": "***", "value_encoding": "base64"}',
        b'{"headers": "x"}',
        b'{"headers": [1]}',
    ],
)
def test_what_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(BadLine):
        parse_line(line, LineFormat("json"))
