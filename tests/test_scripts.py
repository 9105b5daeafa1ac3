"""What `make up` runs: the broker in the background, and the demo where it can be shown."""

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_port, wait_for_metadata

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / ".venv" / "bin" / "headrace").exists(), reason="`make dev` has not made .venv"
)


def script(name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(ROOT / "scripts" / name), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def script_on_a_terminal(name: str, *words: str, env: dict[str, str]) -> tuple[int, str]:
    """Run a script as a person does who sees its output on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(ROOT / "scripts" / name), *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **env},
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 4096):
            said += chunk
    except OSError:
        # The last one who had the terminal open has closed it.
        pass
    os.close(ours)
    return process.wait(30), said.decode()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A broker that `make up` has started: its folder and port."""
    port = free_port()
    done = script("up", f"127.0.0.1:{port}", str(tmp_path))
    assert done.returncode == 0, done.stderr
    yield str(tmp_path), port
    assert script("down", str(tmp_path)).returncode == 0


def test_without_java_the_log_runs_on_and_the_demo_says_what_is_missing(
    up: tuple[str, int],
) -> None:
    folder, port = up
    code, said = script_on_a_terminal(
        "show-demo", "yes", f"127.0.0.1:{port}", folder, env={"JAVA_HOME": "/nowhere"}
    )
    assert code == 0
    assert "JAVA_HOME is /nowhere" in said
    assert "Java 17 or 21" in said
    assert "The broker goes on running" in said
    wait_for_metadata(port, lambda: True, 10)


def test_where_nobody_looks_make_up_comes_back_with_the_broker_running(up: tuple[str, int]) -> None:
    folder, port = up
    done = script("show-demo", "yes", f"127.0.0.1:{port}", folder)
    assert done.returncode == 0
    assert "make demo" in done.stdout
    wait_for_metadata(port, lambda: True, 10)


def test_a_second_make_up_finds_the_broker_running_and_down_stops_it(tmp_path: Path) -> None:
    words = (f"127.0.0.1:{free_port()}", str(tmp_path))
    assert script("up", *words).returncode == 0
    assert "already running" in script("up", *words).stdout
    assert "has stopped" in script("down", str(tmp_path)).stdout
    assert "not running" in script("down", str(tmp_path)).stdout
