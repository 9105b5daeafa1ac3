"""A real one-node Apache Kafka (KRaft), to compare with: used by tests and by the benchmarks."""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.support.java import QUICK_START, java_command, run_tool
from tests.support.ports import free_port, wait_for_metadata

CLUSTER_ID = "aGVhZHJhY2UtYmVuY2gtMQ"

# As in Kafka's own start script.
FAST = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")

QUIET_LOGGING = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR"><Loggers><Root level="OFF"/></Loggers></Configuration>
"""


class ApacheKafka:
    """One broker and controller in one process; a context manager that stops it."""

    def __init__(
        self,
        folder: Path,
        *,
        heap_mb: int = 512,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        voters: str | None = None,
        quick: bool = False,
    ) -> None:
        """`voters` are the nodes of a cluster of several, which form a quorum from the start.
        `quick` starts sooner and never becomes fast: for tests, never for figures."""
        self._voters = voters
        self.folder = folder
        self.data = folder / "data"
        self.port = port or free_port()
        self.heap_mb = heap_mb
        self._controller_port = free_port()
        self._settings = dict(settings or {})
        self._options = QUICK_START if quick else FAST
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "Apache Kafka is not running"
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def format(self) -> None:
        """Prepares the data folder; a folder that is prepared already stays as it is."""
        if (self.data / "meta.properties").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._properties_file().write_text(self._properties())
        (self.folder / "log4j2.xml").write_text(QUIET_LOGGING)
        arguments = (
            *("format", "--cluster-id", CLUSTER_ID),
            *("--config", str(self._properties_file())),
            *(() if self._voters else ("--standalone",)),
        )
        run_tool("kafka-storage", *arguments)

    def start(self, timeout_s: float = 90) -> float:
        """Starts the process; returns the seconds from exec to the first Metadata answer."""
        began = self.launch()
        self.wait_until_ready(timeout_s)
        return time.monotonic() - began

    def launch(self) -> float:
        """Starts the process, and does not wait; returns when that was."""
        self.format()
        options = (
            *self._options,
            f"-Xms{self.heap_mb}m",
            f"-Xmx{self.heap_mb}m",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}",
        )
        self._output = (self.folder / "output.txt").open("ab")
        began = time.monotonic()
        process = subprocess.Popen(
            java_command("kafka.Kafka", str(self._properties_file()), options=options),
            stdout=self._output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        self._process = process
        return began

    def wait_until_ready(self, timeout_s: float = 90) -> None:
        """Until it answers."""
        process = self._process
        assert process is not None, "Apache Kafka was not started"
        try:
            wait_for_metadata(self.port, lambda: process.poll() is None, timeout_s)
        except (RuntimeError, TimeoutError) as error:
            self.stop()
            said = (self.folder / "output.txt").read_text()[-2000:]
            raise RuntimeError(f"Apache Kafka did not start: {error}\n{said}") from error

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def stop(self, timeout_s: float = 60) -> None:
        """Stops cleanly, and by force when that takes too long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def partition_folder(self, topic: str, partition: int = 0) -> Path:
        return self.data / f"{topic}-{partition}"

    def _properties_file(self) -> Path:
        return self.folder / "server.properties"

    def _properties(self) -> str:
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            **(
                {}
                if self._voters
                else {"controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}"}
            ),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.segment.delete.delay.ms": "1000",
            **self._settings,
        }
        return "".join(f"{name}={value}\n" for name, value in values.items())
