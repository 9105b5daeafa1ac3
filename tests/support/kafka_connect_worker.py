"""Apache Kafka's own Connect worker as a process, on a free port, with its connectors for files.

Its version is the one that our worker says it equals.
"""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.support.java import QUICK_START, jars, java_command
from tests.support.ports import free_port

SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


class KafkaConnectWorker:
    """One distributed worker; a context manager that stops it."""

    def __init__(self, bootstrap: str, folder: Path, more: Mapping[str, str] | None = None) -> None:
        """`more` are further settings."""
        self._folder = folder
        (jar,) = jars().glob("connect-file-*.jar")
        self.url = f"http://127.0.0.1:{free_port()}"
        plugins = folder / "plugins" / "file"
        plugins.mkdir(parents=True)
        (plugins / jar.name).symlink_to(jar)
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": folder.name,
            "listeners": self.url,
            "plugin.path": str(plugins.parent),
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        }
        for kind in ("config", "offset", "status"):
            settings[f"{kind}.storage.topic"] = f"{folder.name}-{kind}"
            settings[f"{kind}.storage.replication.factor"] = "1"
        settings |= more or {}
        self.group = settings["group.id"]
        self._file = folder / "worker.properties"
        self._file.write_text("\n".join(f"{name}={text}" for name, text in settings.items()))
        self.topics = {
            name: text for name, text in settings.items() if name.endswith("storage.topic")
        }
        # The worker closes connections that are idle for a while, just when they are used again.
        once = httpx.Limits(max_keepalive_connections=0)
        self.http = httpx.Client(base_url=self.url, timeout=90, verify=False, limits=once)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = java_command(
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(self._file),
            options=(*QUICK_START, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
        )
        with (self._folder / "output.txt").open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + 180
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                said = (self._folder / "output.txt").read_text()[-2000:]
                raise RuntimeError(f"Kafka Connect did not start: {said}")
            time.sleep(0.2)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.http.close()
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=10, verify=False).status_code == 200
        except httpx.HTTPError:
            return False
