"""Watches a group: repeated views, the rates between them, and three output formats.

If the cluster is not reachable, the view has the error, and the next one tries again.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.admin import group_view
from headrace.admin.errors import AdminError
from headrace.admin.group_rates import Rates, rates_between, total_rates
from headrace.admin.group_view import GroupView, PartitionLag, Place
from headrace.admin.record_times import RecordTimes
from headrace.cli import client, output
from headrace.cli.client import ClusterOptions
from headrace.cli.failures import Failure, failure_of
from headrace.cli.groups.group_tables import lag_text

if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_TIMEOUT_S = 5.0
"""How long a view waits for an unreachable cluster before it shows the failure."""
# Lines of the live view besides the partitions: facts, headings, the total, the members' heading.
FRAME_LINES = 12
FEWEST_ROWS = 5


@dataclass(frozen=True, slots=True)
class Look:
    """The group at one moment, or the reason why it cannot be shown."""

    name: str
    time_ms: int
    view: GroupView | None
    rates: dict[Place, Rates]
    failure: Failure | None = None

    @property
    def total(self) -> Rates:
        """The rates of all partitions together."""
        return total_rates(self.rates.values())

    def as_json(self) -> dict[str, object]:
        start: dict[str, object] = {"time": self.time_ms, "group": self.name}
        if self.view is None:
            error = self.failure
            return start | {"error": error and {"code": error.code, "message": error.message}}
        group = self.view.description
        return {
            **start,
            "state": group.state,
            "lag": self.view.lag,
            **_rates_json(self.total),
            "members": [
                {
                    "id": each.id,
                    "client_id": each.client_id,
                    "host": each.host,
                    "partitions": len(each.assignment or ()),
                    "lag": self.view.member_lag(each.id).records,
                }
                for each in group.members
            ],
            "partitions": [
                each.as_json() | _rates_json(self.rates[each.topic, each.partition])
                for each in self.view.partitions
            ],
        }


def _rates_json(rates: Rates) -> dict[str, object]:
    return {"consumed_per_s": _rounded(rates.consumed), "arrived_per_s": _rounded(rates.arrived)}


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def looks(
    cluster: ClusterOptions, name: str, interval_s: float, count: int | None
) -> Iterator[Look]:
    """View the group repeatedly; a group that does not exist at first ends the command."""
    with client.open_client(cluster, LOOK_TIMEOUT_S) as connected:
        times = RecordTimes()

        def view_now() -> GroupView:
            with client.translated(cluster):
                groups = group_view.existing_groups(connected, [name])
                (view,) = group_view.view_groups(connected, groups, times)
                return view

        yield from _looks(view_now, name, interval_s, count)


def _looks(
    view_now: Callable[[], GroupView], name: str, interval_s: float, count: int | None
) -> Iterator[Look]:
    before: GroupView | None = None
    before_at = due = time.monotonic()
    shown = 0
    while True:
        failure, view = None, None
        try:
            view = view_now()
        except (AdminError, Failure) as error:
            # After the first view the group may reappear.
            if not shown:
                raise
            failure = error if isinstance(error, Failure) else failure_of(error)
        at = time.monotonic()
        rates = {} if view is None else rates_between(before, view, at - before_at)
        yield Look(name, time.time_ns() // 1_000_000, view, rates, failure)
        if view is not None:
            before, before_at = view, at
        shown += 1
        if shown == count:
            return
        due = max(due + interval_s, at)
        time.sleep(max(due - time.monotonic(), 0))


# ------------------------------------------------------------------------------------ showing


def print_lines(found: Iterator[Look]) -> None:
    """Print one JSON object per line, unbuffered."""
    for look in found:
        print(json.dumps(look.as_json(), ensure_ascii=False), flush=True)


def print_tables(found: Iterator[Look]) -> None:
    """Prints one table after the other, where the output is not a terminal."""
    console = output.console()
    for look in found:
        console.print(output.time_text(look.time_ms), "UTC")
        console.print(drawn(look, None))
        console.print()
        console.file.flush()


def show_live(found: Iterator[Look]) -> None:
    """A table that is redrawn in place; the last one stays on the terminal."""
    from rich.live import Live

    console = output.console()
    last: RenderableType | None = None
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for look in found:
            if look.view is None and last is not None:
                live.update(_with_failure(last, look), refresh=True)
                continue
            last = drawn(look, max(FEWEST_ROWS, console.height - FRAME_LINES))
            live.update(last, refresh=True)


def _with_failure(last: "RenderableType", look: Look) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    reason = look.failure.message if look.failure else "not there"
    return Group(last, Text(f"{reason}; trying again", style="bold red"))


def drawn(look: Look, rows: int | None) -> "RenderableType":
    """The view as a table with at most `rows` partitions: those with the largest lag."""
    from rich.console import Group
    from rich.text import Text

    if look.view is None:
        return Text(look.failure.message if look.failure else "not there")
    partitions = list(look.view.partitions)
    members = list(look.view.description.members)
    hidden = 0
    if rows is not None and len(partitions) + len(members) > rows:
        members = members[: max(rows // 3, rows - len(partitions))]
        kept = sorted(partitions, key=lambda p: -(p.lag or 0))[: rows - len(members)]
        hidden = len(partitions) - len(kept)
        partitions = sorted(kept, key=lambda p: (p.topic, p.partition))
    parts: list[RenderableType] = [_facts(look, look.view), Text(), _partitions(look, partitions)]
    if hidden:
        parts.append(Text(f"and {hidden:,} partitions with less lag", style="dim"))
    if members:
        parts += [Text(), _members(look.view, [each.id for each in members])]
    left = len(look.view.description.members) - len(members)
    if left:
        parts.append(Text(f"and {left:,} more members", style="dim"))
    return Group(*parts)


def _facts(look: Look, view: GroupView) -> "RenderableType":
    from rich.text import Text

    group, total = view.description, look.total
    facts = {
        "group": group.name,
        "state": group.state,
        "members": str(len(group.members)),
        "lag": output.number(view.lag),
        "done in": _time_left(view.lag, total),
    }
    line = Text(overflow="fold")
    for name, value in facts.items():
        line.append(f"{name} ", style="bold cyan").append(f"{value}   ")
    return line


def _time_left(lag: int | None, total: Rates) -> str:
    """The time until the group has caught up, at the present rates."""
    if lag is None:
        return "-"
    if not lag:
        return "0 s"
    gain = (total.consumed or 0) - (total.arrived or 0)
    if gain <= 0:
        return "-" if total.consumed is None else "never, at this rate"
    seconds = lag / gain
    return f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def _partitions(look: Look, partitions: list[PartitionLag]) -> "RenderableType":
    from rich.markup import escape

    assert look.view is not None
    rows: list[tuple[str, ...]] = []
    for each in partitions:
        rates = look.rates[each.topic, each.partition]
        rows.append(
            (
                escape(each.topic),
                str(each.partition),
                output.number(each.committed),
                output.number(each.end),
                lag_text(each.lag),
                output.number(rates.consumed),
                output.number(rates.arrived),
                escape(each.owner.client_id) if each.owner else "-",
            )
        )
    total = look.total
    numbers = (
        output.number(look.view.lag),
        output.number(total.consumed),
        output.number(total.arrived),
    )
    rows.append(("[bold]total[/]", "", "", "", *(f"[bold]{cell}[/]" for cell in numbers), ""))
    columns = (
        "Topic", "Partition", "Committed", "End", "Lag", "Consumed/s", "Arrived/s", "Client",
    )  # fmt: skip
    return output.table(columns, rows, numbers=columns[1:-1])


def _members(view: GroupView, ids: list[str]) -> "RenderableType":
    from rich.markup import escape

    return output.table(
        ("Client", "Host", "Owns", "Lag"),
        [
            (
                escape(each.client_id),
                escape(each.host),
                str(len(each.assignment or ())),
                lag_text(view.member_lag(each.id).records),
            )
            for each in view.description.members
            if each.id in ids
        ],
        numbers=("Owns", "Lag"),
    )
