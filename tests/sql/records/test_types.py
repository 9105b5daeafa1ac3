"""Spark's DDL."""

import pytest

from headrace.sql.records.types import ColumnType, InvalidType, parse_type


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bigint", "bigint"),
        ("INTEGER", "int"),
        ("varchar(20)", "string"),
        ("decimal", "decimal(10,0)"),
        ("decimal(5)", "decimal(5,0)"),
        ("decimal( 5 , 2 )", "decimal(5,2)"),
        ("array<array<int>>", "array<array<int>>"),
        ("map<string, struct<a: int, `b c`: string>>", "map<string,struct<a:int,`b c`:string>>"),
        ("struct<a int, B: array<date>>", "struct<a:int,B:array<date>>"),
        ("struct<>", "struct<>"),
    ],
)
def test_a_type_is_shown_as_spark_shows_it(text: str, shown: str) -> None:
    assert str(parse_type(text)) == shown
    assert parse_type(shown) == parse_type(text)


def test_a_field_with_a_quoted_name_keeps_its_quotes() -> None:
    assert parse_type("struct<`a``b`: int>").fields == (("a`b", ColumnType("int")),)


@pytest.mark.parametrize(
    "text", ["", "number", "array<int", "array<>", "map<string>", "int int", "decimal(39,1)",
             "decimal(2,3)", "decimal(a)", "struct<a>"]
)  # fmt: skip
def test_a_text_that_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidType, match="invalid type"):
        parse_type(text)
