"""Rates between two views of a group, without a broker."""

from headrace.admin.group_rates import Rates, rates_between
from headrace.admin.group_view import CoordinatorAddress, DescribedGroup, GroupView, PartitionLag

GROUP = DescribedGroup(
    "g", "Stable", "classic", "consumer", "range", CoordinatorAddress(1, "h", 9092), ()
)


def view(*rows: tuple[int | None, int | None]) -> GroupView:
    """A group by the committed offset and the end of its partitions."""
    return GroupView(GROUP, tuple(PartitionLag("t", i, *row, None) for i, row in enumerate(rows)))


def test_rates_are_records_a_second_between_two_looks() -> None:
    rates = rates_between(view((10, 20), (0, 0)), view((30, 25), (0, 0)), 2.0)
    assert rates == {("t", 0): Rates(10.0, 2.5), ("t", 1): Rates(0.0, 0.0)}


def test_a_first_look_a_new_partition_and_a_reset_have_no_rate() -> None:
    assert rates_between(None, view((1, 1)), 1.0) == {("t", 0): Rates()}
    rates = rates_between(view((10, 20)), view((5, 20), (1, 1)), 1.0)
    assert rates == {("t", 0): Rates(None, 0.0), ("t", 1): Rates()}
