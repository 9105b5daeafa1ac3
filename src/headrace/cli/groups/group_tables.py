"""Prints groups and changes of their offsets as tables."""

from collections.abc import Iterable, Sequence

from headrace.admin.group_reset import OffsetChange
from headrace.admin.group_view import GroupView, PartitionLag, Place
from headrace.admin.share_groups import SHARE
from headrace.cli import output
from headrace.client.groups import MemberDescription


def show_group(view: GroupView) -> None:
    """The group, its partitions and its members."""
    group = view.description
    at = group.coordinator
    output.print_facts(
        {
            "Group": group.name,
            "State": group.state,
            "Type": group.type,
            "Protocol": group.protocol_type or "-",
            "Assignor": group.assignor or "-",
            "Coordinator": f"{at.id} ({at.host}:{at.port})",
            "Members": str(len(group.members)),
            "Lag": _lag(view) + _behind(view.delay_s),
        }
    )
    print()
    if group.type == SHARE and view.partitions:
        output.print_table(
            ("Topic", "Partition", "Start", "End", "Lag", "Released", "Deliveries"),
            [*map(_share_row, view.partitions)],
            numbers=("Partition", "Start", "End", "Lag", "Released", "Deliveries"),
        )
    elif view.partitions:
        output.print_table(
            ("Topic", "Partition", "Committed", "End", "Lag", "Seconds", "Client", "Host"),
            [*map(_row, view.partitions), _total(view)],
            numbers=("Partition", "Committed", "End", "Lag", "Seconds"),
        )
    else:
        output.note("No offsets committed and no partitions assigned.")
    print()
    if group.members:
        output.print_table(
            ("Client", "Member", "Instance", "Host", "Assignment"),
            [_member_row(each) for each in group.members],
        )
        print()


def _row(each: PartitionLag) -> tuple[str, ...]:
    from rich.markup import escape

    return (
        escape(each.topic),
        str(each.partition),
        output.number(each.committed),
        output.number(each.end),
        lag_text(each.lag),
        output.number(each.delay_s),
        escape(each.owner.client_id) if each.owner else "-",
        escape(each.owner.host) if each.owner else "-",
    )


def _share_row(each: PartitionLag) -> tuple[str, ...]:
    from rich.markup import escape

    stored = each.share.deliveries if each.share else None
    return (
        escape(each.topic),
        str(each.partition),
        output.number(each.committed),
        output.number(each.end),
        lag_text(each.lag),
        output.number(None if stored is None else stored.released),
        output.number(None if stored is None else stored.most_deliveries),
    )


def _total(view: GroupView) -> tuple[str, ...]:
    total = f"[bold]{output.number(view.lag)}[/]"
    return ("[bold]total[/]", "", "", "", total, f"[bold]{output.number(view.delay_s)}[/]", "", "")


def _lag(view: GroupView) -> str:
    total = view.total
    known = "unknown" if total.records is None else output.records(total.records)
    return f"{known} ({total.gap})" if total.gap else known


def _behind(seconds: float | None) -> str:
    return f", {seconds:,.0f} s behind" if seconds else ""


def lag_text(lag: int | None) -> str:
    """The lag: green for zero, yellow for more, a dash if unknown."""
    if lag is None:
        return "-"
    return f"[yellow]{lag:,}[/]" if lag else "[green]0[/]"


def _member_row(member: MemberDescription) -> tuple[str, ...]:
    from rich.markup import escape

    if member.assignment is None:
        owned = "-"
    else:
        owned = places_text(member.assignment) or "nothing"
    if member.target is not None and member.target != member.assignment:
        owned += f" (moving to {places_text(member.target) or 'nothing'})"
    words = (member.client_id, member.id, member.instance_id or "-", member.host, owned)
    return tuple(escape(word) for word in words)


def places_text(places: Iterable[Place]) -> str:
    """`clicks:0-2,5 orders:1`."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        by_topic.setdefault(topic, []).append(index)
    return " ".join(f"{topic}:{_ranges(indexes)}" for topic, indexes in by_topic.items())


def _ranges(indexes: Sequence[int]) -> str:
    runs: list[tuple[int, int]] = []
    for index in indexes:
        if runs and index == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def show_changes(changes: Sequence[OffsetChange], *, error: bool = False) -> None:
    """The plan as a table."""
    output.print_table(
        ("Topic", "Partition", "From", "To", "Difference", ""),
        [
            (
                each.topic,
                str(each.partition),
                output.number(each.before),
                output.number(each.after),
                _difference(each.difference),
                "[dim]limited to the partition[/]" if each.limited else "",
            )
            for each in changes
        ],
        numbers=("Partition", "From", "To", "Difference"),
        error=error,
    )


def _difference(count: int | None) -> str:
    if count is None:
        return "[green]new[/]"
    if not count:
        return "[dim]same[/]"
    return f"[{'yellow' if count < 0 else 'cyan'}]{count:+,}[/]"
