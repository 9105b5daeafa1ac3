"""Wheel and sdist contain the pages of the console, and a build without them fails."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.console.assets import FOLDER
from tests.console.looking import ROOT

pytestmark = pytest.mark.slow
ASSETS = "headrace/console/assets"


class Hatch:
    """Hatchling in a folder of its own, as `pip` and `build` run it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
        subprocess.run([*install, "hatchling"], check=True)

    def build(
        self, kind: str, source: Path, target: Path, **environment: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)],
            cwd=source,
            env={**os.environ, "PYTHONPATH": str(self._folder), **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def hatch(tmp_path_factory: pytest.TempPathFactory) -> Hatch:
    return Hatch(tmp_path_factory.mktemp("hatchling"))


@pytest.fixture(scope="module")
def unpacked(hatch: Hatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files of the sdist that this checkout builds."""
    folder = tmp_path_factory.mktemp("sdist")
    done = hatch.build("sdist", ROOT, folder)
    assert done.returncode == 0, done.stderr
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    (found,) = [each for each in folder.iterdir() if each.is_dir()]
    yield found
    shutil.rmtree(folder)


def pages() -> set[str]:
    return {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()}


def test_the_sdist_has_the_pages_and_their_sources(unpacked: Path) -> None:
    inside = unpacked / "src" / ASSETS
    found = {str(path.relative_to(inside)) for path in inside.rglob("*") if path.is_file()}
    assert found == pages()
    assert (unpacked / "web" / "src" / "main.tsx").is_file()
    assert (unpacked / "web" / "package-lock.json").is_file()
    for absent in ("web/node_modules", ".venv", ".tools", ".git"):
        assert not (unpacked / absent).exists(), absent


def test_the_wheel_of_the_sdist_has_the_pages_and_needs_no_node(
    hatch: Hatch, unpacked: Path, tmp_path: Path
) -> None:
    done = hatch.build("wheel", unpacked, tmp_path, PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    found = {name.removeprefix(f"{ASSETS}/") for name in names if name.startswith(f"{ASSETS}/")}
    assert found == pages()
    assert "headrace/console/routes.py" in names
    assert "headrace-pyspark.pth" in names
    assert [name for name in names if name.startswith(("tests/", "web/"))] == []


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_build_whose_pages_cannot_be_built_fails(
    hatch: Hatch, unpacked: Path, tmp_path: Path, kind: str
) -> None:
    source = tmp_path / "source"
    shutil.copytree(unpacked, source, ignore=shutil.ignore_patterns("assets", "tests", "docs"))
    script = source / "scripts" / "build-console"
    script.write_text("#!/bin/sh\necho 'no network' >&2\nexit 1\n")
    script.chmod(0o755)
    done = hatch.build(kind, source, tmp_path / "out")
    assert done.returncode != 0
    assert "the pages of the web console could not be built" in done.stderr
    assert not list((tmp_path / "out").glob("*"))


def test_make_fails_if_the_pages_cannot_be_built_but_make_up_goes_on(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "web").mkdir()
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("pyproject.toml", "requirements.lock"):
        (tmp_path / name).touch()
    for name, code in (("build-console", 1), ("up", 0), ("show-demo", 0)):
        (scripts / name).write_text(f"#!/bin/sh\necho ran {name}\nexit {code}\n")
        (scripts / name).chmod(0o755)
    for stamp in ("bin/python", ".installed"):
        (tmp_path / ".venv" / stamp).touch()
    for target, expected in (("console", 2), ("up", 0)):
        done = subprocess.run(
            ["make", target], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == expected, done.stderr
        assert "ran build-console" in done.stdout
    assert "ran up" in done.stdout
