"""`headrace connect new`: the package that it writes works as it is."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True, text=True, timeout=120, check=False, cwd=folder, env=env,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "module"),
    [("OrderSource", "source", "order_source"), ("OrderSink", "sink", "order_sink")],
)
def test_the_package_passes_its_test_and_can_be_tried(
    tmp_path: Path, name: str, kind: str, module: str
) -> None:
    done = run(tmp_path, "headrace.cli", "connect", "new", name, "--kind", kind)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / module
    tested = run(folder, "pytest", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout
    assert "1 passed" in tested.stdout
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["headrace.connectors"] == {name: f"{module}:{name}"}
    (tmp_path / "rows").write_text('{"n": 1}\n{"n": 2}\n')
    words = ["--option", f"path={tmp_path}/rows"]
    if kind == "sink":
        words = ["--option", f"folder={folder}", "--input", f"{tmp_path}/rows"]
        words += ["--schema", "n bigint"]
    path = f"{folder}/{module}.py:{name}"
    tried = run(tmp_path, "headrace.cli", "connect", "dev", path, *words, "--json")
    assert tried.returncode == 0, tried.stderr
    found = json.loads(tried.stdout)
    assert len(found["rows"]) == 2 if kind == "source" else found["records"] == 2


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    for words in (["OrderSource", "--folder", str(tmp_path)], ["order-source"]):
        done = run(tmp_path, "headrace.cli", "connect", "new", *words)
        assert done.returncode == 2
        assert list(tmp_path.iterdir()) == []
