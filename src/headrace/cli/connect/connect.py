"""`headrace connect`: workers and connectors."""

import typer

from headrace.cli.connect.serve import COMMAND
from headrace.cli.option_help import add_command
from headrace.cli.options import examples

app = typer.Typer(no_args_is_help=True, epilog=examples("headrace connect serve"))


@app.callback()
def connect() -> None:
    """Connectors between Kafka and other systems, with Kafka Connect's REST interface."""


add_command(app, COMMAND)
