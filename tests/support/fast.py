"""Which tests `make check` runs: those that start no process.

A file is left out if it starts processes, or imports a module that does, or if one of its tests
uses a fixture of a conftest that does. The rule reads the sources only, so that nothing is imported
for tests that do not run. `forbid_processes` enforces it: a fast test that starts a process fails.
Tests that are marked as slow and those of the simulator are left out, too.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STARTERS = ("subprocess", "multiprocessing", "pyspark", "headrace.testing")
"""Modules whose import says that a test starts a process."""
SIMULATOR = ROOT / "tests" / "simulation"
PLUGIN_FIXTURES = frozenset({"headrace", "headrace_factory"})
STARTING = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
"""Audit events of Python."""

# Regular expressions take a twentieth of the time that parsing the sources takes.
IMPORT = re.compile(
    r"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|[^\n]*)|import ([\w.]+))", re.MULTILINE
)
FUNCTION = re.compile(
    r"(^@[^\n]*fixture[^\n]*\n)?^(?:async )?def (\w+)\((.*?)\)\s*->", re.MULTILINE | re.DOTALL
)


@cache
def is_fast(file: Path) -> bool:
    """Whether no test in this file starts a process or runs the simulator."""
    if SIMULATOR in file.parents:
        return False
    return not _starts_processes(file) and not _arguments(file) & _fixtures_with_processes(file)


def forbid_processes() -> None:
    """Let every start of a process in this process fail from now on."""

    def check(event: str, arguments: object) -> None:
        if event in STARTING:
            raise AssertionError(
                f"{event} in a fast test: import what starts the process in the test's module "
                f"(tests/support/fast.py) or use a fixture that does; arguments: {arguments}"
            )

    sys.addaudithook(check)


@cache
def _starts_processes(file: Path) -> bool:
    """Whether it forks or imports a module that starts processes; in tests, over any number of
    imports, and in the package over one: nearly everything imports the broker in the end."""
    if "os.fork(" in _source(file):
        return True
    names = list(_imports(file))
    if any(name.startswith(STARTERS) for name in names):
        return True
    return any(
        _starts_processes(module)
        for name in names
        if name.startswith("tests.")
        or (name.startswith("headrace.") and ROOT / "tests" in file.parents)
        for module in _files(name)
    )


def _files(module: str) -> list[Path]:
    root = ROOT if module.startswith("tests.") else ROOT / "src"
    path = root.joinpath(*module.split("."))
    return [one for one in (path.with_suffix(".py"), path / "__init__.py") if one.exists()]


def _imports(file: Path) -> Iterator[str]:
    """Modules, and names that may be modules."""
    for module, names, plain in IMPORT.findall(_source(file)):
        if plain:
            yield plain
        else:
            yield module
            yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))


def _fixtures_with_processes(file: Path) -> frozenset[str]:
    found = set(PLUGIN_FIXTURES)
    for folder in file.parents:
        conftest = folder / "conftest.py"
        if conftest.exists() and _starts_processes(conftest):
            found |= {name for is_fixture, name, _ in _functions(conftest) if is_fixture}
        if folder == ROOT:
            break
    return frozenset(found)


def _arguments(file: Path) -> frozenset[str]:
    return frozenset(
        argument
        for is_fixture, name, arguments in _functions(file)
        if is_fixture or name.startswith("test_")
        for argument in re.findall(r"(\w+):", arguments)
    )


@cache
def _functions(file: Path) -> list[tuple[str, str, str]]:
    """Whether it is a fixture, its name and its arguments."""
    return FUNCTION.findall(_source(file))


@cache
def _source(file: Path) -> str:
    return file.read_text()
