"""The plan of a reset of offsets, without a broker."""

import pytest

from headrace.admin.errors import AdminError
from headrace.admin.group_reset import OffsetChange, Shift, shifted
from headrace.admin.positions import PartitionBounds
from headrace.types import TopicPartition

CLICKS_3 = TopicPartition("clicks", 3)


@pytest.mark.parametrize(
    ("before", "by", "after", "limited"),
    [(50, 10, 60, False), (50, -10, 40, False), (50, 100, 90, True), (50, -100, 20, True)],
)
def test_a_shift_stays_within_the_partition(
    before: int, by: int, after: int, limited: bool
) -> None:
    change = shifted(CLICKS_3, before, Shift(by), PartitionBounds(20, 90))
    assert change == OffsetChange("clicks", 3, before, after, limited)
    assert change.difference == after - before


def test_without_an_offset_there_is_nothing_to_shift() -> None:
    with pytest.raises(AdminError, match="clicks partition 3"):
        shifted(CLICKS_3, None, Shift(1), PartitionBounds(0, 9))
