"""`headrace connect dev`: tries a source of one's own, without a cluster and without Spark."""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.options import AsJson, pairs

if TYPE_CHECKING:
    from headrace.connect.plugin import Connector

Plugin = Annotated[
    str,
    typer.Argument(metavar="FILE:CLASS", help="A class in a Python file, such as mine.py:Numbers."),
]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the class.")
]
Rows = Annotated[int, typer.Option("--rows", min=1, help="How many rows an epoch has at most.")]
Epochs = Annotated[int, typer.Option("--epochs", min=1, help="How many epochs to read.")]


def dev(
    plugin: Plugin, options: Options = None, rows: Rows = 10, epochs: Epochs = 1,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Read from a source connector, print its rows, and check what its interface promises.

    Every range is read twice: exactly-once needs a `read` that returns the same rows for the same
    range.
    """
    from headrace.connect.plugin import OptionError, Source
    from headrace.connect.trial import BrokenPromise, try_source

    found = _load(plugin)
    if not issubclass(found, Source):
        raise bad_usage(f"{plugin} is not a Source; only sources can be tried")
    try:
        source = found({"topic": "trial", **pairs(options or [], "--option")})
        source.check()
        for each in try_source(source, epochs, rows):
            if as_json:
                output.print_json(
                    {
                        "topic": each.topic,
                        "partition": dict(each.partition),
                        "start": each.start,
                        "end": each.end,
                        "rows": each.rows,
                    }
                )
            else:
                where = ", ".join(f"{name}={value}" for name, value in each.partition.items())
                output.note(f"{each.topic} {where}: {each.start} to {each.end}")
                columns = list(each.rows[0]) if each.rows else []
                output.print_table(columns, [[str(row[c]) for c in columns] for row in each.rows])
    except OptionError as error:
        raise bad_usage(f"{error.option}: {error}") from None
    except BrokenPromise as error:
        raise Failure(str(error)) from None


def _load(plugin: str) -> "type[Connector]":
    from headrace.connect.plugin import Connector

    file, _, name = plugin.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise bad_usage(f"{plugin}: expected FILE:CLASS, and there is no file {file!r}")
    # A file may have the name of a module of the standard library, such as numbers.py.
    sys.path.append(str(path.resolve().parent))
    described = importlib.util.spec_from_file_location("connector_on_trial", path)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules[module.__name__] = module
    described.loader.exec_module(module)
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, Connector):
        raise bad_usage(f"{file} has no connector class {name}")
    return found
