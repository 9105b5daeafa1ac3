"""Path formats of time-based partitions."""

import pytest

from headrace.pipelines.lake.time_format import parse


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("'year'=YYYY/'month'=MM/'day'=dd", ("year=%Y", "month=%m", "day=%d")),
        ("'hour'=YYYY-MM-dd-HH", ("hour=%Y-%m-%d-%H",)),
        ("yyyy/MMM/ww", ("%Y", "%b", "%V")),
        ("'it''s 5%'/HH.mm.ss/", ("it's 5%%", "%H.%M.%S")),
    ],
)
def test_joda_patterns_become_those_of_strftime(text: str, segments: tuple[str, ...]) -> None:
    assert parse(text).segments == segments


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("'day'=d", "d in 'day'=d is not supported"),
        ("year=YYYY", "y in year=YYYY is not supported"),
        ("'year=YYYY", "the quote at position 0"),
        ("YYYY//MM", "has no name"),
        ("'_x'/MM", "readers skip"),
        ("", "has no name"),
    ],
)
def test_an_error_names_what_is_not_supported(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r".+") as refused:
        parse(text)
    assert problem in str(refused.value)


def test_the_columns_of_a_path_are_known() -> None:
    found = parse("'year'=YYYY/MM/'day'=dd")
    assert found.keys == ("year", "day")
    assert not found.has_names
    assert parse("MMMM").has_names
