"""What a reset of offsets makes of its options, without a broker."""

import pytest

from headrace.cli.failures import ExitCode, Failure
from headrace.cli.groups.group_reset import Change, Scope, Shift, parse_scope, shifted


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("clicks", Scope("clicks", None)),
        ("clicks:0", Scope("clicks", (0,))),
        ("a.b-c_d:4-6,0,5", Scope("a.b-c_d", (0, 4, 5, 6))),
    ],
)
def test_a_topic_may_name_partitions_and_ranges(text: str, scope: Scope) -> None:
    assert parse_scope(text) == scope


@pytest.mark.parametrize("text", ["", ":1", "clicks:", "clicks:x", "clicks:1-", "clicks:-1"])
def test_anything_else_is_bad_usage(text: str) -> None:
    with pytest.raises(Failure) as failed:
        parse_scope(text)
    assert failed.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("before", "by", "after", "limited"),
    [(50, 10, 60, False), (50, -10, 40, False), (50, 100, 90, True), (50, -100, 20, True)],
)
def test_a_shift_stays_within_the_partition(
    before: int, by: int, after: int, limited: bool
) -> None:
    change = shifted("clicks", 3, before, Shift(by), (20, 90))
    assert change == Change("clicks", 3, before, after, limited)
    assert change.difference == after - before


def test_without_an_offset_there_is_nothing_to_shift() -> None:
    with pytest.raises(Failure, match="clicks partition 3"):
        shifted("clicks", 3, None, Shift(1), (0, 9))
