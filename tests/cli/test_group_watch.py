"""Rates and the choice of rows in the live table, without a broker."""

import io

from rich.console import Console

from headrace.cli.groups.group_view import Description, GroupView, PartitionLag
from headrace.cli.groups.group_watch import Look, Rates, drawn, rates_between

GROUP = Description("g", "Stable", "classic", "consumer", "range", (1, "h", 9092), ())


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


def test_a_small_terminal_gets_the_partitions_that_lag_most() -> None:
    found = view(*((0, lag) for lag in (1, 500, 2, 700, 3)))
    look = Look("g", 0, found, rates_between(None, found, 1.0))
    console = Console(file=io.StringIO(), width=100)
    console.print(drawn(look, 2))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    shown = [line.split()[1] for line in text.splitlines() if line.startswith("t ")]
    assert shown == ["1", "3"]
    assert "and 3 partitions that lag less" in text
    assert "1,206" in text
