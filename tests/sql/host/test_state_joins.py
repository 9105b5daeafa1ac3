"""The order in which the rows of a key are joined."""

from typing import NamedTuple

from headrace.sql.host.state_joins import LEFT, RIGHT, in_order


class Change(NamedTuple):
    """A row as the processors get it."""

    side: int
    time: int
    place: int
    row: str


def ordered(rows: list[Change], *, left_is_stream: bool) -> list[str]:
    return [each.row for each in in_order(rows, left_is_stream=left_is_stream)]


def test_changes_of_a_table_come_before_rows_of_the_same_time() -> None:
    rows = [Change(LEFT, 5, 0, "s5"), Change(RIGHT, 5, 0, "t5"), Change(LEFT, 4, 1, "s4")]
    assert ordered(rows, left_is_stream=True) == ["s4", "t5", "s5"]


def test_a_change_with_a_larger_offset_is_later_whatever_its_time_is() -> None:
    rows = [Change(RIGHT, 9, 1, "first"), Change(RIGHT, 3, 2, "second"), Change(LEFT, 5, 0, "s")]
    assert ordered(rows, left_is_stream=True) == ["s", "first", "second"]
    assert ordered(rows, left_is_stream=False) == ["s", "first", "second"]


def test_rows_of_a_stream_are_by_time_although_their_offsets_are_not() -> None:
    rows = [Change(LEFT, 9, 1, "nine"), Change(LEFT, 3, 2, "three")]
    assert ordered(rows, left_is_stream=True) == ["three", "nine"]
    assert ordered(rows, left_is_stream=False) == ["nine", "three"]
