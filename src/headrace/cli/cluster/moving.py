"""A plan of moves, shown and carried out: what `cluster balance`, `cluster drain` and a change of
the replication factor have in common. Only ordinary requests: it works on any Kafka cluster.
"""

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage, raise_all

if TYPE_CHECKING:
    from headrace.cli.client import ClusterOptions
    from headrace.cli.cluster.balance import Plan, Replicas
    from headrace.client.cluster import Cluster as Connected
    from headrace.client.layout import Layout
    from headrace.types import TopicPartition

POLL_S = 0.2
SHOWN_MOVES = 40

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop there.")]
AtOnce = Annotated[
    int,
    typer.Option("--at-once", metavar="N", min=1, help="How many partitions move at a time."),
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
    """Plan, show, ask, move; with `elect` the first replicas lead in the end."""
    from headrace.cli import client

    with client.admin(cluster) as connected:
        layout = _settled_layout(connected)
        plan = _planned(planner, layout)
        led_by_others = _led_by_others(layout) if elect else []
        if not as_json:
            _show(plan, len(led_by_others))
        nothing = not plan.moves and not led_by_others
        done = False
        failures: list[Failure] = []
        if not nothing and not dry_run:
            _confirm(plan, yes)
            failures = _move_all(connected, plan, at_once)
            if elect:
                failures += _elect(connected)
            done = True
    if as_json:
        output.print_json(_as_json(plan, done, failures))
    elif nothing:
        print("nothing to do")
    elif done:
        print(f"{len(plan.moves) - len(failures)} of {len(plan.moves)} partitions moved")
    raise_all(failures)


def _settled_layout(connected: "Connected") -> "Layout":
    from headrace.client import layout

    moving = connected.patiently("listing moves", lambda: layout.moves_under_way(connected))
    if moving:
        raise Failure(
            f"{len(moving)} partition(s) are moving already, such as {next(iter(moving))}",
            code="MOVES_UNDER_WAY",
            hint="Wait until `headrace cluster describe` shows no moves, then plan again.",
        )
    return connected.patiently("asking who holds what", lambda: layout.read_layout(connected))


def _planned(planner: Planner, layout: "Layout") -> "Plan":
    from headrace.cli.cluster.balance import TooFewBrokers

    try:
        return planner(layout)
    except TooFewBrokers as error:
        raise Failure(
            str(error),
            code="TOO_FEW_BROKERS",
            hint="Start another broker, or `headrace topics alter TOPIC --replication-factor N`.",
        ) from None


def _led_by_others(layout: "Layout") -> "list[TopicPartition]":
    """Partitions that their first replica could lead and does not."""
    return [
        partition
        for partition, held in layout.partitions.items()
        if held.leader != held.replicas[0] and held.replicas[0] in held.isr
    ]


# ------------------------------------------------------------------------------------- showing


def held_by(layout: "Layout") -> "Mapping[TopicPartition, Replicas]":
    """The replicas of every partition."""
    return {partition: held.replicas for partition, held in layout.partitions.items()}


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
        raise bad_usage("will not move anything without being sure", "Add --yes, or --dry-run.")
    if not typer.confirm(f"Move {len(plan.moves)} partition(s)?", err=True):
        raise Failure("nothing was moved", code="ABORTED")


# -------------------------------------------------------------------------------------- moving


def _move_all(connected: "Connected", plan: "Plan", at_once: int) -> list[Failure]:
    """Keep so many partitions moving until all have arrived; those that were refused."""
    from headrace.client import layout

    waiting = {move.partition: move.after for move in reversed(plan.moves)}
    moving: set[TopicPartition] = set()
    failures: list[Failure] = []
    with output.progress() as progress:
        task = progress.add_task("Moving", total=len(plan.moves), state="")
        try:
            while waiting or moving:
                room = min(at_once - len(moving), len(waiting))
                batch = dict(waiting.popitem() for _ in range(room))
                if batch:
                    refused = connected.patiently(
                        "moving partitions", partial(layout.move, connected, batch)
                    )
                    failures += [Failure(str(error)) for error in refused.values()]
                    moving |= batch.keys() - refused.keys()
                under_way = connected.patiently(
                    "listing moves", lambda: layout.moves_under_way(connected)
                )
                moving &= under_way.keys()
                left = len(waiting) + len(moving)
                progress.update(
                    task, completed=len(plan.moves) - left, state=f"{len(moving)} under way"
                )
                if moving:
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            output.note(
                f"Stopped. {len(moving)} move(s) that have begun go on; "
                "`headrace cluster describe` tells when they are done."
            )
            raise
    return failures


def _elect(connected: "Connected") -> list[Failure]:
    """Elect the preferred leaders after the reassignment."""
    from headrace.client import layout

    now = connected.patiently("asking who leads", lambda: layout.read_layout(connected))
    wanted = _led_by_others(now)
    if not wanted:
        return []
    refused = connected.patiently(
        "electing leaders", lambda: layout.elect_preferred(connected, wanted)
    )
    return [Failure(str(error)) for error in refused.values()]
