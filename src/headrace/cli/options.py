"""Command-line options that several commands share, so that they read the same everywhere."""

import os
from typing import Annotated

import typer

from headrace.cli.option_table import CLUSTER_PANEL
from headrace.cli.option_table import DEFAULT_BOOTSTRAP as DEFAULT_BOOTSTRAP
from headrace.cli.schemas.registry_client import CA_VARIABLE, TOKEN_VARIABLE, USER_INFO_VARIABLE


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topic names for completion; empty unless a broker responds quickly."""
    from headrace.cli import client

    names = client.topic_names_now(_bootstrap(ctx))
    return [name for name in names if name.startswith(incomplete)]


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of consumer groups for completion; empty unless a broker responds quickly."""
    from headrace.cli import client

    names = client.group_names_now(_bootstrap(ctx))
    return [name for name in names if name.startswith(incomplete)]


def _bootstrap(ctx: typer.Context) -> str:
    named = ctx.params.get("bootstrap")
    return str(named or os.environ.get("HEADRACE_BOOTSTRAP") or DEFAULT_BOOTSTRAP)


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT",
        help="A broker of the cluster; separate several with commas.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
ClientConfig = Annotated[
    str | None,
    typer.Option(
        "--client-config",
        envvar="HEADRACE_CLIENT_CONFIG",
        metavar="FILE",
        help="File with properties of the Kafka client, for TLS and logins.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
RegistryOption = Annotated[
    str,
    typer.Option(
        "--registry",
        "-r",
        envvar="HEADRACE_REGISTRY",
        metavar="URL",
        help=f"The schema registry; separate several URLs with commas. USER:PASSWORD is read from "
        f"{USER_INFO_VARIABLE} or a token from {TOKEN_VARIABLE}, a file of CA certificates from "
        f"{CA_VARIABLE}.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print only JSON on standard output.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=complete_topics)
]
TopicArguments = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", help="Names of topics.", autocompletion=complete_topics),
]
GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group's name.", autocompletion=complete_groups)
]
GroupArguments = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", help="Names of groups.", autocompletion=complete_groups),
]


def examples(*lines: str) -> str:
    """The epilog of a command: its examples, one per line."""
    from headrace.cli.failures import EXIT_CODES_HELP

    shown = "\n".join(f"  {line}" for line in lines).replace("[", "\\[")
    return f"[bold]Examples[/bold]\n{shown}\n\n{EXIT_CODES_HELP}"


def pairs(words: list[str], option: str) -> dict[str, str]:
    """`name=value` words as a mapping; the value may contain `=`."""
    from headrace.cli.failures import bad_usage

    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise bad_usage(f"{option} {word!r} is not name=value")
        found[name] = value
    return found
