"""A Spark standalone cluster from the pip package: a master and workers on this machine.

The package has no start-master script, but the classes are all there. Each daemon is a child of
ours, in the foreground, so that its end is ours to see to.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from tests.support.ports import free_port

SPARK_HOME = Path(pyspark.__file__).parent
READY_WITHIN_S = 90
STOPS_WITHIN_S = 30


class SparkCluster:
    """A master and so many workers of one core each; a context manager that stops them all."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every daemon, workers first, by force where it must be."""
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(STOPS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def executors(self) -> list[int]:
        """Workers, by number, that have run an executor."""
        folders = (self._folder / f"worker-{index}" for index in range(self._workers))
        return [i for i, folder in enumerate(folders) if list(folder.glob("app-*/*/stderr"))]

    def _start(self) -> None:
        self._daemon(
            "master", "master.Master", "--host", "127.0.0.1", "--port", str(self._port),
            "--webui-port", "0",
        )  # fmt: skip
        self._await("master", r"New state: ALIVE")
        for index in range(self._workers):
            self._daemon(
                f"worker-{index}", "worker.Worker", "--host", "127.0.0.1", "--cores", "1",
                "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(self._folder / f"worker-{index}"), self.master,
            )  # fmt: skip
        for index in range(self._workers):
            self._await(f"worker-{index}", r"Successfully registered with master")

    def _daemon(self, name: str, kind: str, *words: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": f"{os.environ.get('SPARK_DAEMON_JAVA_OPTS', '')}"
            f" -Dlog4j2.configurationFile=file:{self._log_settings()}",
        }
        # spark-class replaces itself with Java, so the process is the daemon.
        command = [
            str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *words,
        ]  # fmt: skip
        with self._log(name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _log_settings(self) -> Path:
        """The daemons say at the level of info that they are ready."""
        path = self._folder / "log4j2.properties"
        path.write_text(
            "rootLogger.level = info\nrootLogger.appenderRef.c.ref = c\nappender.c.type = Console\n"
            "appender.c.name = c\nappender.c.target = SYSTEM_ERR\n"
            "appender.c.layout.type = PatternLayout\nappender.c.layout.pattern = %p %m%n\n"
        )
        return path

    def _await(self, name: str, text: str) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            said = self._log(name).read_text(errors="replace")
            if re.search(text, said):
                return
            if any(process.poll() is not None for process in self._processes):
                raise RuntimeError(f"a daemon of Spark ended:\n{said[-3000:]}")
            time.sleep(0.1)
        raise TimeoutError(f"{name} of Spark was not ready in {READY_WITHIN_S} s:\n{said[-3000:]}")
