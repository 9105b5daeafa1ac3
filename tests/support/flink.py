"""Flink SQL in a process of its own, from the jars that scripts/fetch-java-tools brings."""

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.java import ROOT, SILENT_KAFKA

POM = ROOT / "scripts" / "java" / "flink.pom.xml"
PROGRAM = Path(__file__).parent / "FlinkSql.java"
# Its serializers read fields of Java's own classes.
OPENED = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.util", "java.time")
)


@cache
def missing() -> str | None:
    """None when Flink can be started, else a sentence naming what is missing."""
    if shutil.which("javac") is None:
        return "no Java compiler: install the Debian package openjdk-17-jdk-headless"
    if not (jars() / ".complete").exists():
        return "no Flink jars: run `make tools` (needs the Debian package maven)"
    return None


def jars() -> Path:
    found = re.search(r"<flink\.version>(.*?)</flink\.version>", POM.read_text())
    assert found, f"{POM} names no flink.version"
    return ROOT / ".tools" / "flink" / found[1]


@dataclass(frozen=True, slots=True)
class FlinkResult:
    """What a statement printed."""

    changes: list[list[str]]
    """The kind of a change and its fields."""
    elapsed_ms: int

    def rows(self) -> list[tuple[str, ...]]:
        """What is left of the changes: rows that were deleted or updated are not there."""
        found: Counter[tuple[str, ...]] = Counter()
        for kind, *fields in self.changes:
            found[tuple(fields)] += 1 if kind in ("+I", "+U") else -1
        assert all(count >= 0 for count in found.values()), self.changes
        return sorted(found.elements())


class FlinkSql:
    """A session with tables of its own, which runs one statement after the other."""

    def __init__(self, settings: Mapping[str, str], options: Sequence[str] = ()) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                *("java", SILENT_KAFKA, *OPENED, "-XX:+UseSerialGC", *options),
                *("-cp", f"{jars()}/*", str(PROGRAM)),
                *(f"{name}={text}" for name, text in settings.items()),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._errors.close()

    def run(self, statement: str) -> FlinkResult:
        """Run a statement to its end: sources of a query must be bounded."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(statement.split()) + "\n")
        self.process.stdin.flush()
        changes: list[list[str]] = []
        for line in self.process.stdout:
            if done := re.fullmatch(r"done (\d+)\n", line):
                return FlinkResult(changes, int(done[1]))
            changes.append(line.rstrip("\n").split("\t"))
        self._errors.seek(0)
        raise AssertionError(f"{statement}\n{self._errors.read().decode()[-4000:]}")
