import pytest

from headrace.connect.connectors.ddl import DdlError, arrow_schema, ddl


@pytest.mark.parametrize(
    "text",
    [
        "id bigint, name string",
        "a boolean, b tinyint, c smallint, d int, e float, f double, g binary, h date",
        "`a b` timestamp, `c``d` timestamp_ntz, e decimal(38,9)",
        "a struct<b:array<int>,c:map<string,struct<d:int>>>",
    ],
)
def test_a_schema_survives_the_way_to_arrow_and_back(text: str) -> None:
    assert ddl(arrow_schema(text)) == text


def test_other_spellings_of_spark_are_understood() -> None:
    assert ddl(arrow_schema("A LONG NOT NULL, b: varchar(10), c decimal")) == (
        "A bigint, b string, c decimal(10,0)"
    )


@pytest.mark.parametrize("text", ["", "a", "a nothing", "a array<int", "a int b", "a int,"])
def test_a_text_that_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(DdlError):
        arrow_schema(text)
