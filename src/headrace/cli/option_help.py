"""Commands of `option_table.py` for Typer: their help pages and completion."""

import inspect
import sys
from typing import Annotated

import typer

from headrace.cli.option_table import CommandOption, ProcessCommand
from headrace.cli.options import examples


def add_command(app: typer.Typer, command: ProcessCommand) -> None:
    """Adds the command to a Typer application."""

    def start(**_: object) -> None:
        # Called only if options precede the words of the command.
        at = sys.argv.index(command.words[-1])
        raise typer.Exit(command.start(sys.argv[at + 1 :]))

    parameters = [_parameter(option) for option in command.options]
    start.__doc__ = f"{command.summary}\n\n{command.details}"
    start.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    start.__annotations__ = {each.name: each.annotation for each in parameters}
    app.command(command.words[-1], epilog=examples(*command.examples))(start)


def _parameter(option: CommandOption) -> inspect.Parameter:
    info = typer.Option(
        *filter(None, (option.flag, option.short)),
        metavar=option.metavar or None,
        help=option.text,
        envvar=option.env or None,
        show_default=option.shown_default or option.default is not None,
        rich_help_panel=option.panel or None,
    )
    kind: object = str | None
    default: object = option.default
    if option.repeatable:
        kind, default = list[str], []
    elif not option.metavar:
        kind, default = bool, False
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, info],
        default=default,
    )
