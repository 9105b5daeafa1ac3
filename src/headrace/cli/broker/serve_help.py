"""`headrace serve` for Typer: its help page and completion, from the same table."""

import inspect
import sys
from typing import Annotated

import typer

from headrace.cli.broker import serve
from headrace.cli.options import examples

app = typer.Typer()


def _parameter(option: serve.ServeOption) -> inspect.Parameter:
    info = typer.Option(
        option.flag,
        metavar=option.metavar,
        help=option.text,
        envvar=option.env or None,
        show_default=option.shown_default or option.default is not None,
    )
    kind = list[str] if option.repeatable else str | None
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, info],
        default=[] if option.repeatable else option.default,
    )


def _serve(**_: object) -> None:
    # Called only if options precede the word `serve`.
    raise typer.Exit(serve.start(sys.argv[sys.argv.index("serve") + 1 :]))


_serve.__doc__ = serve.SUMMARY + "\n" + serve.DETAILS
_parameters = [_parameter(option) for option in serve.OPTIONS]
_serve.__signature__ = inspect.Signature(_parameters)  # type: ignore[attr-defined]
_serve.__annotations__ = {each.name: each.annotation for each in _parameters}
app.command(epilog=examples(*serve.EXAMPLES))(_serve)
