"""Prometheus's own programs, from the Debian package `prometheus`."""

import shutil
import subprocess
from pathlib import Path

import pytest

needs_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="needs the Debian package prometheus",
)


def complaints(page: str) -> list[str]:
    """What `promtool check metrics` says about a page of `/metrics`."""
    found = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    return found.stderr.splitlines()


def promtool(folder: Path, *words: str) -> None:
    """Run promtool; it has to succeed."""
    found = subprocess.run(
        ["promtool", *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
