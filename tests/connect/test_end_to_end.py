"""A worker with its Spark driver: files to a topic and back, through the REST interface."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.connect.running import topic_settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WITHIN_S = 280.0


class WorkerProcess:
    """`headrace connect serve`, which can be killed and started again."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._command = [
            sys.executable, "-m", "headrace.cli", "connect", "serve",
            "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", "--folder", str(folder),
        ]  # fmt: skip
        for name, text in topic_settings().items():
            self._command += ["--set", f"{name}={text}"]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        address = self._process.stdout.readline().partition("ready on ")[2].partition(",")[0]
        self.http = httpx.Client(base_url=f"http://{address}", timeout=60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(60) == 0

    def create(self, name: str, config: Mapping[str, str]) -> None:
        answer = self.http.put(f"/connectors/{name}/config", json=dict(config))
        assert answer.status_code == 201, answer.text

    def states(self) -> dict[str, str]:
        found = self.http.get("/connectors", params={"expand": "status"}).json()
        return {name: each["status"]["connector"]["state"] for name, each in found.items()}


@pytest.fixture
def worker(connect_bootstrap: str, tmp_path: Path) -> Iterator[WorkerProcess]:
    running = WorkerProcess(connect_bootstrap, tmp_path / "checkpoints")
    yield running
    running.stop()


def wait(look: Callable[[], Any], is_enough: Callable[[Any], bool]) -> None:
    end = time.monotonic() + WITHIN_S
    while not is_enough(found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.3)


def lines(folder: Path) -> list[str]:
    """The lines of all whole files of the sink, sorted."""
    return sorted(line for path in folder.rglob("*.txt") for line in path.read_text().splitlines())


def test_files_arrive_once_although_the_worker_is_killed(
    worker: WorkerProcess, tmp_path: Path
) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out"
    target.mkdir()
    source.write_text("".join(f"line {n:04}\n" for n in range(300)))
    text = "org.apache.kafka.connect.storage.StringConverter"
    worker.create(
        "from-file",
        {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(source), "topic": "lines", "value.converter": text,
            "transforms": "route",
            "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
            "transforms.route.regex": "lines", "transforms.route.replacement": "routed-lines",
        },
    )  # fmt: skip
    wait(worker.states, lambda found: found == {"from-file": "RUNNING"})
    worker.create(
        "to-folder",
        {
            "connector.class": "FilesSink", "topics": "routed-lines", "folder": str(target),
            "format": "lines", "value.converter": text,
        },
    )  # fmt: skip
    wait(lambda: len(lines(target)), lambda found: found == 300)
    worker.kill()
    with source.open("a") as file:
        file.write("".join(f"line {n:04}\n" for n in range(300, 500)))
    worker.start()
    wait(lambda: len(lines(target)), lambda found: found >= 500)
    assert lines(target) == [f"line {n:04}" for n in range(500)]
    wait(worker.states, lambda found: set(found.values()) == {"RUNNING"})
    (offset,) = worker.http.get("/connectors/from-file/offsets").json()["offsets"]
    assert offset["partition"] == {"filename": str(source)}
    assert offset["offset"]["position"] == os.stat(source).st_size
    wait(
        lambda: worker.http.get("/connectors/to-folder/topics").json(),
        lambda found: found == {"to-folder": {"topics": ["routed-lines"]}},
    )
