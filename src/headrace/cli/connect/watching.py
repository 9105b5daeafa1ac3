"""Repeated looks at connectors: a table that is redrawn on a terminal, else one after the other."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headrace.cli import output
from headrace.cli.failures import ExitCode, Failure

if TYPE_CHECKING:
    from rich.console import RenderableType

Found = TypeVar("Found")

Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C or --count.")
]
Interval = Annotated[
    float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="With --watch: how often.")
]
Count = Annotated[
    int | None,
    typer.Option("--count", metavar="N", min=1, help="With --watch: how many looks."),
]


def watch(
    look: Callable[[], Found],
    draw: Callable[[Found], "RenderableType"],
    interval_s: float,
    count: int | None,
    as_json: bool,
) -> None:
    """Show what `look` finds until there were `count` looks, or Ctrl-C is pressed."""
    found = _looks(look, interval_s, count)
    try:
        if as_json:
            for each in found:
                output.print_json({"error": each.message} if isinstance(each, Failure) else each)
        elif output.console().is_terminal:
            _show_live(found, draw)
        else:
            for each in found:
                _print(each, draw)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _looks(
    look: Callable[[], Found], interval_s: float, count: int | None
) -> Iterator[Found | Failure]:
    """A worker that does not respond now may do so later; the first look has to succeed."""
    shown = 0
    while True:
        try:
            yield look()
        except Failure as failure:
            if not shown or failure.exit_code is not ExitCode.UNREACHABLE:
                raise
            yield failure
        shown += 1
        if shown == count:
            return
        time.sleep(interval_s)


def _print(found: "Found | Failure", draw: "Callable[[Found], RenderableType]") -> None:
    console = output.console()
    console.print(output.time_text(time.time_ns() // 1_000_000), "UTC")
    console.print(found.message if isinstance(found, Failure) else draw(found))
    console.print()
    console.file.flush()


def _show_live(
    found: "Iterator[Found | Failure]", draw: "Callable[[Found], RenderableType]"
) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    last: RenderableType = Text()
    with Live(console=output.console(), auto_refresh=False, vertical_overflow="crop") as live:
        for each in found:
            if isinstance(each, Failure):
                trouble = Text(f"{each.message}; trying again", style="bold red")
                live.update(Group(last, trouble), refresh=True)
                continue
            last = draw(each)
            live.update(last, refresh=True)
