"""`headrace cluster`: who is in it, and what it can do."""

from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ClientConfig, examples

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples("headrace cluster describe", "headrace cluster describe --apis"),
)


@app.callback()
def _group() -> None:
    """Brokers, controller, features, API versions."""


@app.command(
    epilog=examples(
        "headrace cluster describe",
        "headrace cluster describe --apis                     which versions of which API",
        "headrace cluster describe --json | jq .cluster_id",
    )
)
def describe(
    apis: Annotated[bool, typer.Option("--apis", help="Also the API versions.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show the cluster's id, brokers, controller and features.

    With --json the API versions are always there. A cluster behind TLS or a login shows neither
    features nor API versions.
    """
    from headrace.cli import client, direct

    cluster = client.connect(bootstrap, client_config)
    admin = client.admin(cluster)
    with client.translated(cluster, "the cluster"):
        found = admin.describe_cluster(request_timeout=client.ANSWER_TIMEOUT_S).result()
    topics = client.metadata(cluster, admin).topics
    can = direct.abilities(cluster)
    controller = None if found.controller is None else found.controller.id
    brokers = [
        {
            "id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "controller": node.id == controller,
        }
        for node in sorted(found.nodes, key=lambda node: int(node.id))
    ]
    counts = (len(topics), sum(len(topic.partitions) for topic in topics.values()))
    if as_json:
        output.print_json(
            {
                "cluster_id": found.cluster_id,
                "controller": controller,
                "brokers": brokers,
                "topics": counts[0],
                "partitions": counts[1],
                "features": can.features if can else None,
                "apis": [
                    {"key": a.key, "name": a.name, "min": a.lowest, "max": a.highest}
                    for a in can.apis
                ]
                if can
                else None,
            }
        )
        return
    features = can.features if can else {}
    output.print_facts(
        {
            "Cluster id": str(found.cluster_id),
            "Controller": "none" if controller is None else f"broker {controller}",
            "Topics": f"{counts[0]:,} with {counts[1]:,} partitions",
            "Features": ", ".join(f"{k}={v}" for k, v in sorted(features.items())) or "-",
        }
    )
    print()
    output.print_table(
        ("Broker", "Address", "Rack", "Role"),
        [
            (
                str(each["id"]),
                f"{each['host']}:{each['port']}",
                str(each["rack"] or "-"),
                "controller" if each["controller"] else "",
            )
            for each in brokers
        ],
        numbers=("Broker",),
    )
    if apis and can:
        print()
        output.print_table(
            ("Key", "API", "Versions"),
            [(str(a.key), a.name, f"{a.lowest} to {a.highest}") for a in can.apis],
            numbers=("Key",),
        )
