"""`headrace connect new`: a package for a connector of one's own, to start from."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import bad_usage


class ConnectorKind(StrEnum):
    """What a connector does."""

    SOURCE = "source"
    SINK = "sink"


SOURCE = '''"""A source: reads the lines of a file. Replace the file by your system."""

from pathlib import Path

from headrace.connect import Option, OptionError, Source


class {name}(Source):
    """Reads the lines of a file."""

    options = (Option("path", str, doc="The file to read.", importance="high"),)
    schema = "line string"

    def check(self):
        """Called when a configuration is validated."""
        if not Path(self.path).is_file():
            raise OptionError("path", f"There is no file {{self.path}}.")

    def latest(self, partition, start, limit):
        """The offset at which the next range ends; `start` if there is nothing new."""
        count = len(Path(self.path).read_text().splitlines())
        return {{"line": min(count, (start or {{"line": 0}})["line"] + limit)}}

    def read(self, partition, start, end):
        """The rows of a range: the same whenever it is read."""
        lines = Path(self.path).read_text().splitlines()
        for line in lines[(start or {{"line": 0}})["line"] : end["line"]]:
            yield {{"line": line}}
'''

SOURCE_TEST = """from headrace.connect.trial import try_source

from {module} import {name}


def test_every_line_is_read(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("one\\ntwo\\nthree\\n")
    source = {name}({{"topic": "lines", "path": str(path)}})
    source.check()
    ranges = list(try_source(source, epochs=2, rows=2))
    assert [row["line"] for each in ranges for row in each.rows] == ["one", "two", "three"]
"""

SINK = '''"""A sink: writes each epoch to a file. Replace the files by your system."""

import json
from pathlib import Path

from headrace.connect import Option, OptionError, RecordError, Sink


class {name}(Sink):
    """Writes values as JSON lines, one file for each task and epoch."""

    # The same epoch replaces its file, so that it is there once however often it is written.
    once = True
    options = (Option("folder", str, doc="Where the files are.", importance="high"),)

    def check(self):
        """Called when a configuration is validated."""
        if not Path(self.folder).is_dir():
            raise OptionError("folder", f"There is no folder {{self.folder}}.")

    def open(self, task):
        """Connect: called before the first batch of a task."""
        name = f"{{task.generation}}-{{task.epoch}}-{{task.number}}-{{task.part}}"
        self._path = Path(self.folder) / name
        self._lines = []

    def write(self, batch):
        """Take a batch of records; RecordError names those that cannot be written."""
        values = batch.column("value").to_pylist()
        refused = {{row: "there is no value" for row, value in enumerate(values) if value is None}}
        if refused:
            raise RecordError(refused)
        self._lines += [json.dumps(value, default=str) for value in values]

    def close(self):
        """Store what was written."""
        self._path.write_text("".join(f"{{line}}\\n" for line in self._lines))

    def abandon(self):
        """After an error: disconnect without storing."""
        self._lines = []
'''

SINK_TEST = """from headrace.connect.trial import try_sink

from {module} import {name}


def test_every_value_is_written_once(tmp_path):
    sink = {name}({{"topics": "numbers", "folder": str(tmp_path)}})
    sink.check()

    def stored():
        return sorted(path.read_text() for path in tmp_path.iterdir())

    values = [{{"n": 1}}, {{"n": 2}}, {{"n": 3}}]
    try_sink(sink, values, "n bigint", epochs=2, stored=stored)
    assert "".join(stored()) == '{{"n": 1}}\\n{{"n": 2}}\\n{{"n": 3}}\\n'
"""

PROJECT = """[project]
name = "{project}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["headrace"]

[project.entry-points."headrace.connectors"]
{name} = "{module}:{name}"

[build-system]
requires = ["setuptools>=61"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
py-modules = ["{module}"]
"""

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of the class, such as OrderSource.")
]
KindOption = Annotated[ConnectorKind, typer.Option("--kind", help="What the connector does.")]
Folder = Annotated[
    str | None, typer.Option("--folder", metavar="FOLDER", help="A new folder for the package.")
]


def new(name: Name, kind: KindOption = ConnectorKind.SOURCE, folder: Folder = None) -> None:
    """Write a package with a connector, its test and its entry point, to start from."""
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name):
        raise bad_usage(f"{name}: expected a name of a class, such as OrderSource")
    words = re.findall(r"[A-Z][a-z0-9]*", name)
    module = "_".join(words).lower()
    target = Path(folder or module)
    if target.exists():
        raise bad_usage(f"{target} exists; name another one with --folder")
    is_source = kind is ConnectorKind.SOURCE
    files = {
        f"{module}.py": SOURCE if is_source else SINK,
        f"test_{module}.py": SOURCE_TEST if is_source else SINK_TEST,
        "pyproject.toml": PROJECT,
    }
    target.mkdir(parents=True)
    for file, text in files.items():
        filled = text.format(name=name, module=module, project=module.replace("_", "-"))
        (target / file).write_text(filled)
    output.note(f"wrote {', '.join(files)} to {target}; then, in this folder:")
    tried = "path=FILE" if is_source else "folder=FOLDER --input values.jsonl --schema 'n bigint'"
    output.note(f"  headrace connect dev {module}.py:{name} --option {tried}")
    output.note("  pytest")
    output.note(f"  pip install -e .          workers then have the class {name}")
