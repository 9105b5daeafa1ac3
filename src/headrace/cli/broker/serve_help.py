"""`headrace serve` for Typer: its help page and completion."""

import typer

from headrace.cli.broker.serve import COMMAND
from headrace.cli.option_help import add_command

app = typer.Typer()
add_command(app, COMMAND)
