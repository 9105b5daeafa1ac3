"""Output of commands: JSON or tables. Progress goes to standard error."""

import json
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table


TIME_WIDTH = len("2026-01-31 12:00:00.000")


def print_json(value: object) -> None:
    """Print one JSON document, indented on a terminal."""
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(value, indent=indent, ensure_ascii=False))


def console(*, error: bool = False) -> "Console":
    """Rich's console; 100 columns if the output is not a terminal."""
    from rich.console import Console

    stream = sys.stderr if error else sys.stdout
    return Console(
        stderr=error, highlight=False, width=None if stream.isatty() else 100, soft_wrap=False
    )


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Container[str] = (),
    error: bool = False,
) -> None:
    """Print a plain table, optionally on standard error."""
    console(error=error).print(table(columns, rows, numbers=numbers))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Container[str] = ()
) -> "Table":
    """A plain table; the columns in `numbers` are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(
        box=SIMPLE_HEAD,
        header_style="bold cyan",
        pad_edge=False,
        show_edge=False,
    )
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in numbers else "left",
            overflow="fold",
            # A wrapped time cannot be read; headings may wrap instead.
            min_width=TIME_WIDTH if name.endswith("imestamp") else None,
        )
    for row in rows:
        made.add_row(*row)
    return made


def print_facts(named: Mapping[str, str]) -> None:
    """Print names and values, one per line, aligned."""
    console().print(facts(named))


def facts(named: Mapping[str, str]) -> "Table":
    """Names and values, one per line, aligned."""
    from rich.markup import escape
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in named.items():
        grid.add_row(name, escape(value))
    return grid


def note(text: str) -> None:
    """Print a note on standard error."""
    console(error=True).print(text, style="dim", markup=False, soft_wrap=True)


def progress() -> "Progress":
    """A progress bar on standard error; hidden if that is not a terminal."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("[bold cyan]{task.description}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console(error=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        refresh_per_second=8,
    )


def size(count: int | None) -> str:
    """A number of bytes with a suitable unit."""
    if count is None or count < 0:
        return "-"
    if count < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1024:.1f} TiB"


def number(count: float | None) -> str:
    """A count with separators, or a dash."""
    return "-" if count is None else f"{count:,.0f}"


def records(count: int) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} record{'' if count == 1 else 's'}"


def time_text(ms: int | None) -> str:
    """A record's time in UTC to the millisecond, or a dash."""
    if ms is None or ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"
