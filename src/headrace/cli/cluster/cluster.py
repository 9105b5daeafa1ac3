"""`headrace cluster`: who is in it, how it fares, and how to even it out."""

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
    """Brokers, controller, health; even out replicas and leaders; empty a broker."""


@app.command(
    epilog=examples(
        "headrace cluster describe",
        "headrace cluster describe --apis                     which versions of which API",
        "headrace cluster describe --json | jq .cluster_id",
        "headrace cluster describe --json | jq -e '.offline == [] and .under_replicated == []'",
    )
)
def describe(
    apis: Annotated[bool, typer.Option("--apis", help="Also the API versions.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show brokers, controller, features, and what is under-replicated, offline or moving.

    Skew is how much more, or less, a broker leads than an even share. With --json the API versions
    are always there.
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
    """Even out replicas and leaders over all brokers, after asking; new brokers get their share.

    The plan says which partitions move and why. It counts replicas, not bytes; replicas of a
    partition stay in different racks, or get there. A replica on a broker that is not there stays.
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
    """Move everything off a broker, after asking, so that it can be removed; dead or alive.

    Stop the broker soon after: new topics may still be given to it.
    """
    from headrace.admin.reassignment import plan_drain
    from headrace.cli import client
    from headrace.cli.cluster import moving

    def plan(layout: "Layout") -> "Plan":
        return plan_drain(layout, broker)

    cluster = client.connect(bootstrap, client_config)
    moving.run(cluster, plan, yes=yes, dry_run=dry_run, at_once=at_once, as_json=as_json)
