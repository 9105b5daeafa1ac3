"""`headrace registry` for Typer: its help pages and completion."""

import typer

from headrace.cli.option_help import add_command
from headrace.cli.options import examples
from headrace.cli.schemas.registry_serve import COMMAND

app = typer.Typer(
    no_args_is_help=True, epilog=examples("headrace registry serve --bootstrap kafka.lan:9092")
)


@app.callback()
def registry() -> None:
    """Schema registry with the HTTP API of Confluent's registry."""


add_command(app, COMMAND)
