"""`headrace cluster`: who is in it, and what it can do."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ClientConfig, examples

if TYPE_CHECKING:
    from headrace.cli.client import Cluster
    from headrace.cli.direct import ApiRange

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples("headrace cluster describe", "headrace cluster describe --apis"),
)


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker, at the address that it tells clients."""

    id: int
    host: str
    port: int
    rack: str | None
    controller: bool


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster; None where it told nothing."""

    cluster_id: str
    controller: int | None
    brokers: list[BrokerView]
    topics: int
    partitions: int
    features: dict[str, int] | None
    apis: "list[ApiRange] | None"


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
    from headrace.cli import client

    cluster = client.connect(bootstrap, client_config)
    view = _look(cluster)
    if as_json:
        output.print_json(asdict(view))
    else:
        _show(view, apis=apis)


def _look(cluster: "Cluster") -> ClusterView:
    from headrace.cli import client, direct

    admin = client.admin(cluster)
    with client.translated(cluster, "the cluster"):
        found = admin.describe_cluster(request_timeout=client.ANSWER_TIMEOUT_S).result()
    topics = client.metadata(cluster, admin).topics
    can = direct.abilities(cluster)
    controller = None if found.controller is None else int(found.controller.id)
    brokers = [
        BrokerView(
            id=int(node.id),
            host=str(node.host),
            port=int(node.port),
            rack=node.rack,
            controller=node.id == controller,
        )
        for node in sorted(found.nodes, key=lambda node: int(node.id))
    ]
    return ClusterView(
        cluster_id=str(found.cluster_id),
        controller=controller,
        brokers=brokers,
        topics=len(topics),
        partitions=sum(len(topic.partitions) for topic in topics.values()),
        features=can.features if can else None,
        apis=list(can.apis) if can else None,
    )


def _show(view: ClusterView, *, apis: bool) -> None:
    features = sorted((view.features or {}).items())
    output.print_facts(
        {
            "Cluster id": view.cluster_id,
            "Controller": "none" if view.controller is None else f"broker {view.controller}",
            "Topics": f"{view.topics:,} with {view.partitions:,} partitions",
            "Features": ", ".join(f"{name}={level}" for name, level in features) or "-",
        }
    )
    print()
    output.print_table(
        ("Broker", "Address", "Rack", "Role"),
        [
            (
                str(each.id),
                f"{each.host}:{each.port}",
                each.rack or "-",
                "controller" if each.controller else "",
            )
            for each in view.brokers
        ],
        numbers=("Broker",),
    )
    if apis and view.apis:
        print()
        output.print_table(
            ("Key", "API", "Versions"),
            [(str(api.key), api.name, f"{api.min} to {api.max}") for api in view.apis],
            numbers=("Key",),
        )
