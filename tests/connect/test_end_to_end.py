"""A worker with its Spark driver: files to a topic and back, through the REST interface."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.connect.running import topic_settings
from tests.support.committed import committed_values
from tests.support.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WITHIN_S = 280.0


class WorkerProcess:
    """`headrace connect serve`, which can be killed and started again."""

    def __init__(
        self, bootstrap: str, folder: Path, settings: Mapping[str, str] | None = None
    ) -> None:
        self._command = [
            sys.executable, "-m", "headrace.cli", "connect", "serve",
            "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", "--folder", str(folder),
        ]  # fmt: skip
        for name, text in (settings or topic_settings()).items():
            self._command += ["--set", f"{name}={text}"]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        address = self._process.stdout.readline().partition("ready on ")[2].partition(",")[0]
        self.address = address
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


@pytest.fixture
def two_workers(connect_bootstrap: str, tmp_path: Path) -> Iterator[list[WorkerProcess]]:
    """Workers of one cluster with folders of their own, as on two machines."""
    settings = {
        **topic_settings(),
        "group.id": f"two-{uuid.uuid4().hex[:8]}",
        "session.timeout.ms": "6000",
    }
    running = [
        WorkerProcess(connect_bootstrap, tmp_path / f"checkpoints-{n}", settings) for n in (1, 2)
    ]
    yield running
    for each in running:
        each.stop()


def test_a_source_whose_worker_is_killed_continues_on_another_one_and_rows_arrive_once(
    connect_bootstrap: str, two_workers: list[WorkerProcess], tmp_path: Path
) -> None:
    source, topic = tmp_path / "in.txt", f"moved-{uuid.uuid4().hex[:8]}"
    create_topic(connect_bootstrap, topic, 2)
    written = 0

    def append(count: int) -> None:
        nonlocal written
        with source.open("a") as file:
            file.write("".join(f"line {n:05}\n" for n in range(written, written + count)))
        written += count

    append(500)
    config = {
        "connector.class": "FileStreamSource", "file": str(source), "topic": topic,
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "headrace.batch.max.rows": "40",
    }  # fmt: skip
    two_workers[0].create("from-file", config)
    wait(lambda: len(committed_values(connect_bootstrap, topic)), lambda found: found >= 200)
    status = two_workers[1].http.get("/connectors/from-file/status").json()["connector"]
    owner = next(each for each in two_workers if each.address == status["worker_id"])
    (other,) = (each for each in two_workers if each is not owner)
    append(2000)
    owner.kill()
    append(500)
    wait(lambda: len(committed_values(connect_bootstrap, topic)), lambda found: found >= written)
    append(100)
    wait(lambda: len(committed_values(connect_bootstrap, topic)), lambda found: found >= written)
    found = sorted(value.decode() for value in committed_values(connect_bootstrap, topic))
    assert found == [f"line {n:05}" for n in range(written)]
    command = [sys.executable, "-m", "headrace.cli", "connect", "status", "from-file", "--json"]
    both = f"http://{owner.address},http://{other.address}"
    shown = subprocess.run(
        [*command, "--connect", both], capture_output=True, text=True, timeout=120, check=True
    )
    connector = json.loads(shown.stdout)["connector"]
    assert (connector["state"], connector["worker_id"]) == ("RUNNING", other.address)
    owner.start()
