"""`headrace configs`: settings of topics and brokers, and where their values come from."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import bad_usage, not_found
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    examples,
    pairs,
)

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster as Connected
    from headrace.types import ConfigResourceType

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace configs describe topic clicks",
        "headrace configs describe broker 1 --all",
        "headrace configs set topic clicks --set retention.ms=3600000",
        "headrace configs set broker 1 --set log.cleaner.threads=2 --unset log.retention.ms",
    ),
)


class Kind(StrEnum):
    """Types of resources with settings."""

    TOPIC = "topic"
    BROKER = "broker"


KindArgument = Annotated[Kind, typer.Argument(metavar="topic|broker", help="What has settings.")]
NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The topic's name, or the broker's number."),
]


@app.callback()
def _group() -> None:
    """Show and change settings of topics and brokers."""


@app.command(
    epilog=examples(
        "headrace configs describe topic clicks",
        "headrace configs describe broker 1 --all",
        "headrace configs describe topic clicks --name retention.ms --json",
    )
)
def describe(
    kind: KindArgument,
    name: NameArgument,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include default values.")
    ] = False,
    only: Annotated[
        str | None, typer.Option("--name", metavar="SETTING", help="Only this setting.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show settings and where each value comes from; those that differ from the default."""
    from headrace.cli import client
    from headrace.client.configs import describe_configs

    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        _check_name(connected, kind, name)
        found = describe_configs(connected, _type(kind), name)
    if only is not None and not any(each.name == only for each in found):
        raise not_found(f"{kind.value} {name} has no setting {only!r}", "--all shows all settings.")
    chosen = [
        each
        for each in found
        if (each.name == only if only is not None else everything or not each.is_default)
    ]
    if as_json:
        output.print_json(
            [
                {
                    "name": each.name,
                    "value": each.value,
                    "source": each.source,
                    "read_only": each.read_only,
                    "sensitive": each.sensitive,
                }
                for each in chosen
            ]
        )
    elif not chosen:
        output.note(f"{kind.value} {name}: all settings have their defaults; --all shows them.")
    else:
        output.print_table(
            ("Setting", "Value", "Source"),
            [(each.name, _shown(each.value, each.sensitive), each.source) for each in chosen],
        )


def _shown(value: str | None, sensitive: bool) -> str:
    from rich.markup import escape

    if sensitive:
        return "[dim](hidden)[/]"
    return "[dim](none)[/]" if value is None else escape(value) or '[dim]""[/]'


def _type(kind: Kind) -> "ConfigResourceType":
    from headrace.types import ConfigResourceType

    return ConfigResourceType.TOPIC if kind is Kind.TOPIC else ConfigResourceType.BROKER


def _check_name(connected: "Connected", kind: Kind, name: str) -> None:
    """Not found if the topic or broker does not exist."""
    from headrace.admin.topics import existing_topics
    from headrace.client.brokers import describe_cluster

    if kind is Kind.TOPIC:
        existing_topics(connected, [name])
        return
    brokers = [str(number) for number in describe_cluster(connected).brokers]
    # An empty name stands for the defaults of all brokers.
    if name and name not in brokers:
        raise not_found(f"unknown broker {name!r}", f"The cluster has {', '.join(brokers)}.")


@app.command(
    "set",
    epilog=examples(
        "headrace configs set topic clicks --set retention.ms=3600000 --set segment.ms=60000",
        "headrace configs set topic clicks --unset retention.ms",
        "headrace configs set broker '' --set log.retention.ms=3600000       all brokers",
    ),
)
def set_configs(
    kind: KindArgument,
    name: NameArgument,
    to_set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated."),
    ] = None,
    to_unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Back to the default; may be repeated."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Change settings while the cluster runs; other settings are not changed."""
    from headrace.cli import client
    from headrace.cli.topics import config_changes
    from headrace.client.configs import alter_configs

    if not to_set and not to_unset:
        raise bad_usage("nothing to change", "Specify --set NAME=VALUE or --unset NAME.")
    changes = config_changes.Changes(pairs(to_set or [], "--set"), tuple(to_unset or ()))
    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        _check_name(connected, kind, name)
        alter_configs(connected, _type(kind), name, changes.to_set, changes.to_unset)
    config_changes.report(f"{kind.value} {name}", changes, as_json=as_json)
