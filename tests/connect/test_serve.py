"""`headrace connect serve` as a process."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.connect.running import topic_settings


def state_of(address: str) -> str:
    try:
        with urlopen(f"http://{address}/health", timeout=60) as answer:
            return str(json.load(answer)["status"])
    except HTTPError as error:
        return str(json.load(error)["status"])


def test_rest_answers_without_java_and_a_signal_ends_the_worker_cleanly(
    connect_bootstrap: str, tmp_path: Path
) -> None:
    command = [
        sys.executable, "-m", "headrace.cli", "connect", "serve",
        "--bootstrap", connect_bootstrap, "--listen", "127.0.0.1:0", "--folder", str(tmp_path),
    ]  # fmt: skip
    for name, text in topic_settings().items():
        command += ["--set", f"{name}={text}"]
    # Neither Java nor anything else is found on this path.
    env = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            address = ready.partition("ready on ")[2].partition(",")[0]
            with urlopen(f"http://{address}/connectors", timeout=60) as answer:
                assert json.load(answer) == []
            assert state_of(address) in ("starting", "healthy")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_an_unknown_setting_is_bad_usage_with_the_nearest_name() -> None:
    command = [sys.executable, "-m", "headrace.cli", "connect", "serve"]
    done = subprocess.run(
        [*command, "--set", "config.storage.topics=x"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "config.storage.topic" in done.stderr
