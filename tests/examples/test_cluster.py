"""The demonstration of a cluster: leaders are killed, and nothing that was acknowledged is lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import zookeeper
from tests.support.java import ROOT
from tests.support.ports import free_port

pytestmark = pytest.mark.java


def test_a_leader_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    if reason := zookeeper.missing():
        pytest.skip(reason)
    command = [
        sys.executable, str(ROOT / "examples" / "cluster" / "failover.py"),
        "--seconds", "9", "--json", "--port", str(free_port()),
        "--jars", str(zookeeper.jars()),
    ]  # fmt: skip
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["kills"] >= 1
    assert summary["acknowledged"] > 0
    assert summary["lost"] == summary["failed_sends"] == 0
    assert summary["read"] >= summary["acknowledged"]
