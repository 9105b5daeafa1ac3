"""The two workers: `headrace connect serve`, and Kafka Connect with Debezium's connectors."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from benchmarks.processes import tree_cpu_seconds, tree_memory_mb
from tests.support.java import ROOT
from tests.support.ports import free_port

POM = ROOT / "scripts" / "java" / "connect-benchmark.pom.xml"
NAMES = ("kafka", "headrace")
READY_S = 180.0
MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
JSON = "org.apache.kafka.connect.json.JsonConverter"


def jars() -> Path:
    found = re.search(r"<debezium\.version>(.*?)</debezium\.version>", POM.read_text())
    assert found, f"{POM} names no debezium.version"
    folder = ROOT / ".tools" / "connect-benchmark" / found[1]
    if not folder.exists():
        raise SystemExit(
            "the jars of Kafka Connect are missing: scripts/fetch-java-tools connect-benchmark"
        )
    return folder


class Worker:
    """One worker as a process, with its REST interface."""

    def __init__(self, name: str, bootstrap: str, folder: Path) -> None:
        self.name = name
        folder.mkdir(parents=True)
        port = free_port()
        command = (
            _theirs(bootstrap, port, folder) if name == "kafka" else _ours(bootstrap, port, folder)
        )
        began = time.perf_counter()
        with (folder / "output.txt").open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=90)
        while not self._answers():
            assert self._process.poll() is None, (folder / "output.txt").read_text()[-3000:]
            assert time.perf_counter() < began + READY_S, f"{name} does not answer"
            time.sleep(0.02)
        self.ready_s = time.perf_counter() - began

    def _answers(self) -> bool:
        try:
            return self.http.get("/connectors", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def cpu_seconds(self) -> float:
        """CPU time of the worker and of all processes that it has started."""
        return tree_cpu_seconds(self._process.pid)

    def memory_mb(self) -> float:
        """Proportional memory of the same processes."""
        return tree_memory_mb(self._process.pid)

    def create(self, name: str, config: Mapping[str, str]) -> None:
        answer = self.http.put(f"/connectors/{name}/config", json=dict(config))
        assert answer.status_code == 201, answer.text

    def wait_running(self, name: str) -> None:
        """Until the connector and all its tasks run."""
        end = time.monotonic() + READY_S
        while True:
            found = self.http.get(f"/connectors/{name}/status").json()
            states = [found.get("connector", {}), *found.get("tasks", [])]
            if len(states) > 1 and all(each.get("state") == "RUNNING" for each in states):
                return
            assert time.monotonic() < end, found
            time.sleep(0.1)

    def delete(self, name: str) -> None:
        assert self.http.delete(f"/connectors/{name}").status_code == 204

    def stop(self) -> None:
        self.http.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _ours(bootstrap: str, port: int, folder: Path) -> list[str]:
    return [
        sys.executable, "-m", "headrace.cli", "connect", "serve", "--bootstrap", bootstrap,
        "--listen", f"127.0.0.1:{port}", "--folder", str(folder / "checkpoints"),
        "--set", "config.storage.topic=ours-configs", "--set", "offset.storage.topic=ours-offsets",
        "--set", "status.storage.topic=ours-status",
    ]  # fmt: skip


def _theirs(bootstrap: str, port: int, folder: Path) -> list[str]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "theirs",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "1000",
        "key.converter": JSON,
        "value.converter": JSON,
    }
    for kind in ("config", "offset", "status"):
        settings[f"{kind}.storage.topic"] = f"theirs-{kind}"
        settings[f"{kind}.storage.replication.factor"] = "1"
    file = folder / "worker.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", "-Xmx1g", "-XX:+UseG1GC", quiet, "-cp", f"{jars()}/*", MAIN, str(file)]
