"""Shows and carries out a plan of moves, for `cluster balance`, `cluster drain` and a change of the
replication factor. It uses only Kafka's requests, and works on any Kafka cluster.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage, raise_all

if TYPE_CHECKING:
    from headrace.admin.balance import Plan, Replicas
    from headrace.cli.client import ClusterOptions
    from headrace.client.cluster import Cluster as Connected
    from headrace.client.layout import Layout

SHOWN_MOVES = 40

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")]
AtOnce = Annotated[
    int,
    typer.Option(
        "--at-once", metavar="N", min=1, help="Number of partitions that move at the same time."
    ),
]

Planner = Callable[["Layout"], "Plan"]


def run(
    cluster: "ClusterOptions",
    planner: Planner,
    *,
    yes: bool,
    dry_run: bool,
    at_once: int,
    as_json: bool,
    elect: bool = False,
) -> None:
    """Plan, show, confirm, move; with `elect` preferred leaders are elected at the end."""
    from headrace.admin import reassignment
    from headrace.cli import client

    with client.admin(cluster) as connected:
        layout = reassignment.settled_layout(connected)
        plan = planner(layout)
        led_by_others = reassignment.not_led_by_preferred(layout) if elect else []
        if not as_json:
            _show(plan, len(led_by_others))
        nothing = not plan.moves and not led_by_others
        done = False
        failures: list[Failure] = []
        if not nothing and not dry_run:
            _confirm(plan, yes)
            failures = _move_all(connected, plan, at_once)
            if elect:
                refused = reassignment.elect_preferred_leaders(connected)
                failures += [Failure(str(error)) for error in refused.values()]
            done = True
    if as_json:
        output.print_json(_as_json(plan, done, failures))
    elif nothing:
        print("nothing to do")
    elif done:
        print(f"{len(plan.moves) - len(failures)} of {len(plan.moves)} partitions moved")
    raise_all(failures)


# ------------------------------------------------------------------------------------- showing


def _show(plan: "Plan", elections: int) -> None:
    if plan.moves:
        output.print_table(
            ("Partition", "From", "To", "Why"),
            [
                (str(move.partition), _brokers(move.before), _brokers(move.after), move.why)
                for move in plan.moves[:SHOWN_MOVES]
            ],
        )
        if len(plan.moves) > SHOWN_MOVES:
            print(f"... and {len(plan.moves) - SHOWN_MOVES:,} more; --json has all of them")
        print()
    output.print_table(
        ("Broker", "Replicas", "then", "Leaders", "then "),
        [
            tuple(map(str, (broker, before.replicas, after.replicas, before.leaders,
                            after.leaders)))
            for broker, before in plan.before.items()
            for after in [plan.after[broker]]
        ],
        numbers=("Broker", "Replicas", "then", "Leaders", "then "),
    )  # fmt: skip
    copies = sum(move.copies for move in plan.moves)
    reordered = sum(not move.copies for move in plan.moves)
    print(
        f"\n{copies:,} replica(s) to copy, {reordered:,} change(s) of leaders only"
        + (f", {elections:,} leader(s) to give back" if elections else "")
    )


def _brokers(replicas: "Replicas") -> str:
    return ",".join(map(str, replicas))


def _as_json(plan: "Plan", done: bool, failures: list[Failure]) -> dict[str, object]:
    return {
        "done": done,
        "moves": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "from": list(move.before),
                "to": list(move.after),
                "why": move.why,
            }
            for move in plan.moves
        ],
        "brokers": [
            {
                "id": broker,
                "replicas": {"before": share.replicas, "after": plan.after[broker].replicas},
                "leaders": {"before": share.leaders, "after": plan.after[broker].leaders},
            }
            for broker, share in plan.before.items()
        ],
        "failures": [failure.message for failure in failures],
    }


def _confirm(plan: "Plan", yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise bad_usage("moving partitions needs a confirmation", "Add --yes, or --dry-run.")
    if not typer.confirm(f"Move {len(plan.moves)} partition(s)?", err=True):
        raise Failure("nothing was moved", code="ABORTED")


# -------------------------------------------------------------------------------------- moving


def _move_all(connected: "Connected", plan: "Plan", at_once: int) -> list[Failure]:
    """Carry out the plan with a progress bar; returns the refused moves."""
    from headrace.admin.reassignment import move_all

    refused: list[Failure] = []
    under_way = 0
    with output.progress() as progress:
        task = progress.add_task("Moving", total=len(plan.moves), state="")
        try:
            for look in move_all(connected, plan, at_once):
                refused = [Failure(str(error)) for error in look.refused.values()]
                under_way = look.under_way
                progress.update(task, completed=look.done, state=f"{under_way} under way")
        except KeyboardInterrupt:
            output.note(
                f"Stopped. {under_way} move(s) in progress continue; "
                "`headrace cluster describe` shows when they are complete."
            )
            raise
    return refused
