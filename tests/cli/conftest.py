"""The command line against one broker, run in this process (fast) or as a process (real).

HEADRACE_TEST_BOOTSTRAP=host:port runs these tests against another cluster, such as Apache Kafka;
HEADRACE_TEST_DATA then names its data folder, or the tests that read files from it are skipped.
"""

import io
import json
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.cli.main import main
from tests.support.headrace_broker import HeadraceBroker


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    def json(self) -> object:
        return json.loads(self.out)

    def document(self) -> dict[str, object]:
        found = self.json()
        assert isinstance(found, dict), found
        return found

    def rows(self) -> list[dict[str, object]]:
        """JSON lines, or a JSON list."""
        lines = self.text.splitlines()
        found = json.loads(lines[0]) if len(lines) == 1 else None
        if isinstance(found, list):
            return found
        return [json.loads(line) for line in lines]


Run = Callable[..., Result]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceBroker | None]:
    if os.environ.get("HEADRACE_TEST_BOOTSTRAP"):
        yield None
        return
    with HeadraceBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(broker: HeadraceBroker | None) -> str:
    return os.environ["HEADRACE_TEST_BOOTSTRAP"] if broker is None else broker.bootstrap


@pytest.fixture(scope="session")
def data_folder(broker: HeadraceBroker | None) -> Path:
    if broker is not None:
        return broker.data
    if folder := os.environ.get("HEADRACE_TEST_DATA"):
        return Path(folder)
    pytest.skip("HEADRACE_TEST_DATA does not name the foreign broker's data folder")


@pytest.fixture
def here(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process."""

    def run(*words: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        # A command that starts a service configures the log of its process, which is this one.
        root = logging.getLogger()
        level, handlers = root.level, root.handlers[:]
        try:
            code = main(list(words))
        finally:
            root.setLevel(level)
            root.handlers[:] = handlers
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Result(code, out, err.decode())

    return run


@pytest.fixture
def run(here: Run, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a client command in this process, against the broker."""
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", bootstrap)
    return here


def command(*words: str) -> list[str]:
    """The command line that starts the CLI as a process."""
    return [sys.executable, "-m", "headrace.cli", *words]


def execute(*words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Result:
    """Runs a command as a process of its own."""
    done = subprocess.run(
        command(*words),
        input=stdin,
        capture_output=True,
        timeout=110,
        env={**os.environ, **(env or {})},
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr.decode())


@pytest.fixture
def topic(run: Run) -> Iterator[str]:
    """A topic of three partitions."""
    name = f"cli-{uuid.uuid4().hex[:10]}"
    assert run("topics", "create", name, "--partitions", "3").code == 0
    yield name
    run("topics", "delete", name, "--yes")
