"""The plan of a reset of offsets, without a broker."""

from dataclasses import replace

import pytest

from headrace.admin.errors import AdminError
from headrace.admin.group_reset import OffsetChange, ResetPlan, Shift, check_unused, shifted
from headrace.admin.group_view import UNKNOWN_COORDINATOR, DescribedGroup
from headrace.admin.positions import PartitionBounds
from headrace.client.groups import MemberDescription
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


def test_a_plan_knows_what_differs_and_a_group_with_members_is_refused() -> None:
    member = MemberDescription("m-1", "app", "10.0.0.1", None, (), None)
    group = DescribedGroup(
        "billing", "Stable", "classic", "consumer", "range", UNKNOWN_COORDINATOR, (member,)
    )
    same, moved = OffsetChange("t", 0, 5, 5), OffsetChange("t", 1, None, 0)
    assert ResetPlan(group, (same, moved)).different == (moved,)
    with pytest.raises(AdminError, match=r"app on 10\.0\.0\.1") as caught:
        check_unused(group, "no")
    assert caught.value.code == "GROUP_IN_USE"
    check_unused(replace(group, members=()), "no")
