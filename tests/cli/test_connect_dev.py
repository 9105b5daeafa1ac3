"""`headrace connect dev`: trying a source without a cluster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
from headrace.connect import Option, Sink, Source

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

class Lines(Sink):
    once = True
    options = (Option("path", str),)
    def open(self, task):
        self._epoch, self._rows = task.epoch, []
    def write(self, batch):
        self._rows += batch.column("value").to_pylist()
    def close(self):
        with open(f"{self.path}-{self._epoch}", "w") as file:
            file.writelines(f"{row['n']}\\n" for row in self._rows)

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
        (["numbers.py:Lines", "--option", "path=x"], "a sink needs values"),
    ],
)
def test_wrong_usage_is_explained(file: Path, words: list[str], error: str) -> None:
    done = dev(f"{file.parent}/{words[0]}", *words[1:])
    assert done.returncode == 2
    assert error in done.stderr


def test_a_sink_writes_the_values_of_a_file(file: Path) -> None:
    values = file.parent / "values.jsonl"
    values.write_text("".join(f'{{"n": {n}}}\n' for n in range(5)))
    target = file.parent / "out"
    words = ["--option", f"path={target}", "--input", str(values), "--epochs", "2"]
    done = dev(f"{file}:Lines", *words, "--schema", "n bigint", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [
        {"epoch": 0, "records": 3, "refused": {}},
        {"epoch": 1, "records": 2, "refused": {}},
    ]
    assert Path(f"{target}-0").read_text() == "0\n1\n2\n"
    assert "does not tell the type of values" in dev(f"{file}:Lines", *words).stderr


def test_rows_of_a_source_are_written_to_a_topic_and_a_sink_reads_them(
    file: Path, bootstrap: str, topic: str
) -> None:
    at = ["--bootstrap", bootstrap, "--topic", topic]
    done = dev(f"{file}:Numbers", "--rows", "3", *at)
    assert done.returncode == 0, done.stderr
    assert f"wrote 3 records to topic {topic}" in " ".join(done.stderr.split())
    target = file.parent / "out"
    words = ["--option", f"path={target}", "--schema", "lane int, n bigint"]
    done = dev(f"{file}:Lines", *words, *at)
    assert done.returncode == 0, done.stderr
    assert sorted(Path(f"{target}-0").read_text().splitlines()) == ["0", "1", "2"]
    missing = dev(f"{file}:Lines", *words, "--bootstrap", bootstrap, "--topic", "no-such-topic")
    assert missing.returncode == 1
    assert "no-such-topic" in missing.stderr
