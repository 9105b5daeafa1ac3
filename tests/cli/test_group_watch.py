"""The choice of rows in the live table, without a broker."""

import io

from rich.console import Console

from headrace.admin.group_rates import rates_between
from headrace.admin.group_view import CoordinatorAddress, DescribedGroup, GroupView, PartitionLag
from headrace.cli.groups.group_watch import Look, drawn

GROUP = DescribedGroup(
    "g", "Stable", "classic", "consumer", "range", CoordinatorAddress(1, "h", 9092), ()
)


def view(*rows: tuple[int | None, int | None]) -> GroupView:
    """A group by the committed offset and the end of its partitions."""
    return GroupView(GROUP, tuple(PartitionLag("t", i, *row, None) for i, row in enumerate(rows)))


def test_a_small_terminal_gets_the_partitions_that_lag_most() -> None:
    found = view(*((0, lag) for lag in (1, 500, 2, 700, 3)))
    look = Look("g", 0, found, rates_between(None, found, 1.0))
    console = Console(file=io.StringIO(), width=100)
    console.print(drawn(look, 2))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    shown = [line.split()[1] for line in text.splitlines() if line.startswith("t ")]
    assert shown == ["1", "3"]
    assert "and 3 partitions with less lag" in text
    assert "1,206" in text
