"""`headrace sql serve` as a process, with Spark, which can be killed and started again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

WITHIN_S = 280.0


class SqlProcess:
    """A server of its own service."""

    def __init__(
        self, bootstrap: str, folder: Path, service: str, settings: Mapping[str, str] | None = None
    ) -> None:
        self._command = [
            sys.executable, "-m", "headrace.cli", "sql", "serve",
            "--bootstrap", bootstrap, "--listen", "127.0.0.1:0", "--folder", str(folder),
            "--service", service,
        ]  # fmt: skip
        for name, text in (settings or {}).items():
            self._command += ["--set", f"{name}={text}"]
        self.folder = folder
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.address = line.partition("ready on ")[2].partition(",")[0]
        assert self.address, "the server did not start"
        self.http = httpx.Client(base_url=f"http://{self.address}", timeout=WITHIN_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0

    def driver(self) -> int:
        """The process id of the Spark driver."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        (found,) = [
            int(each)
            for each in children.split()
            if "headrace.sql.host.driver" in Path(f"/proc/{each}/cmdline").read_text()
        ]
        return found

    def kill_driver(self) -> None:
        os.kill(self.driver(), signal.SIGKILL)

    def sql(self, text: str, **more: Any) -> list[dict[str, Any]]:
        """The results of statements, which must succeed."""
        response = self.http.post("/ksql", json={"ksql": text, **more})
        assert response.status_code == 200, response.text
        found: list[dict[str, Any]] = response.json()
        return found

    def refused(self, text: str) -> str:
        """The error of statements, which must fail."""
        response = self.http.post("/ksql", json={"ksql": text})
        assert response.status_code == 400, response.text
        message: str = response.json()["message"]
        return message

    def rows(self, select: str) -> list[list[Any]]:
        """The answer of a pull query."""
        headers = {"accept": "application/json"}
        response = self.http.post("/query-stream", json={"sql": select}, headers=headers)
        assert response.status_code == 200, response.text
        found: list[list[Any]] = response.json()[1:]
        return found

    def states(self) -> dict[str, str]:
        (listed,) = self.sql("LIST QUERIES;")
        return {each["id"]: each["state"] for each in listed["queries"]}


def wait(look: Callable[[], Any], is_enough: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + WITHIN_S
    while not is_enough(found := look()):
        assert time.monotonic() < end, found
        time.sleep(0.3)
    return found
