"""A foreign suite's results against the list of what must pass there.

The list (`compat/<client>/tests.allow`) only grows: what is on it must pass, and what passes must
be on it, so that a success is never lost again unnoticed.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from xml.etree import ElementTree

PASSED = "passed"


def read_allowed(file: Path) -> list[str]:
    """The names on the list; empty lines and those that start with # say nothing."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def read_junit(file: Path) -> dict[str, str]:
    """How each test ended: passed, skipped, or what went wrong, in one line."""
    results = {}
    for case in ElementTree.parse(file).iter("testcase"):
        module = case.attrib["classname"].rpartition(".")[2]
        ends = [
            f"{end.tag}: {end.attrib.get('message', '')}" for end in case if end.tag != "system-out"
        ]
        results[f"{module}::{case.attrib['name']}"] = ends[0].splitlines()[0] if ends else PASSED
    return results


def complaints(allowed: Collection[str], results: Mapping[str, str]) -> list[str]:
    """What is wrong, a sentence each; nothing when list and results agree."""
    found = [
        f"{name} is on the list and must pass, but: {results.get(name, 'it was not run')}"
        for name in allowed
        if results.get(name) != PASSED
    ]
    found += [
        f"{name} passes now: add it to the list, which keeps it so"
        for name, result in results.items()
        if result == PASSED and name not in allowed
    ]
    return found
