"""The entries of `compat/`: other projects' programs and tests, run against a broker of their own.

An entry is a folder with `run.sh ADDRESS RESULTS.xml`, the list `tests.allow`, and a
`broker.properties` if the broker needs settings. `python -m tests.compat NAME...` runs entries.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.compat.allow_list import PASSED, complaints, read_allowed, read_junit
from tests.support.headrace_broker import HeadraceBroker
from tests.support.java import ROOT
from tests.support.ports import free_port

COMPAT = ROOT / "compat"
COULD_NOT_FETCH = 75


class NotAvailable(Exception):
    """The entry needs something that cannot be fetched or installed here."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of an entry showed."""

    passed: int
    complaints: list[str]
    output: str


def names(folder: Path = COMPAT) -> list[str]:
    """The entries, in alphabetical order."""
    return sorted(script.parent.name for script in folder.glob("*/run.sh"))


def settings(entry: Path) -> dict[str, str]:
    """What the entry expects of its broker; empty lines and comments are ignored."""
    file = entry / "broker.properties"
    lines = [line.strip() for line in file.read_text().splitlines()] if file.exists() else []
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def run(entry: Path, folder: Path, timeout_s: float, *arguments: str) -> Outcome:
    """Run an entry on a new broker in `folder`; NotAvailable if it cannot be run here."""
    port = free_port()
    results = folder / "results.xml"
    given = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}", **settings(entry)}
    with (
        HeadraceBroker(folder / "broker", port=port, settings=given) as broker,
        (folder / "output.txt").open("wb") as output,
    ):
        done = subprocess.run(
            [entry / "run.sh", broker.bootstrap, results, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    said = (folder / "output.txt").read_text(errors="replace")
    if done.returncode == COULD_NOT_FETCH:
        raise NotAvailable(said.strip().splitlines()[-1])
    if done.returncode != 0:
        return Outcome(0, [f"run.sh ended with {done.returncode}"], said)
    found = read_junit(results)
    passed = sum(result == PASSED for result in found.values())
    return Outcome(passed, complaints(read_allowed(entry / "tests.allow"), found), said)
