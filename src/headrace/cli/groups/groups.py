"""`headrace groups`: list, describe, reset-offsets, delete, watch."""

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage, raise_all
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    GroupArgument,
    GroupArguments,
    complete_topics,
    examples,
)

if TYPE_CHECKING:
    from headrace.admin.group_reset import OffsetChange
    from headrace.admin.group_view import DescribedGroup


class GroupState(StrEnum):
    """Kafka's names of group states."""

    STABLE = "Stable"
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(StrEnum):
    """Kafka's types of groups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace groups list",
        "headrace groups describe billing",
        "headrace groups reset-offsets billing --topic clicks --to-earliest --dry-run",
        "headrace groups reset-offsets billing --all-topics --to-time -2h",
        "headrace groups watch billing",
        "headrace groups delete billing --yes",
    ),
)


@app.callback()
def _group() -> None:
    """Consumer groups: their members, offsets and lag."""


@app.command(
    "list",
    epilog=examples(
        "headrace groups list",
        "headrace groups list --state stable --type consumer",
        "headrace groups list --json | jq -r '.[].name'",
    ),
)
def list_groups(
    state: Annotated[
        list[GroupState] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            case_sensitive=False,
            help=f"Only groups in this state; repeatable: {', '.join(GroupState)}.",
        ),
    ] = None,
    type_: Annotated[
        list[GroupType] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            case_sensitive=False,
            help=f"Only groups of this type; repeatable: {', '.join(GroupType)}.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """List the groups with their state, type, protocol and number of members.

    All types of groups: of consumers, of Kafka Connect workers, with offsets only. The protocol
    shows the type of the members.
    """
    from headrace.admin import group_view
    from headrace.cli import client

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        known, errors = group_view.list_groups(connected)
        names = sorted(name for name, found in known.items() if not type_ or found.type in type_)
        found = group_view.describe(connected, names, known)
    groups = [
        group
        for group in found.values()
        # Deleted between the two requests, or in another state than requested.
        if group.exists and (not state or group.state in state)
    ]
    if as_json:
        output.print_json([{**each.as_json(), "members": len(each.members)} for each in groups])
    elif not groups:
        output.note(
            f"No matching groups at {bootstrap}." if known else f"No groups at {bootstrap}."
        )
    else:
        from rich.markup import escape

        output.print_table(
            ("Group", "State", "Type", "Protocol", "Members", "Assignor"),
            [
                (
                    escape(each.name),
                    each.state,
                    each.type,
                    escape(each.protocol_type) or "-",
                    str(len(each.members)),
                    each.assignor or "-",
                )
                for each in groups
            ],
            numbers=("Members",),
        )
    raise_all([Failure(str(error)) for error in errors])


@app.command(
    epilog=examples(
        "headrace groups describe billing",
        "headrace groups describe billing --json | jq .lag",
        "headrace groups describe billing --json | jq '.partitions[] | select(.lag > 1000)'",
    )
)
def describe(
    names: GroupArguments,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show a group's members and their partitions, and its offset and lag in each partition.

    Partitions of members are shown for groups of consumers only. Of a share group the start
    offset is shown, the records that are to be delivered again, and the most deliveries of one.
    With --json: an object for one group, a list for several.
    """
    from headrace.admin import group_view
    from headrace.admin.record_times import RecordTimes
    from headrace.cli import client
    from headrace.cli.groups.group_tables import show_group

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        found = group_view.existing_groups(connected, names)
        views = [
            group_view.with_deliveries(connected, view)
            for view in group_view.view_groups(connected, found, RecordTimes())
        ]
    if as_json:
        plain = [each.as_json() for each in views]
        output.print_json(plain[0] if len(plain) == 1 else plain)
        return
    for each in views:
        show_group(each)


TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:N,N-N]",
        help="A topic, or some of its partitions; repeatable.",
        autocompletion=complete_topics,
    ),
]
AllTopicsOption = Annotated[
    bool, typer.Option("--all-topics", help="Everything that the group has an offset of.")
]
WHERE_TO = "Where to (one of these)"
ToEarliestOption = Annotated[
    bool,
    typer.Option("--to-earliest", help="The oldest record there is.", rich_help_panel=WHERE_TO),
]
ToLatestOption = Annotated[
    bool,
    typer.Option("--to-latest", help="The end: only what comes now.", rich_help_panel=WHERE_TO),
]
ToOffsetOption = Annotated[
    int | None,
    typer.Option("--to-offset", metavar="N", min=0, help="This offset.", rich_help_panel=WHERE_TO),
]
ToTimeOption = Annotated[
    str | None,
    typer.Option(
        "--to-time",
        metavar="TIME",
        help="The first record not older: ISO time, milliseconds, or -15m (ago; s, m, h, d).",
        rich_help_panel=WHERE_TO,
    ),
]
ShiftByOption = Annotated[
    int | None,
    typer.Option(
        "--shift-by",
        metavar="N",
        help="Shift by N records; a negative N moves back.",
        rich_help_panel=WHERE_TO,
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command(
    "reset-offsets",
    epilog=examples(
        "headrace groups reset-offsets billing --topic clicks --to-earliest --dry-run",
        "headrace groups reset-offsets billing --topic clicks:0,2 --to-offset 4711",
        "headrace groups reset-offsets billing --all-topics --to-time 2026-01-31T12:00:00Z",
        "headrace groups reset-offsets billing --all-topics --to-time -2h --yes",
        "headrace groups reset-offsets billing --topic clicks:0 --shift-by -10",
    ),
)
def reset_offsets(
    name: GroupArgument,
    topic: TopicsOption = None,
    all_topics: AllTopicsOption = False,
    to_earliest: ToEarliestOption = False,
    to_latest: ToLatestOption = False,
    to_offset: ToOffsetOption = None,
    to_time: ToTimeOption = None,
    shift_by: ShiftByOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", "-n", help="Only show what would change.")
    ] = False,
    yes: YesOption = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Set the offsets of a group, after showing the changes and a confirmation.

    The group must have no active members. A group that does not exist is created.
    """
    from headrace.admin import group_reset
    from headrace.cli import client
    from headrace.cli.groups import group_tables, reset_options

    target = reset_options.parse_target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_time=to_time,
        shift_by=shift_by,
    )
    scopes = [reset_options.parse_scope(text) for text in topic or []]
    if bool(scopes) == all_topics:
        raise bad_usage("no topics given", "Specify --topic or --all-topics.")
    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        plan = group_reset.plan_reset(connected, name, target, scopes or None)
        if not dry_run:
            group_reset.check_unused(plan.group, group_reset.RESET_NEEDS_NO_MEMBERS)
        if not plan.group.exists:
            output.note(f"Group {name} does not exist yet; the first offset creates it.")
        if not as_json:
            group_tables.show_changes(plan.changes)
        if plan.different and not dry_run:
            if not yes:
                _confirm_reset(name, plan.changes, shown=not as_json)
            group_reset.apply_reset(connected, plan)
    if as_json:
        rows = [each.as_json() for each in plan.changes]
        done = bool(plan.different) and not dry_run
        output.print_json({"group": name, "applied": done, "partitions": rows})
        return
    _report_reset(plan.group, len(plan.different), dry_run=dry_run)


def _confirm_reset(name: str, changes: Sequence["OffsetChange"], *, shown: bool) -> None:
    from headrace.cli.groups.group_tables import show_changes

    if not sys.stdin.isatty():
        raise bad_usage(
            f"resetting offsets of {name} needs a confirmation",
            "Add --yes, or --dry-run to only show the changes.",
        )
    if not shown:
        show_changes(changes, error=True)
    if not typer.confirm(f"Reset these offsets of group {name}?", err=True):
        raise Failure("nothing was changed", code="ABORTED")


def _report_reset(group: "DescribedGroup", different: int, *, dry_run: bool) -> None:
    what = f"{different} partition{'' if different == 1 else 's'}"
    if not different:
        output.note("Nothing to change.")
    elif not dry_run:
        print(f"reset {what} of group {group.name}")
    elif group.members:
        output.note(
            f"Dry run: {what} would change, but not while the group has active members "
            f"({len(group.members)} now)."
        )
    else:
        output.note(f"Dry run: {what} would change. Run it without --dry-run to apply it.")


@app.command(
    epilog=examples("headrace groups delete billing", "headrace groups delete old-a old-b --yes")
)
def delete(
    names: GroupArguments,
    yes: YesOption = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Delete groups with their offsets, after a confirmation. Groups with members are refused."""
    from headrace.admin import group_reset, group_view
    from headrace.cli import client
    from headrace.client.groups import delete_groups

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        for group in group_view.existing_groups(connected, names):
            group_reset.check_unused(group, "only a group without members can be deleted")
        if not yes:
            _confirm_delete(names)
        refused = delete_groups(connected, names)
    failures = [client.refusal(error) for error in refused.values()]
    deleted = [name for name in dict.fromkeys(names) if name not in refused]
    if as_json:
        output.print_json([{"name": name, "deleted": True} for name in deleted])
    else:
        for name in deleted:
            print(f"deleted {name}")
    raise_all(failures)


def _confirm_delete(names: list[str]) -> None:
    listed = ", ".join(names)
    if not sys.stdin.isatty():
        raise bad_usage(f"deleting {listed} needs a confirmation", "Add --yes to confirm.")
    if not typer.confirm(f"Delete {listed} with the offsets committed there?", err=True):
        raise Failure("nothing was deleted", code="ABORTED")


@app.command(
    epilog=examples(
        "headrace groups watch billing                          until Ctrl-C",
        "headrace groups watch billing --interval 5",
        "headrace groups watch billing --json | jq -c '[.time, .lag]'",
        "headrace groups watch billing --count 1 --json",
    )
)
def watch(
    name: GroupArgument,
    interval: Annotated[
        float,
        typer.Option("--interval", "-i", metavar="SECONDS", min=0.1, help="Between two looks."),
    ] = 1.0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after N looks.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Follow a group's lag, rates and members in a live table.

    With --json there is one object per line for each view.
    """
    from headrace.cli import client
    from headrace.cli.groups import group_watch

    cluster = client.connect(bootstrap, client_config)
    looks = group_watch.looks(cluster, name, interval, count)
    try:
        if as_json:
            group_watch.print_lines(looks)
        elif sys.stdout.isatty():
            group_watch.show_live(looks)
        else:
            group_watch.print_tables(looks)
    except KeyboardInterrupt:
        # Without --count this is the normal end.
        if count is not None:
            raise
