"""The lag of a partition, without a broker."""

from headrace.admin.group_view import PartitionLag


def test_lag_is_unknown_without_an_offset_or_an_end_and_never_negative() -> None:
    assert PartitionLag("a", 0, 3, 10, None).lag == 7
    assert PartitionLag("a", 0, None, 10, None).lag is None
    assert PartitionLag("a", 0, 3, None, None).lag is None
    # The records behind the offset may have been deleted with their topic.
    assert PartitionLag("a", 0, 3, 0, None).lag == 0
