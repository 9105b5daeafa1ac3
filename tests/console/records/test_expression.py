"""The expressions of searches: what they match, and what is refused."""

import json

import pytest

from headrace.console.records.expression import BadExpression, SearchedRecord, parse_expression
from headrace.wire.records import Record

VALUE = {
    "amount": 120,
    "id": 9223372036854775807,
    "name": "Ada",
    "ok": True,
    "none": None,
    "items": [{"sku": "a-1"}, {"sku": "b-2"}],
    "a.b": 1,
}


def subject(value: object = VALUE, key: str | None = "alice") -> SearchedRecord:
    text = value if isinstance(value, str) or value is None else json.dumps(value)
    headers = (("source", b"web"), ("trace-id", b"7"), ("empty", None))
    record = Record(42, 1_700_000_000_000, _bytes(key), _bytes(text), headers)
    return SearchedRecord(record, 3, lambda data: None if data is None else data.decode())


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > 100",
        "value.amount >= 120 and value.amount <= 120",
        "value.amount == 120",
        "value.amount = 120",
        "value.id == 9223372036854775807",
        'value.name == "Ada"',
        'value.name startswith "A" and value.name endswith "a"',
        'value.name contains "d"',
        "value.ok == true",
        "not value.ok == false",
        "value.ok != 1",
        "value.none == null",
        "not value.none exists",
        "value.items exists",
        'value.items[0].sku == "a-1"',
        'value.items[-1].sku == "b-2"',
        'value.items contains "b-2"',
        'value["a.b"] == 1',
        'key == "alice"',
        "key exists and partition == 3 and offset == 42",
        "timestamp > 1600000000000",
        'headers.source == "web"',
        'headers["trace-id"] == "7"',
        "headers.trace-id == 7",
        '"Ada"',
        '"trace-id"',
        '(value.amount < 1 or key == "alice") and not (key == "bob")',
        "value.missing != 1",
        'value contains "amount"',
        "not not key exists",
    ],
)
def test_these_match(text: str) -> None:
    assert parse_expression(text).matches(subject())


@pytest.mark.parametrize(
    "text",
    [
        "value.amount > 120",
        "value.id == 9223372036854775806",
        "value.missing == null",
        "value.missing > 1",
        "value.name > 1",
        "value.ok == 1",
        "value.items[2] exists",
        "value.items.sku exists",
        "value.amount[0] exists",
        "headers exists",
        "headers.empty exists",
        'headers.empty contains "x"',
        '"ada"',
        'key == "alice" and value.amount < 1',
    ],
)
def test_these_do_not_match(text: str) -> None:
    assert not parse_expression(text).matches(subject())


def test_white_space_around_a_value_does_not_matter() -> None:
    assert parse_expression("value.amount == 1").matches(subject('\n {"amount": 1} \r\n'))
    assert not parse_expression("value.amount == 1").matches(subject('{"amount": 1} 2'))


@pytest.mark.parametrize("value", ["not json", None, "", "[1", "NaN{", "[" * 100_000])
def test_values_that_are_not_json_have_no_fields(value: str | None) -> None:
    assert not parse_expression("value.amount > 1").matches(subject(value))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "ends too early|expected before the end"),
        ("value.", "ends too early"),
        ("value.amount", "is expected before the end"),
        ("value.amount >", "ends too early"),
        ("value.amount > abc", "a text in double quotes or a number"),
        ("amount > 1", "key, value, headers"),
        ("value.a == 1 value.b == 2", "'and' or 'or' is expected"),
        ("(key exists", r"'\)' is expected"),
        ("value[true] == 1", "a number or a text"),
        ("value[0 == 1", r"'\]' is expected"),
        ("key == 'x'", "character"),
        ("key; import os", "is not understood"),
        ('key == "\\x"', "not a text"),
        ("(" * 60 + "key exists" + ")" * 60, "nested too deeply"),
        ("not " * 600 + "key exists", "more than 2000 characters"),
    ],
)
def test_what_cannot_be_parsed_is_explained(text: str, why: str) -> None:
    with pytest.raises(BadExpression, match=why):
        parse_expression(text)


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ('"needle"', "needle"),
        ('value.name == "Ada" and value.amount > 1', "Ada"),
        ('key contains "ab" and value.x == "abcdef"', "abcdef"),
        ('value.name == "Ada" or key == "x"', None),
        ('not value.name == "Ada"', None),
        ('value.name != "Ada"', None),
        ('value contains "1, 2"', "1, 2"),
        ('value.name contains "da"', "da"),
        ('value.items contains "1, 2"', None),
        ('value.amount contains "100"', None),
        ('value.amount contains "nfinit"', None),
        ('headers.source == "web"', None),
        ("value.amount == 120", None),
    ],
)
def test_a_text_that_every_match_contains_is_known(text: str, literal: str | None) -> None:
    assert parse_expression(text).literal() == literal
