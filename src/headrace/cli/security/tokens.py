"""`headrace tokens`: delegation tokens, a replacement for passwords."""

import base64
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import bad_usage, not_found
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ClientConfig, examples

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster as Connected
    from headrace.client.tokens import TokenDescription

app = typer.Typer(
    no_args_is_help=True,
    epilog=examples(
        "headrace tokens create",
        "headrace tokens create --renewer scheduler --hours 8",
        "headrace tokens list",
        "headrace tokens renew TOKEN",
        "headrace tokens delete TOKEN",
    ),
)

IdArgument = Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id.")]


@app.callback()
def _group() -> None:
    """Create, renew and delete delegation tokens. Brokers need delegation.token.secret.key."""


@app.command("list", epilog=examples("headrace tokens list", "headrace tokens list --json"))
def list_tokens(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """List the tokens that you own, requested or may renew, without their HMACs."""
    from headrace.cli import client
    from headrace.client.tokens import describe_tokens

    with client.admin(client.connect(bootstrap, client_config)) as connected:
        found = describe_tokens(connected)
    if as_json:
        output.print_json([_row(token) for token in found])
    elif not found:
        output.note("No tokens. Create one: headrace tokens create")
    else:
        output.print_table(
            ("Token", "Owner", "Renewers", "Expires", "Latest expiry"),
            [
                (
                    one.id, one.owner, ", ".join(one.renewers) or "-",
                    output.time_text(one.expiry_ms), output.time_text(one.max_ms),
                )
                for one in found
            ],
        )  # fmt: skip


@app.command(
    epilog=examples(
        "headrace tokens create",
        "headrace tokens create --renewer scheduler --hours 8",
        "headrace tokens create --owner etl --json",
    )
)
def create(
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner",
            metavar="USER",
            help="The user whose rights the token has.",
            show_default="yourself",
        ),
    ] = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer", metavar="USER", help="A user who may renew the token. Repeatable."
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours",
            metavar="NUMBER",
            help="How long the token can be renewed.",
            show_default="the brokers' delegation.token.max.lifetime.ms",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Create a token. Its HMAC is a secret, like a password."""
    from headrace.cli import client
    from headrace.client.tokens import create_token

    if hours is not None and not hours > 0:
        raise bad_usage("--hours needs a number greater than 0")
    lifetime_ms = -1 if hours is None else max(1, int(hours * 3_600_000))
    names = [_name(one) for one in renewer or ()]
    with client.admin(client.connect(bootstrap, client_config)) as connected:
        token = create_token(connected, None if owner is None else _name(owner), names, lifetime_ms)
    secret = base64.b64encode(token.hmac).decode()
    if as_json:
        output.print_json({**_row(token), "hmac": secret})
        return
    # Not as a table, which could wrap the secret.
    print(f"sasl.jaas.config={_JAAS} required " + _OPTIONS.format(token.id, secret))
    output.note(
        f"The token {token.id} of {token.owner} expires at {output.time_text(token.expiry_ms)} "
        f"unless it is renewed, and at {output.time_text(token.max_ms)} at the latest. Use the "
        "line in a client's configuration, with sasl.mechanism=SCRAM-SHA-512."
    )


_JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OPTIONS = 'username="{}" password="{}" tokenauth="true";'


@app.command(epilog=examples("headrace tokens renew Zx1lZ3mOQ7WwT3nZ6mSZzg"))
def renew(
    token: IdArgument,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Extend the expiry time of a token as far as the brokers allow."""
    from headrace.cli import client
    from headrace.client.tokens import renew_token

    with client.admin(client.connect(bootstrap, client_config)) as connected:
        expiry_ms = renew_token(connected, _find(connected, token))
    if as_json:
        output.print_json({"id": token, "expiry_ms": expiry_ms})
    else:
        print(f"The token {token} expires at {output.time_text(expiry_ms)}.")


@app.command(epilog=examples("headrace tokens delete Zx1lZ3mOQ7WwT3nZ6mSZzg"))
def delete(
    token: IdArgument,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientConfig = None,
) -> None:
    """Delete a token, so that it cannot be used for logins."""
    from headrace.cli import client
    from headrace.client.tokens import delete_token

    with client.admin(client.connect(bootstrap, client_config)) as connected:
        delete_token(connected, _find(connected, token))
    output.note(f"Deleted the token {token}. Connections that use it stay until they end.")


def _find(connected: "Connected", token_id: str) -> "TokenDescription":
    from headrace.client.tokens import describe_tokens

    for token in describe_tokens(connected):
        if token.id == token_id:
            return token
    raise not_found(f"unknown token {token_id}", "`headrace tokens list` shows your tokens.")


def _name(principal: str) -> str:
    return principal.removeprefix("User:")


def _row(token: "TokenDescription") -> dict[str, object]:
    return {
        "id": token.id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issue_ms": token.issue_ms,
        "expiry_ms": token.expiry_ms,
        "max_ms": token.max_ms,
    }
