"""`headrace cluster`: describe, balance and drain."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.cluster.moving import AtOnce, DryRun, Yes
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ClientConfig, examples

if TYPE_CHECKING:
    from headrace.admin.balance import Plan
    from headrace.client.layout import Layout

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace cluster describe",
        "headrace cluster balance --dry-run",
        "headrace cluster drain 3",
    ),
)


@app.callback()
def _group() -> None:
    """Show brokers, controller and health; balance replicas and leaders; drain a broker."""


@app.command(
    epilog=examples(
        "headrace cluster describe",
        "headrace cluster describe --apis                     which versions of which API",
        "headrace cluster describe --json | jq .cluster_id",
        "headrace cluster describe --json | jq -e '.offline == [] and .under_replicated == []'",
    )
)
def describe(
    apis: Annotated[bool, typer.Option("--apis", help="Also show the API versions.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show brokers, controller, features, and what is under-replicated, offline or moving.

    Skew is the difference between the leaders of a broker and an even share. With --json the API
    versions are always included.
    """
    from headrace.admin.cluster_view import view_cluster
    from headrace.cli import client
    from headrace.cli.cluster import cluster_table

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        view = view_cluster(connected)
    if as_json:
        output.print_json(view.as_json())
    else:
        cluster_table.show(view, apis=apis)


@app.command(
    epilog=examples(
        "headrace cluster balance --dry-run                   only the plan",
        "headrace cluster balance --yes --at-once 5",
        "headrace cluster balance --dry-run --json | jq '.moves | length'",
    )
)
def balance(
    yes: Yes = False,
    dry_run: DryRun = False,
    at_once: AtOnce = 10,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Balance replicas and leaders over all brokers, after a confirmation.

    The plan shows which partitions move and why. It counts replicas, not bytes. Replicas of a
    partition are kept in, or moved to, different racks. Replicas on absent brokers do not move.
    """
    from headrace.admin.reassignment import plan_balance
    from headrace.cli import client
    from headrace.cli.cluster import moving

    cluster = client.connect(bootstrap, client_config)
    moving.run(
        cluster,
        plan_balance,
        yes=yes,
        dry_run=dry_run,
        at_once=at_once,
        as_json=as_json,
        elect=True,
    )


@app.command(
    epilog=examples("headrace cluster drain 3 --dry-run", "headrace cluster drain 3 --yes")
)
def drain(
    broker: Annotated[int, typer.Argument(metavar="BROKER", help="The broker's id.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    at_once: AtOnce = 10,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Move all replicas off a broker, after a confirmation, so that it can be removed.

    The broker may be dead or alive. Stop it soon after: new topics may still be placed on it.
    """
    from headrace.admin.reassignment import plan_drain
    from headrace.cli import client
    from headrace.cli.cluster import moving

    def plan(layout: "Layout") -> "Plan":
        return plan_drain(layout, broker)

    cluster = client.connect(bootstrap, client_config)
    moving.run(cluster, plan, yes=yes, dry_run=dry_run, at_once=at_once, as_json=as_json)
