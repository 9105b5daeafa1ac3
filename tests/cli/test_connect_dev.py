"""`headrace connect dev`: trying a source without a cluster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
from headrace.connect import Option, Source

class Numbers(Source):
    options = (Option("lanes", int, 1, "how many at once"),)
    schema = "lane int, n bigint"
    def partitions(self):
        return [{"lane": lane} for lane in range(self.lanes)]
    def latest(self, partition, start, limit):
        return {"n": (start or {"n": 0})["n"] + limit}
    def read(self, partition, start, end):
        for n in range((start or {"n": 0})["n"], end["n"]):
            yield {"lane": partition["lane"], "n": n}

class Changing(Numbers):
    calls = 0
    def read(self, partition, start, end):
        Changing.calls += 1
        yield {"lane": 0, "n": Changing.calls}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """It has the name of a module of the standard library, as a user's file may."""
    path = tmp_path / "numbers.py"
    path.write_text(SOURCE)
    return path


def dev(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", "connect", "dev", *words],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_rows_of_every_epoch_are_printed(file: Path) -> None:
    done = dev(f"{file}:Numbers", "--option", "lanes=2", "--rows", "2", "--epochs", "2", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["partition"]["lane"], each["rows"]) for each in found] == [
        (lane, [{"lane": lane, "n": n} for n in numbers])
        for numbers in ((0, 1), (2, 3))
        for lane in (0, 1)
    ]


def test_a_source_that_is_not_repeatable_fails(file: Path) -> None:
    done = dev(f"{file}:Changing")
    assert done.returncode == 1
    assert "Changing.read returned other rows" in done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["numbers.py:Nothing"], "has no connector class Nothing"),
        (["missing.py:Numbers"], "there is no file"),
        (["numbers.py:Numbers", "--option", "lanes=x"], "lanes: Invalid value x"),
    ],
)
def test_wrong_usage_is_explained(file: Path, words: list[str], error: str) -> None:
    done = dev(f"{file.parent}/{words[0]}", *words[1:])
    assert done.returncode == 2
    assert error in done.stderr
