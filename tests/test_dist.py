"""The packages that `make dist` builds: reproducible, and the wheel works in a new environment."""

import hashlib
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from headrace import __version__
from tests.support.ports import free_port, wait_for_metadata

ROOT = Path(__file__).resolve().parents[1]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (ROOT / ".venv" / "bin" / "headrace").exists(), reason="`make dev` has not made .venv"
    ),
]


def output(*command: str | Path, cwd: Path | None = None, words: str = "") -> str:
    """What a command prints, with no module of this checkout on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        input=words,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    (folder / "headrace-0.0.1-py3-none-any.whl").touch()
    output(ROOT / "scripts" / "dist", folder)
    return folder


def test_the_folder_has_one_wheel_and_one_source_distribution(dist: Path) -> None:
    names = {f"headrace-{__version__}-py3-none-any.whl", f"headrace-{__version__}.tar.gz"}
    assert {path.name for path in dist.iterdir()} == names


def test_the_source_distribution_builds_the_same_packages_again(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    source = tmp_path / f"headrace-{__version__}"
    for path in source.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    again = tmp_path / "again"
    output(sys.executable, "-m", "hatchling", "build", "-d", again, cwd=source)
    assert digests(again) == digests(dist)


def test_the_wheel_runs_a_broker_in_a_new_environment(dist: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    headrace = tmp_path / "venv" / "bin" / "headrace"
    (wheel,) = dist.glob("*.whl")
    lock = ROOT / "requirements.lock"
    output(python, "-m", "pip", "install", "--quiet", "-c", lock, wheel, cwd=tmp_path)
    assert output(headrace, "--version", cwd=tmp_path) == f"headrace {__version__}\n"
    where = "import headrace.console as console; print(console.__file__)"
    console = Path(output(python, "-c", where, cwd=tmp_path).strip()).parent
    assert console.is_relative_to(tmp_path / "venv")
    assert (console / "assets" / "index.html").is_file()
    assert (console.parent / "py.typed").is_file()

    port = free_port()
    at = ("--bootstrap", f"127.0.0.1:{port}")
    broker = subprocess.Popen(
        [headrace, "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", tmp_path / "data"],
        cwd=tmp_path,
    )
    try:
        wait_for_metadata(port, lambda: broker.poll() is None, timeout_s=120)
        output(headrace, "topics", "create", "greetings", *at, cwd=tmp_path)
        output(headrace, "produce", "greetings", *at, cwd=tmp_path, words="hello, river\n")
        read = output(headrace, "consume", "greetings", "--from", "beginning", *at, cwd=tmp_path)
        assert "hello, river" in read
    finally:
        broker.terminate()
        assert broker.wait(120) == 0
