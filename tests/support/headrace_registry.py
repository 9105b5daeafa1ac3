"""The real `headrace registry serve` as a process of its own, on a free port."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self


class HeadraceRegistry:
    """One registry process; a context manager that stops it."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        *,
        topic: str = "_schemas",
        settings: Mapping[str, str] | None = None,
        client_config: Path | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._settings = settings or {}
        self._client_config = client_config
        self.topic = topic
        self._log = folder / "registry.log"
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        scheme = "https" if "ssl.keystore.location" in self._settings else "http"
        return f"{scheme}://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the registry is not running"
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

    def start(self) -> None:
        """Returns when it takes requests; after a stop, on the same port."""
        command = [
            sys.executable, "-m", "headrace.cli", "registry", "serve",
            "--bootstrap", self.bootstrap, "--topic", self.topic,
            "--listen", f"127.0.0.1:{self._port}",
        ]  # fmt: skip
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        if self._client_config is not None:
            command += ["--client-config", str(self._client_config)]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "ready on" not in line:
            self._process.wait(60)
            raise RuntimeError(f"the registry did not start: {line}{self.log()}")
        self._port = int(line.split("ready on ")[1].split(",")[0].rpartition(":")[2])

    def log(self) -> str:
        return self._log.read_text()[-4000:]

    def stop(self) -> int | None:
        return self._end(signal.SIGTERM)

    def kill(self) -> int | None:
        """What a crash looks like."""
        return self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Holds the process still, as a machine does that swaps; `wake` lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> int | None:
        if self._process is None:
            return None
        self._process.send_signal(how)
        code = self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return code
