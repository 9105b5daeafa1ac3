"""Positions and times as text, without a broker."""

import pytest

from headrace.admin.errors import InvalidRequest
from headrace.admin.positions import At, Beginning, End, Last, Since, Start, parse_start


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("beginning", Beginning()),
        ("earliest", Beginning()),
        ("end", End()),
        ("0", At(0)),
        ("999999999999", At(999_999_999_999)),
        ("1700000000000", Since(1_700_000_000_000)),
        ("@5", Since(5)),
        ("-5", Last(5)),
        ("-15m", Since(10_000_000 - 900_000)),
        ("-1h", Since(10_000_000 - 3_600_000)),
        ("1970-01-01T00:00:01Z", Since(1000)),
        ("1970-01-01T01:00:01+01:00", Since(1000)),
    ],
)
def test_positions_and_times_are_told_apart(text: str, meaning: Start) -> None:
    assert parse_start(text, now_ms=10_000_000) == meaning


@pytest.mark.parametrize("text", ["", "--5", "-5w", "soon", "@", "2026-13-01"])
def test_anything_else_is_invalid_with_the_list_of_forms(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_start(text)
    assert "beginning" in caught.value.hint
