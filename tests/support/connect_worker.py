"""A real Apache Kafka Connect worker in distributed mode, with Kafka's connectors for files."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.support.java import QUICK_START, ROOT, java_command, missing
from tests.support.ports import free_port

MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
PLUGINS = ROOT / ".tools" / "kafka-connect"
"""A folder for each version of the connectors."""
START_S = 120.0

PROPERTIES = """\
bootstrap.servers={bootstrap}
group.id=connect-{port}
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
config.storage.topic=connect-{port}-configs
offset.storage.topic=connect-{port}-offsets
status.storage.topic=connect-{port}-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
offset.storage.partitions=1
status.storage.replication.factor=1
status.storage.partitions=1
offset.flush.interval.ms=1000
plugin.discovery=service_load
plugin.path={plugins}
"""


def connect_missing() -> str | None:
    """None when a worker can run, else a sentence naming what is missing."""
    if not any(PLUGINS.glob("*/connect-file-*.jar")):
        return "no connectors of Kafka Connect: run `make tools`"
    return missing()


class ConnectWorker:
    """One worker process; a context manager that stops it."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        file = self._folder / "connect.properties"
        file.write_text(
            PROPERTIES.format(bootstrap=self._bootstrap, port=self._port, plugins=PLUGINS)
        )
        self._output = (self._folder / "connect.log").open("ab")
        self._process = subprocess.Popen(
            java_command(MAIN, str(file), options=QUICK_START),
            stdout=self._output,
            stderr=self._output,
            cwd=self._folder,
        )
        deadline = time.monotonic() + START_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "connect.log").read_text()
            assert time.monotonic() < deadline, "Kafka Connect does not answer"
            time.sleep(0.2)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        assert self._output is not None
        self._process.kill()
        self._process.wait(60)
        self._output.close()

    def get(self, path: str) -> Any:
        """What the worker answers."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return json.load(answer)

    def _answers(self) -> bool:
        try:
            return isinstance(self.get("/connectors"), list)
        except (OSError, urllib.error.HTTPError, ValueError):
            return False
