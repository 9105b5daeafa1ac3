"""`headrace quotas`: quotas of users, client ids and addresses."""

from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import bad_usage
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    examples,
    pairs,
)

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace quotas list",
        "headrace quotas set producer_byte_rate=1048576 --user alice",
        "headrace quotas remove producer_byte_rate --user alice",
    ),
)

User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="A user; '' for all other users.")
]
ClientId = Annotated[
    str | None,
    typer.Option("--client-id", metavar="ID", help="A client id; '' for all other client ids."),
]
Ip = Annotated[
    str | None,
    typer.Option("--ip", metavar="ADDRESS", help="An address; '' for all other addresses."),
]


@app.callback()
def _group() -> None:
    """Limit what users, client ids and addresses may use."""


@app.command(
    "list",
    epilog=examples(
        "headrace quotas list",
        "headrace quotas list --user alice",
        "headrace quotas list --user '' --json       the default of all users",
    ),
)
def list_all(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Show quotas; those of one user, client id or address, or all."""
    from headrace.cli import client
    from headrace.client.quotas import list_quotas, shown

    wanted = _entity(user, client_id, ip)
    with client.admin(client.connect(bootstrap, client_config)) as connected:
        found = list_quotas(connected, wanted)
    found.sort(key=lambda one: shown(one.entity))
    if as_json:
        output.print_json(
            [{"entity": dict(one.entity), "quotas": dict(one.values)} for one in found]
        )
    elif not found:
        output.note("No matching quotas.")
    else:
        from rich.markup import escape

        output.print_table(
            ("Entity", "Quota", "Limit"),
            [
                (escape(shown(one.entity)), key, f"{value:.15g}")
                for one in found
                for key, value in sorted(one.values.items())
            ],
        )


@app.command(
    "set",
    epilog=examples(
        "headrace quotas set producer_byte_rate=1048576 consumer_byte_rate=2097152 --user alice",
        "headrace quotas set request_percentage=50 --client-id ''       all other client ids",
        "headrace quotas set connection_creation_rate=20 --ip 10.0.0.7",
    ),
)
def set_quotas(
    quotas: Annotated[
        list[str], typer.Argument(metavar="KEY=LIMIT", help="Quotas and their limits.")
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Set quotas of a user, a client id, a client id of a user, or an address."""
    limits: dict[str, float] = {}
    for key, text in pairs(quotas, "KEY=LIMIT").items():
        try:
            limits[key] = float(text)
        except ValueError:
            raise bad_usage(f"{key}={text}: the limit is not a number") from None
    _change(_entity(user, client_id, ip), limits, [], bootstrap, as_json, client_config)


@app.command(
    epilog=examples(
        "headrace quotas remove producer_byte_rate consumer_byte_rate --user alice",
        "headrace quotas remove request_percentage --client-id ''",
    ),
)
def remove(
    quotas: Annotated[list[str], typer.Argument(metavar="KEY", help="Quotas to remove.")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Remove quotas; a less specific quota may apply after that."""
    _change(_entity(user, client_id, ip), {}, quotas, bootstrap, as_json, client_config)


def _change(
    entity: dict[str, str | None],
    to_set: dict[str, float],
    to_remove: list[str],
    bootstrap: str,
    as_json: bool,
    client_config: str | None,
) -> None:
    from headrace.cli import client
    from headrace.client.quotas import alter_quotas, shown

    if not entity:
        raise bad_usage("no entity given", "Specify --user, --client-id or --ip.")
    with client.admin(client.connect(bootstrap, client_config)) as connected:
        alter_quotas(connected, entity, to_set, to_remove)
    if as_json:
        output.print_json({"entity": entity, "set": to_set, "removed": to_remove})
        return
    changes = [f"set {key}={value:.15g}" for key, value in to_set.items()]
    changes += [f"removed {key}" for key in to_remove]
    output.note(f"{shown(entity)}: {', '.join(changes)}")


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    given = {"user": user, "client-id": client_id, "ip": ip}
    return {kind: name or None for kind, name in given.items() if name is not None}
