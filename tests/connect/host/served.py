"""`headrace connect serve` as a process under fire, with the methods that flows use of a host."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx

from headrace.connect.hosting import HostedStatus, Progress, RunState
from tests.connect.broker import ConnectBroker
from tests.connect.host.conftest import HostUnderTest
from tests.connect.running import topic_settings
from tests.support.ports import free_port


class ServedHost(HostUnderTest):
    """Connectors of a worker process, over its REST interface."""

    def __init__(self, broker: ConnectBroker, folder: Path) -> None:
        super().__init__(broker, folder)
        self._port = free_port()
        self._topics = topic_settings()
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self._port}", timeout=60)
        self._process: subprocess.Popen[bytes] | None = None
        self.serve()

    def serve(self) -> None:
        """Start the worker, and wait until it has its connectors."""
        command = [
            sys.executable, "-m", "headrace.cli", "connect", "serve",
            "--bootstrap", self.bootstrap, "--listen", f"127.0.0.1:{self._port}",
            "--folder", str(self.folder / "served"),
            "--set", "session.timeout.ms=6000",
        ]  # fmt: skip
        for name, text in self._topics.items():
            command += ["--set", f"{name}={text}"]
        with (self.folder / "served.log").open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        self.wait(self._is_healthy, bool)

    def _is_healthy(self) -> bool:
        try:
            return self._http.get("/health").status_code == 200
        except httpx.HTTPError:
            return False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill_worker(self) -> None:
        """End it as a crash does. Its driver ends when it notices."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)
        self._http.close()
        super().close()

    def start(self, name: str, config: Mapping[str, str], generation: int = 0) -> None:
        answer = self._http.put(f"/connectors/{name}/config", json={**config, "name": name})
        assert answer.status_code == 201, answer.text

    def stop(self, name: str) -> None:
        self._http.put(f"/connectors/{name}/stop")
        self.wait_for(name, RunState.STOPPED)

    def status(self, name: str) -> HostedStatus:
        try:
            found = self._http.get(f"/connectors/{name}/status").json()
        except httpx.HTTPError as error:
            return HostedStatus(RunState.UNASSIGNED, str(error))
        if "connector" not in found:
            return HostedStatus(RunState.UNASSIGNED, str(found))
        connector = found["connector"]
        progress = Progress(records=found.get("progress", {}).get("records"))
        return HostedStatus(RunState(connector["state"]), connector.get("trace"), progress)
