"""How a group is put into words, without a broker."""

from headrace.cli.groups.group_view import PartitionLag, places_text


def test_partitions_are_told_as_ranges_by_topic() -> None:
    places = [("b", 7), ("a", 0), ("a", 2), ("a", 1), ("a", 5)]
    assert places_text(places) == "a:0-2,5 b:7"
    assert places_text([]) == ""


def test_lag_is_unknown_without_an_offset_or_an_end_and_never_negative() -> None:
    assert PartitionLag("a", 0, 3, 10, None).lag == 7
    assert PartitionLag("a", 0, None, 10, None).lag is None
    assert PartitionLag("a", 0, 3, None, None).lag is None
    # The records behind the offset may have been deleted with their topic.
    assert PartitionLag("a", 0, 3, 0, None).lag == 0
