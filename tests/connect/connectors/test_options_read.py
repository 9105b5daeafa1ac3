"""Every option of a connector is read by its code, or refused: none is accepted without effect."""

import ast
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connect import Option, connectors
from headrace.connect.connectors.datagen import Datagen
from headrace.connect.plugin import Connector
from headrace.connect.plugins import BUILT_IN, Plugins
from headrace.connect.worker_options import worker_options

NAMES = [path.rpartition(":")[2] for path in BUILT_IN]
FOLDER = Path(inspect.getfile(connectors)).parent
READ_BY_PREFIX = {
    "ApacheIcebergSink": ("iceberg.catalog.", "iceberg.tables."),
}
"""Options whose names the code puts together."""


def loaded(module: Path) -> Iterator[str]:
    """Attributes and texts that a module uses, apart from the declarations of options."""
    tree = ast.parse(module.read_text())
    declared = {
        inner
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Option"
        for inner in ast.walk(call)
    }
    for assigned in ast.walk(tree):
        if isinstance(assigned, ast.Assign):
            names = [getattr(target, "id", "").lower() for target in assigned.targets]
            if any("ignored" in name for name in names):
                declared |= set(ast.walk(assigned))
    for node in ast.walk(tree):
        if node in declared:
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@functools.cache
def names_in(folder: Path) -> frozenset[str]:
    modules = folder.rglob("*.py") if folder != FOLDER else folder.glob("*.py")
    return frozenset(name for module in modules for name in loaded(module))


def unread(kind: type[Connector]) -> list[str]:
    folder = Path(inspect.getfile(kind)).parent
    used = names_in(FOLDER) | (names_in(folder) if folder.is_relative_to(FOLDER) else frozenset())
    prefixes = READ_BY_PREFIX.get(kind.__name__, ())
    return [
        option.name
        for option in kind.options
        if option.attribute not in used
        and option.name not in used
        and not option.name.startswith(prefixes or ("\0",))
        # One allowed value is what the connector does; validation refuses the others.
        and len(option.choices) != 1
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_read(name: str) -> None:
    assert unread(Plugins().find(name).kind) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_option_that_is_ignored_is_not_read_elsewhere(name: str) -> None:
    plugin = Plugins().find(name)
    read = {option.name for option in plugin.kind.options}
    read |= {key.name for key in worker_options(plugin.type)}
    assert read & set(plugin.kind.ignored) == set()


def test_an_option_that_nothing_reads_is_found() -> None:
    class Made(Connector):
        options = (*Datagen.options, Option("made.up", str, ""))

    assert unread(Made) == ["made.up"]
