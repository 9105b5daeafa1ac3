"""The text of a group's tables, without a broker."""

from headrace.cli.groups.group_tables import places_text


def test_partitions_are_shown_as_ranges_by_topic() -> None:
    places = [("b", 7), ("a", 0), ("a", 2), ("a", 1), ("a", 5)]
    assert places_text(places) == "a:0-2,5 b:7"
    assert places_text([]) == ""
