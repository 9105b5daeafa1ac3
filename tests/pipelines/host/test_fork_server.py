"""The process from which Spark's Python workers are forked."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headrace.pipelines.host.fork_server import ForkServer

WITHIN_S = 60.0


@pytest.fixture(scope="module")
def environment() -> Iterator[Mapping[str, str]]:
    """The environment of Spark's Java, with a fork server."""
    with tempfile.TemporaryDirectory() as folder:
        server = ForkServer(Path(folder))
        yield {**os.environ, **server.environment()}
        server.close()


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module for workers, in a folder that only the environment of the launcher has."""
    path = tmp_path / "a_worker.py"
    path.write_text(
        "import os, sys\n"
        "print(__name__, sys.argv[1:], os.getcwd(), os.environ['WORD'], os.getpid(), flush=True)\n"
        "print('to stderr', file=sys.stderr, flush=True)\n"
        "print(sys.stdin.readline().strip(), 'pyarrow' in sys.modules, flush=True)\n"
        "sys.stdin.read()\n"
    )
    return path


def launch(environment: Mapping[str, str], module: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [environment["PYSPARK_PYTHON"], "-m", module.stem, "one", "two words"],
        env={**environment, "PYTHONPATH": str(module.parent), "WORD": "a word"},
        cwd=module.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(process: "subprocess.Popen[str]") -> tuple[str, int]:
    """What the worker printed, and its process id."""
    assert process.stdout is not None
    line, _, pid = process.stdout.readline().strip().rpartition(" ")
    return line, int(pid)


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + WITHIN_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.05)


def test_a_worker_has_arguments_environment_folder_and_files_of_its_launcher(
    environment: Mapping[str, str], module: Path
) -> None:
    process = launch(environment, module)
    line, pid = first_line(process)
    assert line == f"__main__ ['one', 'two words'] {module.parent} a word"
    assert pid != process.pid
    out, err = process.communicate("from stdin\n", WITHIN_S)
    assert out == "from stdin True\n"
    assert err == "to stderr\n"
    wait_until_gone(pid)


def test_a_worker_ends_with_its_launcher(environment: Mapping[str, str], module: Path) -> None:
    process = launch(environment, module)
    _, pid = first_line(process)
    process.send_signal(signal.SIGKILL)
    process.wait(WITHIN_S)
    wait_until_gone(pid)


def test_the_launcher_ends_with_its_worker(environment: Mapping[str, str], module: Path) -> None:
    process = launch(environment, module)
    _, pid = first_line(process)
    os.kill(pid, signal.SIGKILL)
    process.wait(WITHIN_S)


def test_workers_end_with_the_driver(module: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = ForkServer(Path(folder))
        process = launch({**os.environ, **server.environment()}, module)
        _, pid = first_line(process)
        server.close()
        wait_until_gone(pid)
        process.wait(WITHIN_S)


def test_without_a_server_python_itself_runs(environment: Mapping[str, str], module: Path) -> None:
    process = launch({**environment, "HEADRACE_FORK_SERVER": "/nowhere"}, module)
    line, pid = first_line(process)
    assert line.startswith("__main__ ['one', 'two words']")
    assert pid == process.pid
    out, _ = process.communicate("x\n", WITHIN_S)
    assert out == "x False\n"


def test_other_uses_of_python_are_not_forked(environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [environment["PYSPARK_PYTHON"], "-c", "import sys; print(sys.version)"],
        env=environment, capture_output=True, text=True, check=True, timeout=WITHIN_S,
    )  # fmt: skip
    assert done.stdout.strip() == sys.version
